package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// The gaps of OnceBatch at which a child stops for ever, to be killed there.
const (
	gapBeforeCommit = "after the work, before the commit"
	gapBeforeAcks   = "after the commit, before the acks"
	gapAfterAcks    = "after the acks, before the hooks of all"
)

// gap is what a child tells when it has reached one.
type gap struct {
	Batch []string // the ids in hand
	Done  []string // those whose handler has done its work, in this run
}

// workOnceBatch is what a child does: it handles the messages of a queue in batches, each
// in a transaction, and stops for ever at a gap of its second full batch, or a later one. Of some messages
// the handler fails after its work.
func workOnceBatch(job task) error {
	ctx := context.Background()
	db, err := place{job.Dialect, job.Driver, job.Source}.connect()
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, db, job.Dialect, store.Config{})
	if err != nil {
		return err
	}
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{job.URL}})
	if err != nil {
		return err
	}
	// One batch at a time is handled, by one goroutine; another one settles.
	var now gap
	full := 0
	stopsAt := func(where string) bool { return job.Gap == where && full >= 2 && len(now.Batch) == batchKilled }
	var committed atomic.Pointer[gap] // the batch whose hooks are counted
	settled := 0
	work := effect(job.Dialect)
	handler := s.OnceBatch(func(ctx context.Context, d *consumer.Delivery) error {
		err := work(ctx, d)
		if err == nil && d.Attempt == 1 && strings.HasSuffix(d.ID, "7") {
			err = errors.New("the handler fails after its work")
		}
		if err == nil {
			now.Done = append(now.Done, d.ID)
		}
		if d.ID == now.Batch[len(now.Batch)-1] && stopsAt(gapBeforeCommit) {
			child.Say(now)
			select {}
		}
		return err
	})
	c, err := consumer.NewBatch(conn, onceQueue(job.Queue), func(ctx context.Context, batch []*consumer.Delivery) error {
		now = gap{}
		for _, d := range batch {
			now.Batch = append(now.Batch, d.ID)
		}
		if len(batch) == batchKilled {
			full++
		}
		err := handler(ctx, batch)
		if stopsAt(gapBeforeAcks) {
			child.Say(now)
			select {}
		}
		if stopsAt(gapAfterAcks) {
			of := now
			committed.CompareAndSwap(nil, &of)
		}
		return err
	}, consumer.Batch{Size: batchKilled, Linger: 100 * time.Millisecond}, consumer.Config{
		Traces: []consumer.Trace{{Settled: func(_ context.Context, s consumer.Settled) {
			of := committed.Load()
			if of == nil || !slices.Contains(of.Batch, s.Delivery.ID) {
				return
			}
			if settled++; settled == batchKilled/2 {
				child.Say(of)
				select {}
			}
		}}},
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// batchKilled is the size of the batches.
const batchKilled = 20

// TestOnceBatchKilledAtItsGaps: every message has its effect once, although processes are
// killed at each gap of a batch.
func TestOnceBatchKilledAtItsGaps(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		ctx := t.Context()
		b := theBroker(t, p.dialect)
		db := p.open(t)
		must(t, createEffects(ctx, db))
		s := p.store(t, store.Config{})
		name := fmt.Sprintf("once-batch-%d", queues.Add(1))
		w := onceQueue(name)
		conn := b.connect(t, connection.Config{})
		must(t, topology.Declare(ctx, conn, w))
		const messages = 600
		batch := make([]producer.Message, messages)
		for i := range batch {
			batch[i] = producer.Message{RoutingKey: name, ID: fmt.Sprintf("m-%06d", i)}
		}
		publisher := b.producer(t)
		_, err := publisher.PublishAll(ctx, batch)
		must(t, err)

		effectsOf := func(ids []string) (n int) {
			for _, id := range ids {
				var of int
				must(t, db.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM effects WHERE message = '%s'", id)).Scan(&of))
				n += of
			}
			return n
		}
		for range 2 {
			for _, where := range []string{gapBeforeCommit, gapBeforeAcks, gapAfterAcks} {
				job := p.task("once batch", b.AMQPURL())
				job.Queue, job.Gap = name, where
				var at gap
				c := child.Start(t, job, func(c *child.Process, told gap) {
					at = told
					c.Kill()
				})
				late := time.AfterFunc(time.Minute, c.Kill)
				must(t, c.Wait())
				if late.Stop(); len(at.Batch) != batchKilled {
					t.Fatalf("%s: the child was killed with %d messages in hand, want %d", where, len(at.Batch), batchKilled)
				}
				want := 0
				if where != gapBeforeCommit {
					want = len(at.Done)
				}
				if got := effectsOf(at.Done); got != want {
					t.Errorf("%s: a kill left %d effects of %d messages, want %d", where, got, len(at.Done), want)
				}
			}
		}

		c, err := consumer.NewBatch(conn, w, s.OnceBatch(effect(p.dialect)), consumer.Batch{Size: batchKilled}, consumer.Config{})
		must(t, err)
		running, stop := context.WithCancel(ctx)
		ran := make(chan error, 1)
		go func() { ran <- c.Run(running) }()
		ch := b.channel(t)
		poll.Until(t, time.Minute, "all have their effect, and the waits are empty", func() bool {
			left := 0
			for _, q := range append([]string{name}, waitsOf(name)...) {
				state, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
				must(t, err)
				left += state.Messages
			}
			_, n := effects(t, db)
			return left == 0 && n == messages
		})
		stop()
		must(t, <-ran) // what it had in hand is settled
		if all, n := effects(t, db); all != messages || n != messages {
			t.Errorf("%d effects of %d messages, want one of each of %d", all, n, messages)
		}
		if n := len(b.drain(t, name, 0)); n > 0 {
			t.Errorf("%d messages are left", n)
		}
		if letters := b.drain(t, w.DeadLetterQueue().Name, 0); len(letters) > 0 {
			t.Errorf("%d dead letters, want none: %v", len(letters), letters)
		}
	})
}
