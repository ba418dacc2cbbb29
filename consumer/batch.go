package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/topology"
)

// BatchHandler does the work for several messages at once, such as one transaction
// with a row for each of them. They all come from one queue. ctx ends as the ctx of a
// [Handler] does; Config.HandlerTimeout is one bound for the whole batch.
//
// [Delivery.Fail] gives a message an error of its own, which decides about that message and
// about no other. The error that the handler returns is about the messages without one: nil
// acks them, and an error of [Hold], [HoldFor], [Snooze] or [RetryAfter] is the outcome of
// each.
//
// Other errors do not tell which message of a call with several is at fault: a plain error, a
// panic, an error of [DeadLetter] or [Discard], and one of RetryAfter that would dead-letter
// one of the messages. The consumer then settles the messages that have an error of their own,
// and calls the handler again with each half of the others, and with each half of a part that
// fails, until the messages at fault are alone in a call, and the error is theirs. It makes at
// most 2*log2(n)+1 calls for n messages, with the logarithm rounded up: 15 calls for 100
// messages. They are enough to find one message. The messages of parts that still fail
// after the last call have failed their attempt, whatever the outcome of the error is. So
// have all messages that such an error is about if the ctx of the batch has ended.
//
// So a BatchHandler that returns such an error must have undone its work for every message
// without an error of its own, or be able to repeat that work without harm.
//
// Where a failed attempt would make a message of the batch a dead letter, the number of calls
// has no bound but Config.HandlerTimeout: up to 2*n-1, until each message at fault is alone.
// A message on its last attempt that has failed before is handled alone from the start. So no
// message is dead-lettered for the fault of another, unless the ctx of the batch ends before,
// or the handler ends its goroutine. A message that may have crashed consumers is handled
// alone, too.
type BatchHandler func(ctx context.Context, batch []*Delivery) error

// Batch says how many messages a [BatchHandler] gets.
type Batch struct {
	// Size is the largest number of messages in a batch, 1 to 10,000. Size times
	// (Config.Concurrency+1) is at most 65,535. Defaults to 100.
	Size int

	// Linger is how long the first message of a batch waits for others. Up to 1 min.
	// With 0, the default, it does not wait: a free handler takes the messages that are
	// there, so batches grow while handlers are at work. A lower lane of topology.Lanes
	// may go ahead of a message that lingers. At a stop, messages that linger go back
	// to the queue at once.
	Linger time.Duration

	// MaxBytes bounds the sum of the bodies of a batch. A larger message is a batch of
	// its own. Defaults to 16 MiB. The messages that the broker sends ahead are bounded
	// by Config.Prefetch alone.
	MaxBytes int
}

func (b Batch) withDefaults() Batch {
	b.Size = cmp.Or(b.Size, 100)
	b.MaxBytes = cmp.Or(b.MaxBytes, 16<<20)
	return b
}

const (
	maxBatch = 10_000

	// greatestPrefetch is what fits into a basic.qos.
	greatestPrefetch = 65_535
)

// NewBatch is [New] for a BatchHandler. Config.Concurrency says how many batches are handled
// at a time; LaneLimits.Concurrency counts batches too. A batch keeps its slot, and with
// Config.KeyLimit the keys of its messages, until all its messages are settled or given up;
// each of them is settled as soon as its outcome is known.
//
// Config.Prefetch defaults to (Concurrency+1) times Batch.Size, to Concurrency times
// Batch.Size on a queue with priorities. Config.KeyLimit raises the default to four times
// as much, but not above 10,000. The prefetch does not follow the handlers, and must not
// be less than Batch.Size. At most Concurrency times Batch.Size messages are with
// handlers or wait for the confirm of a copy. With Config.KeyLimit a batch has at most
// KeyLimit messages of one key. In an outage, see [Outage], the consumer tries one
// message at a time, either as a batch of its own or one that it holds.
// Config.RetryInPlace is refused.
//
// The hooks of Config.Traces run for each message. Wrappers of a Handler do not fit a
// BatchHandler: use [JSONBatch], [DecodeBatch] and [ClassifyBatch] instead.
// [github.com/rehop/rehop/store.Store.OnceBatch] makes a BatchHandler of any Handler.
func NewBatch(conn *connection.Conn, source topology.Source, handler BatchHandler, batch Batch, cfg Config) (*Consumer, error) {
	c := &Consumer{conn: conn, batch: handler}
	var errs []error
	if handler == nil {
		errs = append(errs, errors.New("consumer: handler is nil"))
	}
	batch = batch.withDefaults()
	return c.configure(source, settings{cfg, batch}, append(errs, batch.validate(cfg))...)
}

// validate returns what is wrong with a Batch, and with the fields of a Config for a
// BatchHandler.
func (b Batch) validate(c Config) error {
	var errs []error
	concurrency := cmp.Or(c.Concurrency, 1)
	switch {
	case b.Size < 1 || b.Size > maxBatch:
		errs = append(errs, fmt.Errorf("consumer: Batch.Size is %d, want 1 to %d, or 0 for 100", b.Size, maxBatch))
	case c.Prefetch > 0 && c.Prefetch < b.Size:
		errs = append(errs, fmt.Errorf("consumer: Config.Prefetch is %d, want at least Batch.Size, which is %d, or 0: no batch would be full", c.Prefetch, b.Size))
	case (concurrency+1)*b.Size > greatestPrefetch:
		errs = append(errs, fmt.Errorf("consumer: Config.Concurrency is %d and Batch.Size %d, want at most %d for Size times one more than Concurrency: the broker sends no more ahead", concurrency, b.Size, greatestPrefetch))
	}
	if b.Linger < 0 || b.Linger > durations.MaxLinger {
		errs = append(errs, fmt.Errorf("consumer: Batch.Linger is %v, want 0 to %v", b.Linger, durations.MaxLinger))
	}
	if b.MaxBytes < 1 {
		errs = append(errs, fmt.Errorf("consumer: Batch.MaxBytes is %d, want 1 or more, or 0 for 16 MiB", b.MaxBytes))
	}
	if c.RetryInPlace {
		errs = append(errs, errors.New("consumer: Config.RetryInPlace is not for batches: one message that failed would keep the slot of all"))
	}
	return errors.Join(errs...)
}

// size returns how many messages a worker has at most.
func (b Batch) size() int { return max(b.Size, 1) }

// goesAlone reports whether a message is handled in no batch with others, because it would be
// dead-lettered for the fault of another.
func (s *session) goesAlone(raw amqp.Delivery) bool {
	if !header.IsCopy(raw.Headers) && raw.Headers[header.Death] == nil {
		return false // most messages, and all that come for the first time
	}
	var d Delivery
	_ = d.read(&s.terms.route, raw) // a worker logs what is malformed
	return d.Attempt > 1 && d.LastAttempt
}
