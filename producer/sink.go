package producer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unicode/utf8"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/copies"
	"github.com/rehop/rehop/internal/errortype"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/xdeath"
)

// Sink is a place of last resort for a message that could not be confirmed. The cause
// decides which sinks are asked:
//
//	cause        error             taken by
//	unroutable   ErrReturned       the first sink: somebody has to look at it
//	refused      ErrRefused        the first sink
//	nacked       ErrNacked         the first sink
//	unreachable  not sent          the first sink that is not an exchange on the
//	blocked      *BlockedError     Producer's own Conn: the message can be
//	unconfirmed  ErrUnconfirmed    published by itself when the broker is back
//
// "The first sink" is the first that does not fail. Once the ctx of Publish has ended no sink is
// asked. A message that was not sent by then has the cause unreachable, although the broker may be
// in reach: errors.Is with ctx.Err() tells.
//
// A sink may have more methods. The Producer finds them in the sink, or in a sink that it
// wraps:
//
//	Name() string
//	    its name in a Receipt and in the log, else its type; must not panic
//	Takes(cause rehop.Cause) bool
//	    whether the sink is for messages with this cause, one of the table
//	PutBehind(ctx context.Context, m Message) (stored bool, err error)
//	    keeps m behind messages that it has for the same exchange and key, see below
//	Close() error
//	    called when the Producer has stopped
//	Unwrap() Sink
//	    the sink that it wraps, such as for counting
//
// PutBehind keeps the order of messages, as a store.Store with KeepOrder does. The Producer
// calls it before it sends a message. If the sink has messages of the same exchange and key
// that are to be published first, PutBehind keeps this one too and returns true once that is
// safe; Receipt.Err then matches [ErrBehind]. With an error Publish fails, because the
// message would overtake earlier ones; the error matches ErrUnconfirmed where an error of
// Put would. PutBehind is not called for messages with Replays, which come out of a sink.
type Sink interface {
	// Put returns nil only once the message is safe. cause is the error of its publish.
	// Put may be called concurrently, and must return soon after ctx has ended.
	//
	// An error says that the sink does not have the message. If the sink cannot tell,
	// as after a commit without an answer, its error must match [ErrUnconfirmed]. An
	// error after the end of ctx, and a panic, count as such an error. The message may
	// then be in the sink. The Producer asks the next sink all the same, and
	// Receipt.MaybeDuplicate is true.
	Put(ctx context.Context, m Message, cause error) error
}

// The optional methods of a Sink.
type (
	namedSink     interface{ Name() string }
	selectiveSink interface{ Takes(cause rehop.Cause) bool }
	orderedSink   interface {
		Sink
		PutBehind(ctx context.Context, m Message) (stored bool, err error)
	}
)

// nameOf returns the name of a sink.
func nameOf(sink Sink) string {
	if s, ok := as[namedSink](sink); ok {
		return s.Name()
	}
	return fmt.Sprintf("%T", sink)
}

// exchangeSink is the sink of NewExchangeSink.
type exchangeSink struct {
	conn      *connection.Conn
	exchange  string
	publisher *confirm.Publisher
	host      string
}

// mostWrapped bounds the sinks around a sink. One whose Unwrap returns itself has no end.
const mostWrapped = 100

// as returns a sink as a T, or the sink that it wraps.
func as[T any](sink Sink) (t T, found bool) {
	for range mostWrapped {
		if sink == nil {
			break
		}
		if t, found = sink.(T); found {
			return t, true
		}
		wrapper, wraps := sink.(interface{ Unwrap() Sink })
		if !wraps {
			break
		}
		sink = wrapper.Unwrap()
	}
	return t, false
}

// onConn is a sink that publishes on a Conn. The method is promoted from an embedded
// exchangeSink.
type onConn interface {
	publishesOn(conn *connection.Conn) bool
}

func (s *exchangeSink) publishesOn(conn *connection.Conn) bool { return s.conn == conn }

// exactError is of a sink that knows whether it has the message: only an error that
// matches ErrUnconfirmed says that it may.
type exactError struct{ error }

