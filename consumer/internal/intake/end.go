package intake

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// reasonForEnd tells why the deliveries ended.
func (s *Session) reasonForEnd() error {
	// The library puts the cancel in before it ends the deliveries, and closes
	// both when the channel is lost.
	if _, ok := <-s.cancelled; !ok {
		<-s.Channel.Done()
		return s.Channel.Err()
	}
	return s.cancelledByBroker()
}

// cancelledByBroker tells why the broker has cancelled the consuming. Whether a
// message was kept too long shows when it comes again.
func (s *Session) cancelledByBroker() error {
	if s.version.AtLeast(4, 3) {
		s.noteTaken(false)
	}
	return fmt.Errorf("consumer: the broker cancelled the consuming of queue %q: it was deleted, is not available, or a message was kept longer than its consumer timeout", s.Queue)
}

// ended returns why the channel was lost, after a look whether it was a message
// that was kept for too long.
func (s *Session) ended(err error) error {
	var reason *amqp.Error
	if !errors.As(err, &reason) || !s.Timeout.Closed(reason) {
		return err
	}
	s.noteTaken(s.version.AtLeast(4, 3))
	if limit := s.Timeout.HandlerLimit(); limit > 0 {
		return fmt.Errorf("consumer: a message of queue %q was kept longer than the broker's consumer timeout of %v: handlers are told to end after %v from now on: %w",
			s.Queue, s.Timeout.Limit().Round(time.Millisecond), limit.Round(time.Millisecond), err)
	}
	return fmt.Errorf("consumer: a message of queue %q was kept longer than the broker's consumer timeout: %w", s.Queue, err)
}

// noteTaken notes the messages that the broker has taken away with the session.
func (s *Session) noteTaken(orphans bool) {
	s.Timeout.NoteTaken(s.Hand.Taken(), orphans, time.Now())
}
