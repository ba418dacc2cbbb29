package producer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unicode/utf8"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/copies"
	"github.com/rehop/rehop/xdeath"
)

// Sink is a place of last resort for a message that could not be confirmed. Why
// it could not decides which sinks are asked:
//
//	cause        error             taken by
//	unroutable   ErrReturned       the first sink: somebody has to look at it
//	refused      ErrRefused        the first sink
//	nacked       ErrNacked         the first sink
//	unreachable  not sent          the first sink that is not an ExchangeSink of
//	blocked      *BlockedError     the Producer's own Conn: the message can be
//	unconfirmed  ErrUnconfirmed    published by itself when the broker is back
//
// "The first" is the first that does not fail. A sink that is a [Taker] chooses
// among these.
type Sink interface {
	// Name of the sink, as it appears in a Receipt. It must not panic.
	Name() string

	// Put returns nil only once the message is safe. cause is why it could
	// not be published. It may be called concurrently, and must return soon after
	// ctx has ended.
	//
	// An error says that the sink does not have the message. Where that is not
	// known, such as of a commit without an answer, the error matches
	// [ErrUnconfirmed]. An error after the end of ctx, and a panic, count as
	// such. The message may then be in the sink: the next one is asked all the
	// same, and Receipt.MaybeDuplicate is true.
	Put(ctx context.Context, m Message, cause error) error
}

// Taker is a Sink that does not take every message.
type Taker interface {
	Sink

	// Takes reports whether the sink is for messages with this cause, one of
	// the table of [Sink].
	Takes(cause xdeath.Cause) bool
}

// OrderedSink is a Sink that keeps the order of what goes to one exchange and key.
type OrderedSink interface {
	Sink

	// PutBehind is called with a message before it is sent. If the sink has
	// messages with the same exchange and key that are to be published first, it
	// keeps this one too and returns true once that is safe; the Receipt's Err then
	// matches [ErrBehind]. With an error, Publish fails, because to send the
	// message would be to let it overtake others; the error is to match
	// ErrUnconfirmed as that of Put is. It is not called for messages with
	// Replays, which come out of a sink.
	PutBehind(ctx context.Context, m Message) (stored bool, err error)
}

// ExchangeSink publishes to a dead-letter exchange, confirmed, with the cause
// in the message's headers. Declare the exchange and its queue with a
// topology.DeadLetterQueue that has an Exchange. On the producer's own Conn it
// takes what is unroutable, refused or nacked; for a cluster that is out of
// reach, give it a Conn to another one.
type ExchangeSink struct {
	conn      *connection.Conn
	exchange  string
	publisher *confirm.Publisher
	host      string
	patience  time.Duration // of the Producer
}

// NewExchangeSink returns a sink that publishes to exchange on conn, with the
// routing key of the message. The Producer that has it in its Config.Fallback
// closes it.
func NewExchangeSink(conn *connection.Conn, exchange string) (*ExchangeSink, error) {
	var errs []error
	if conn == nil {
		errs = append(errs, errors.New("producer: conn is nil"))
	}
	if exchange == "" || len(exchange) > maxShort || !utf8.ValidString(exchange) {
		errs = append(errs, fmt.Errorf("producer: name of the sink's exchange is %q, want 1 to %d bytes of UTF-8", exchange, maxShort))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &ExchangeSink{conn: conn, exchange: exchange, publisher: confirm.New(conn, confirm.Limits{Messages: 100}), host: host}, nil
}

// Name returns "exchange " and the name of the exchange.
func (s *ExchangeSink) Name() string { return "exchange " + s.exchange }

// Put publishes the message and waits for the confirm. What a lost connection
// cuts off is sent again until ctx ends, or Config.FallbackAfter of the Producer
// is over. The headers that say why are cut where they do not fit in a frame of
// the connection, see xdeath.MaxHeaderBytes.
func (s *ExchangeSink) Put(ctx context.Context, m Message, cause error) error {
	p, err := m.publishing()
	if err != nil {
		return err
	}
	// The user-id is archived, not sent: a wrong one may be why we are here.
	p = copies.Fallback(p, copies.FallbackCopy{
		Exchange:   m.Exchange,
		RoutingKey: m.Key,
		Failure: copies.Failure{
			Cause:     string(CauseOf(cause)),
			Error:     cause.Error(),
			ErrorType: fmt.Sprintf("%T", cause),
			At:        time.Now(),
			Host:      s.host,
		},
	})
	sending := &confirm.Message{
		Exchange:   s.exchange,
		Key:        m.Key,
		Publishing: p,
		Size:       len(p.Body) + xdeath.HeaderSize(p),
		Fit:        fitLetter,

		Patience:       s.patience,
		AnswerPatience: s.patience,
	}
	s.publisher.Send(ctx, sending)
	err = sending.Wait(ctx)
	if cutOff(ctx, err) {
		_, err = again(ctx, s.publisher, sending, err, cutOff, nil)
	}
	return err
}

// fitLetter cuts a letter to the frames of the session.
func fitLetter(m *confirm.Message, frame int) {
	copies.Cut(m.Publishing, xdeath.HeaderLimit(frame))
	m.Header = xdeath.HeaderSize(m.Publishing)
}

// Close closes the sink's channel.
func (s *ExchangeSink) Close() error { return s.publisher.Close() }
