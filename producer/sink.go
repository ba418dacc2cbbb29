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
	"github.com/rehop/rehop/xdeath"
)

// Sink is a place of last resort for a message that could not be confirmed.
type Sink interface {
	// Name of the sink, as it appears in a Receipt.
	Name() string

	// Put returns nil only once the message is safe. cause is why it could
	// not be published. It may be called concurrently.
	Put(ctx context.Context, m Message, cause error) error
}

// ExchangeSink publishes to a dead-letter exchange, confirmed, with the reason
// in the message's headers. Declare the exchange and its queue with a
// topology.DeadLetterQueue that has an Exchange. On the producer's own cluster
// it takes what is unroutable or refused; for a cluster that is out of reach,
// give it a connection to another one.
type ExchangeSink struct {
	exchange  string
	publisher *confirm.Publisher
	host      string
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
	return &ExchangeSink{exchange: exchange, publisher: confirm.New(conn, 100), host: host}, nil
}

// Name returns "exchange " and the name of the exchange.
func (s *ExchangeSink) Name() string { return "exchange " + s.exchange }

// Put publishes the message and waits for the confirm. What a lost connection
// cuts off is tried again until ctx ends.
func (s *ExchangeSink) Put(ctx context.Context, m Message, cause error) error {
	p, err := m.publishing()
	if err != nil {
		return err
	}
	// The user-id is archived, not sent: a wrong one may be why we are here.
	p = xdeath.Fallback(p, xdeath.FallbackCopy{
		Exchange:   m.Exchange,
		RoutingKey: m.Key,
		Failure: xdeath.Failure{
			Cause:     causeOf(cause),
			Error:     cause.Error(),
			ErrorType: fmt.Sprintf("%T", cause),
			At:        time.Now(),
			Host:      s.host,
		},
	})
	letter := confirm.Message{Exchange: s.exchange, Key: m.Key, Publishing: p}
	pending, err := s.publisher.Send(ctx, letter)
	_, err = answer(ctx, s.publisher, letter, pending, err)
	return err
}

// Close closes the sink's channel.
func (s *ExchangeSink) Close() error { return s.publisher.Close() }

func causeOf(err error) xdeath.Cause {
	switch {
	case errors.Is(err, ErrUnconfirmed):
		return xdeath.CauseBlocked
	case errors.Is(err, ErrReturned):
		return xdeath.CauseUnroutable
	case errors.Is(err, ErrNacked), errors.Is(err, ErrRefused):
		return xdeath.CauseBrokerNacked
	}
	return xdeath.CauseBlocked
}
