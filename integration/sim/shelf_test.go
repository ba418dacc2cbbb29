package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/producer"
)

// shelfPlan is a queue of a shop's own with room for a few notes: the broker refuses the
// others. Its zero value is none.
type shelfPlan struct {
	room, notes int
	at          time.Duration
}

const shelves = "shelf of "

// shelve publishes the notes of a shop, all at once, until each is on the shelf, and
// clears the shelf after each try. What was said to be there must be.
func (s *shop) shelve(ctx context.Context) {
	plan := s.plan.shelf
	if plan.room == 0 || !sleep(ctx, time.Until(s.began.Add(plan.at))) {
		return
	}
	queue := shelves + s.name
	for s.putUp(ctx, queue) != nil {
		if !sleep(ctx, time.Second) {
			return
		}
	}
	p := s.open(producer.Config{Window: s.plan.window, Timeout: s.plan.timeout, Traces: hooksOf[producer.Trace](s.trial.plan)})
	defer s.within("Close of the Producer of the "+queue, closingProducer, func() { _ = p.Close() })
	var open []producer.Message
	for i := range plan.notes {
		open = append(open, producer.Message{RoutingKey: queue, ID: fmt.Sprintf("note/%s/%d", s.name, i)})
	}
	for pause := 50 * time.Millisecond; len(open) > 0; pause = min(2*pause, time.Minute) {
		receipts, _ := p.PublishAll(ctx, open)
		there := s.clear()
		left := open[:0:0]
		for i, m := range open {
			switch {
			case receipts == nil || receipts[i].Err != nil:
				left = append(left, m)
			case !there(m.ID):
				s.violate("%s was said to be on the %s, and is not", m.ID, queue)
			}
		}
		s.putOn(len(open) - len(left))
		open = left
		if !sleep(ctx, pause) {
			return
		}
	}
}

// putUp declares a shelf.
func (s *shop) putUp(ctx context.Context, queue string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	session, err := s.conn.Session(ctx, connection.Consume)
	if err != nil {
		return err
	}
	defer session.Close()
	return session.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{
			"x-queue-type": string(s.kind), "x-max-length": int64(s.plan.shelf.room), "x-overflow": "reject-publish",
		})
		return err
	})
}

// clear takes the notes from the shelves, and returns whether one was ever there.
func (w *trial) clear() (there func(id string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.broker.Queues() {
		if !strings.HasPrefix(q, shelves) {
			continue
		}
		for _, m := range w.broker.Drain(q) {
			w.cleared[m.MessageId] = true
		}
	}
	return func(id string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.cleared[id]
	}
}

// putOn notes how many notes of a shop are on its shelf for certain.
func (w *trial) putOn(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onShelves += n
}

func (w *trial) shelved() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.onShelves
}

// notes is how many there are.
func (p plan) notes() (n int) {
	for _, q := range p.producers {
		n += q.shelf.notes
	}
	return n
}
