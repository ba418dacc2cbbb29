package elastic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
)

var _ producer.Sink = (*Store)(nil)

// Put stores a message that could not be published, and returns nil once Elasticsearch
// has acknowledged it. Messages that are put at the same time are sent together, and
// each Put returns the result of its own. While letters of Config.Bytes are on their
// way, Put waits. The Delay of a message runs on here: Replay publishes the message
// with the rest of the Delay.
//
// While Elasticsearch answers 429 or 503 all letters wait for the same pause, and then are
// sent again, until ctx ends. Any other refusal is an error with the status and
// the words of Elasticsearch, and the next sink of the Producer is asked. If it is not known
// whether the message was stored, the error matches [producer.ErrUnconfirmed].
func (s *Store) Put(ctx context.Context, m producer.Message, cause error) error {
	if resend.IsFrom(ctx, s) {
		return fmt.Errorf("elastic: %w", resend.ErrOwn)
	}
	err := s.put(ctx, letter.Unpublished(m, cause, s.now()))
	if err == nil {
		resend.Took(ctx, s, m.ID)
	}
	return err
}

// Collect stores a dead letter. It is a handler for the consumer of a dead-letter
// queue, which acks the letter once Elasticsearch has acknowledged it.
//
//	consumer.New(conn, orders.DeadLetterQueue(), letters.Collect, consumer.Config{Concurrency: 50})
//
// A letter that is delivered twice is stored once, unless it has no message id. While
// Elasticsearch does not take the letter, the consumer holds it and tries again, as
// with [consumer.Hold]. A letter that Elasticsearch refuses by itself, because
// it is too large or does not fit the mapping, goes to Config.Refused; if that is nil,
// the letter is held too, and keeps its place among the Concurrency of the consumer
// until somebody mends the index.
func (s *Store) Collect(ctx context.Context, d *consumer.Delivery) error {
	err := s.put(ctx, letter.Dead(d, s.now()))
	switch {
	case err == nil:
		return nil
	case s.cfg.Refused != nil && refusedAlone(err):
		s.bulk.again.Warn("elastic: a letter was refused and goes to Config.Refused", err, "message", d.ID)
		return s.cfg.Refused(ctx, d)
	}
	return consumer.Hold(err)
}

// refusedAlone reports whether an error is about one letter, and others may be taken.
func refusedAlone(err error) bool {
	var answered *responseError
	if errors.As(err, &answered) {
		return answered.Status == http.StatusBadRequest || answered.Status == http.StatusRequestEntityTooLarge
	}
	return rehop.ClassOf(err) == rehop.ClassBug
}

func (s *Store) put(ctx context.Context, l letter.Letter) error {
	id := letter.Identity(l.Message, l.Queue)
	lines, err := indexLines(s.cfg.Index, id, l)
	if err != nil {
		return rehop.WithClass(fmt.Errorf("elastic: message %q: %w", l.Message.ID, err), rehop.ClassBug)
	}
	renew := func(now time.Time) []byte {
		l.Stored = now
		renewed, err := indexLines(s.cfg.Index, id, l)
		if err != nil {
			return lines // it was encoded once
		}
		return renewed
	}
	if err := s.write(ctx, &action{id: id, lines: lines, renew: renew, made: l.Stored}); err != nil {
		return fmt.Errorf("elastic: storing message %q: %w", l.Message.ID, err)
	}
	return nil
}

// write sends an action until it is answered with something else than that there
// is no room. The error matches producer.ErrUnconfirmed if any try may have done it.
func (s *Store) write(ctx context.Context, a *action) error {
	maybe := false
	var last error
	for {
		err := s.bulk.do(ctx, a)
		if err == nil {
			return nil
		}
		maybe = maybe || doubtful(err) && !errors.Is(err, errNotSent)
		var answered *responseError
		if errors.As(err, &answered) && answered.passes() && ctx.Err() == nil {
			last = err
			continue
		}
		if last != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w; last answer: %w", err, last)
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
		return fmt.Errorf("%w; last answer: %w", pause.Ended(ctx), last)
	}
}
