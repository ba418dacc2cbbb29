package carry

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/topology"
)

// gap is the place between two steps of a carrier at which its process is killed.
type gap string

const (
	nowhere       gap = "nowhere"
	beforePublish gap = "with what is due in hand"
	beforeConfirm gap = "between publish and confirm"
	beforeAck     gap = "between confirm and ack"
)

// task is what a child does: consume the queue until it is killed, and stop for
// ever with the first message that has reached the gap on its way out of a wait.
type task struct {
	URL   string
	Queue topology.WorkQueue
	Gap   gap
}

// event is what a child says, one line of JSON each.
type event struct {
	Run     *run `json:",omitempty"`
	Carried int  // so far
	Gap     bool // it has been reached
}

// consumeUntilKilled is what the child does.
func consumeUntilKilled(t task) error {
	ctx := context.Background()
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{t.URL}})
	if err != nil {
		return err
	}
	due, carried := 0, 0
	c, err := consumer.New(conn, t.Queue, func(_ context.Context, d *consumer.Delivery) error {
		r := run{ID: d.ID, Attempt: d.Attempt, Began: time.Now(), End: time.Now()}
		child.Say(event{Run: &r})
		return outcome(d.Attempt, len(t.Queue.Waits)+1)
	}, consumer.Config{Concurrency: 50, Traces: []consumer.Trace{{
		Due: func(consumer.Carried) {
			// At the second one, the first has been published.
			if due++; t.Gap == beforePublish || t.Gap == beforeConfirm && due == 2 {
				child.Say(event{Gap: true})
				select {}
			}
		},
		Carried: func(consumer.Carried) {
			if carried++; t.Gap == beforeAck {
				child.Say(event{Gap: true})
				select {}
			}
			child.Say(event{Carried: carried})
		},
	}}})
	if err != nil {
		return err
	}
	return fmt.Errorf("Run ended: %w", c.Run(ctx))
}

// process is a child that runs.
type process struct {
	*child.Process
	atGap chan struct{}

	mu      sync.Mutex
	carried int
}

// startChild starts a child, whose runs go into the ledger.
func startChild(t *testing.T, job task, l *ledger) *process {
	t.Helper()
	p := &process{atGap: make(chan struct{})}
	reached := false
	p.Process = child.Start(t, job, func(_ *child.Process, e event) {
		if e.Run != nil {
			l.add(*e.Run)
		}
		if e.Carried > 0 {
			p.mu.Lock()
			p.carried = e.Carried
			p.mu.Unlock()
		}
		if e.Gap && !reached {
			reached = true
			close(p.atGap)
		}
	})
	return p
}

// has returns how many messages it has brought back.
func (p *process) has() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.carried
}

// kill kills it and waits for its end.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.Kill()
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}