func (e *exactError) Unwrap() error { return e.error }

// producerKey is the key of the Producer that a sink is called by.
type producerKey struct{}

// NewExchangeSink returns a sink that publishes to a dead-letter exchange on conn,
// confirmed, with the routing key of the message and the cause in its headers. Declare
// the exchange and its queue with a topology.DeadLetterQueue that has an Exchange. On
// the Producer's own Conn the sink takes messages that are unroutable, refused or nacked;
// for a cluster that is out of reach, give the sink a Conn to another one.
//
// The sink opens nothing before its first message, and belongs to one Producer, which
// closes it. Its Name is "exchange " and the name of the exchange. A message that a
// lost connection cuts off is sent again until the ctx of Put ends, or until
// Config.FallbackAfter of the Producer is over. The sink shortens the headers with the
// cause and the error if they do not fit in a frame of the connection.
func NewExchangeSink(conn *connection.Conn, exchange string) (Sink, error) {
	var errs []error
	if conn == nil {
		errs = append(errs, errors.New("producer: conn is nil"))
	}
	if exchange == "" || len(exchange) > maxShort || !utf8.ValidString(exchange) {
		errs = append(errs, fmt.Errorf("producer: name of the sink's exchange is %q, want 1 to %d bytes of UTF-8", exchange, maxShort))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &exchangeSink{conn: conn, exchange: exchange, publisher: confirm.New(conn, confirm.Limits{Messages: 100}), host: host}, nil
}

func (s *exchangeSink) Name() string { return "exchange " + s.exchange }

func (s *exchangeSink) Put(ctx context.Context, m Message, cause error) error {
	if err := s.publish(ctx, m, cause); err != nil {
		return &exactError{err}
	}
	return nil
}

func (s *exchangeSink) publish(ctx context.Context, m Message, cause error) error {
	var patience time.Duration
	if caller, ok := ctx.Value(producerKey{}).(*Producer); ok {
		if caller.conn == s.conn && CauseOf(cause).Passes() {
			return errOwnBroker
		}
		patience = caller.cfg.FallbackAfter
	}
	p, err := m.publishing()
	if err != nil {
		return err
	}
	// The user-id is archived, not sent: a wrong one may be why we are here.
	p = copies.Fallback(p, copies.FallbackCopy{
		Exchange:   m.Exchange,
		RoutingKey: m.RoutingKey,
		Failure: xdeath.Failure{
			Cause:     CauseOf(cause),
			Error:     cause.Error(),
			ErrorType: errortype.Of(cause),
			At:        time.Now(),
			Host:      s.host,
		},
	})
	sending := &confirm.Message{
		Exchange:   s.exchange,
		RoutingKey: m.RoutingKey,
		Publishing: p,
		Size:       len(p.Body) + header.Size(p),
		Fit:        fitLetter,

		Patience:       patience,
		AnswerPatience: patience, // the next sink is to have its turn too
	}
	s.publisher.Send(ctx, sending)
	err = sending.Wait(ctx)
	if cutOff(ctx, err) {
		_, err = again(ctx, s.publisher, sending, err, cutOff, nil)
	}
	if errors.Is(err, confirm.ErrClosed) {
		return rehop.WithClass(fmt.Errorf("the sink %q is closed: a Producer closes the sinks of its Fallback with itself, so give each Producer a sink of its own", s.Name()), rehop.ClassBug)
	}
	return err
}

// errOwnBroker is for a wrapped sink, which the Producer asks because it cannot know.
var errOwnBroker = rehop.WithClass(errors.New("the sink publishes on the Producer's own Conn, so it cannot be reached either"), rehop.ClassTransient)

// fitLetter cuts a letter to the frames of the session.
func fitLetter(m *confirm.Message, socket transport.Transport) {
	copies.Cut(m.Publishing, header.Limit(socket.FrameSize()))
	m.Header = header.Size(m.Publishing)
}

// Close is called by the Producer, which closes every sink that is an io.Closer.
func (s *exchangeSink) Close() error { return s.publisher.Close() }
