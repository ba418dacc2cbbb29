package carry

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

var rounds = flag.Int("rounds", 2, "how often processes start together")

// fellow is one of several that start at the same time.
type fellow struct {
	conn *connection.Conn
	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	lost []error // why sockets were lost
}

// tally counts how often messages were handled to their end.
type tally struct {
	mu   sync.Mutex
	ends map[string]int
}

func (c *tally) note(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends[id]++
}

func (c *tally) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ends)
}

// twice returns the messages that were handled to their end more than once.
func (c *tally) twice() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.ends)) {
		if c.ends[id] > 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

var errOnPurpose = errors.New("on purpose")

// startFellow declares a work queue and consumes from it, and from a queue beside it
// that has nothing to do with that.
func startFellow(t *testing.T, b *broker.Broker, w, beside topology.WorkQueue, handled *tally) *fellow {
	p := &fellow{}
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{b.AMQPURL()}, Traces: []connection.Trace{{
		State: func(s connection.State) {
			if s.Status == connection.Down {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.lost = append(p.lost, s.Err)
			}
		}}}})
	if err != nil {
		t.Error(err)
		return nil
	}
	p.conn = conn
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	p.stop = stop
	run := func(q topology.WorkQueue, h consumer.Handler) {
		p.done.Go(func() {
			c, err := consumer.New(conn, q, h, consumer.Config{Concurrency: 4})
			if err == nil {
				err = c.Run(ctx)
			}
			if err != nil {
				t.Errorf("%s: %v", q.Name, err)
			}
		})
	}
	run(beside, func(_ context.Context, d *consumer.Delivery) error { handled.note(d.ID); return nil })
	if err := topology.Declare(t.Context(), conn, w); err != nil {
		t.Errorf("declare: %v", err)
	}
	run(w, func(_ context.Context, d *consumer.Delivery) error {
		if d.Attempt < 2 {
			return errOnPurpose
		}
		return consumer.DeadLetter(errOnPurpose)
	})
	return p
}

// end stops a process, and says what has become of its sockets.
func (p *fellow) end(t *testing.T) {
	if p == nil {
		return
	}
	p.mu.Lock()
	for _, err := range p.lost {
		t.Errorf("a socket was lost: %v", err)
	}
	p.lost = nil
	p.mu.Unlock()
	p.stop()
	p.done.Wait()
	if err := p.conn.Close(); err != nil {
		t.Error(err)
	}
}

func startAll(t *testing.T, b *broker.Broker, w, beside topology.WorkQueue, handled *tally) []*fellow {
	all := make([]*fellow, 4)
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() { all[i] = startFellow(t, b, w, beside, handled) })
	}
	starting.Wait()
	return all
}

// Four processes declare a work queue at the same time and consume from it, and later
// others with another schedule take their places. Nothing is killed, so no socket is
// lost and no message or letter is there twice.
func TestProcessesThatStartTogether(t *testing.T) {
	const n = 40
	onEachVersion(t, func(t *testing.T, b *broker.Broker) {
		conn := open(t, b)
		publisher, err := producer.New(conn, producer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer publisher.Close()
		beside := topology.WorkQueue{Name: "beside", Type: topology.Quorum}
		if err := topology.Declare(t.Context(), conn, beside); err != nil {
			t.Fatal(err)
		}
		handled := &tally{ends: map[string]int{}}
		letters := &tally{ends: map[string]int{}}
		for round := range *rounds {
			w := topology.WorkQueue{Name: fmt.Sprintf("together.%d", round), Type: topology.Quorum, Engine: topology.EngineCarry, Waits: delay.Schedule{300 * time.Millisecond}}
			publish := func(key string, part int) {
				messages := make([]producer.Message, n)
				for i := range messages {
					messages[i] = producer.Message{RoutingKey: key, ID: fmt.Sprintf("%d.%d.%s.%d", round, part, key, i)}
				}
				if _, err := publisher.PublishAll(t.Context(), messages); err != nil {
					t.Fatal(err)
				}
			}
			publish(beside.Name, 1)
			old := startAll(t, b, w, beside, handled)
			publish(w.Name, 1)
			publish(beside.Name, 2)
			w.Waits = delay.Schedule{500 * time.Millisecond, 200 * time.Millisecond}
			fresh := startAll(t, b, w, beside, handled)
			publish(w.Name, 2)
			for _, p := range old {
				p.end(t)
			}
			publish(w.Name, 3)
			reader, err := consumer.New(conn, w.DeadLetterQueue(), func(_ context.Context, d *consumer.Delivery) error { letters.note(d.ID); return nil }, consumer.Config{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var reading sync.WaitGroup
			reading.Go(func() {
				if err := reader.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			poll.Until(t, 2*time.Minute, "all messages and letters", func() bool {
				return handled.count() == (round+1)*2*n && letters.count() == (round+1)*3*n
			})
			for _, p := range fresh {
				p.end(t)
			}
			stop()
			reading.Wait()
			if err := topology.DeleteAll(t.Context(), conn, w); err != nil {
				t.Fatal(err)
			}
		}
		if twice := handled.twice(); len(twice) > 0 {
			t.Errorf("%d messages beside were handled twice: %v", len(twice), twice)
		}
		if twice := letters.twice(); len(twice) > 0 {
			t.Errorf("%d letters are there twice: %v", len(twice), twice)
		}
		t.Logf("%d rounds: %d messages beside, %d letters", *rounds, handled.count(), letters.count())
	})
}
