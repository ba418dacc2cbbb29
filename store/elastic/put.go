package elastic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
)

var _ producer.Sink = (*Store)(nil)

// Put stores a message that could not be published, and returns nil once
// Elasticsearch has acknowledged it. Messages that are put at the same time are
// sent together, and each Put learns about its own. While Config.Bytes are on their
// way, Put waits. The Delay of a message runs on here: Replay publishes it with what
// is left of it.
//
// What Elasticsearch answers with 429 or 503 is sent again until ctx ends. Any other
// refusal is an error that holds a [*ResponseError]. If it is not known whether the
// message was stored, the error matches [producer.ErrUnconfirmed].
func (s *Store) Put(ctx context.Context, m producer.Message, cause error) error {
	return s.put(ctx, letter.Unpublished(m, cause, s.now()))
}

// Collect stores a dead letter. It is a handler for the consumer of a dead-letter
// queue, which acks the letter once Elasticsearch has acknowledged it.
//
//	consumer.New(conn, orders.DeadLetterQueue(), letters.Collect, consumer.Config{Concurrency: 50})
//
// A letter that is delivered twice is stored once, unless it has no message id.
// While Elasticsearch does not take it the letter is held and tried again, as by
// [consumer.Requeue].
func (s *Store) Collect(ctx context.Context, d *consumer.Delivery) error {
	if err := s.put(ctx, letter.Dead(d, s.now())); err != nil {
		return consumer.Requeue(err)
	}
	return nil
}

func (s *Store) put(ctx context.Context, l letter.Letter) error {
	id := letter.Identity(l.Message, l.Queue)
	lines, err := indexLines(s.cfg.Index, id, l)
	if err != nil {
		return connection.WithClass(fmt.Errorf("elastic: message %q: %w", l.Message.ID, err), connection.Bug)
	}
	if err := s.write(ctx, &action{id: id, lines: lines}); err != nil {
		return fmt.Errorf("elastic: storing message %q: %w", l.Message.ID, err)
	}
	return nil
}

// write sends an action until it is answered with something else than that there
// is no room. The error matches producer.ErrUnconfirmed if any try may have done it.
func (s *Store) write(ctx context.Context, a *action) error {
	maybe := false
	for try := 1; ; try++ {
		err := s.bulk.do(ctx, a)
		if err == nil {
			return nil
		}
		maybe = maybe || doubtful(err) && !errors.Is(err, errNotSent)
		var answered *ResponseError
		if errors.As(err, &answered) && answered.passes() {
			wait := pauseAfter(err, try)
			s.cfg.Logger.Warn("elastic: a letter is sent again", "id", a.id, "try", try, "wait", wait, "error", err)
			if err = sleep(ctx, wait, err); err == nil {
				continue
			}
		}
		if maybe {
			return unconfirmedError{err}
		}
		return err
	}
}

// The pauses between tries.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// pauseAfter is how long to wait after so many tries: doubled with each, up to half
// of it at random so that not all come back together, or what the server asks for.
func pauseAfter(err error, try int) time.Duration {
	var asked retryAfter
	if errors.As(err, &asked) {
		return asked.pause
	}
	long := min(firstPause<<min(try-1, 10), longestPause)
	return long - rand.N(long/2)
}

// sleep waits, or returns last with the end of ctx.
func sleep(ctx context.Context, long time.Duration, last error) error {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w; last answer: %w", context.Cause(ctx), last)
	}
}
