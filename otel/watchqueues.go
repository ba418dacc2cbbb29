package otel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/topology"
)

// WatchQueues asks the broker how many messages and consumers the queues of specs have:
// work queues, waits and dead-letter queues. It asks at once and then every so often,
// 15 s if every is 0, until ctx ends. Then it returns nil. It returns an error for a
// faulty spec.
//
// A look is one passive declaration for each queue, on a channel of its own. All
// processes get the same numbers, so one process of a service is enough; if several
// watch, use max and not sum. A queue that does not exist has no numbers, and neither
// has one whose leader is too slow to answer the broker. A broker gives zeros for a queue whose
// leader is down. Messages that a consumer has in hand are
// not counted. After three looks that failed the numbers are
// gone until a look succeeds.
func (t *Telemetry) WatchQueues(ctx context.Context, conn *connection.Conn, every time.Duration, specs ...topology.Spec) error {
	if _, err := topology.NewPlan(newest, specs...); err != nil {
		return fmt.Errorf("otel: %w", err)
	}
	q := &queues{conn: conn, specs: specs}
	w := &t.watched
	show := func(found map[values]depth) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for v := range q.shown {
			delete(w.messages.series, v)
			delete(w.consumers.series, v)
		}
		for v, d := range found {
			w.messages.at(v[:]...).n = d.messages
			w.consumers.at(v[:]...).n = d.consumers
		}
		q.shown = found
	}
	t.watch(ctx, every, "queues", func(ctx context.Context) error {
		found, err := q.look(ctx)
		if err == nil {
			show(found)
		}
		return err
	}, func() { show(nil) })
	return nil
}

// newest is a version for plans that are only looked at.
var newest = connection.Version{Major: 4, Minor: 3}

// depth is what the broker says of a queue.
type depth struct{ messages, consumers int64 }

// queues are looked at together.
type queues struct {
	conn  *connection.Conn
	specs []topology.Spec
	shown map[values]depth // by the labels of QueueMessages
}

// look asks for all queues. A queue that does not exist costs the channel, and the
// next one gets another.
func (q *queues) look(ctx context.Context) (map[values]depth, error) {
	found := map[values]depth{}
	session, err := q.conn.Session(ctx, connection.Consume)
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }() // if that fails the socket is lost, and the next look says so
	plan, err := topology.NewPlan(session.Server().Version, q.specs...)
	if err != nil {
		plan, err = topology.NewPlan(newest, q.specs...) // for their names
	}
	if err != nil {
		return nil, err
	}
	parts, ended := partsOf(q.specs), false
	for _, name := range plan.Queues() {
		if ended {
			another, err := q.conn.Session(ctx, connection.Consume) // the broker has closed the one before
			if err != nil {
				return nil, err
			}
			session, ended = another, false
		}
		answer, err := ask.DepthOf(ctx, session, name)
		var refused *amqp.Error
		switch {
		case err == nil && answer.Unknown:
		case err == nil:
			found[values{name, parts.of(name)}] = depth{int64(answer.Ready), int64(answer.Consumers)}
		case errors.As(err, &refused) && refused.Code == amqp.NotFound:
			ended = true
		default:
			return nil, fmt.Errorf("queue %q: %w", name, err)
		}
	}
	return found, nil
}

// parts say what the queues of specs are for.
type parts struct {
	work    []string
	letters map[string]bool
}

func partsOf(specs []topology.Spec) parts {
	p := parts{letters: map[string]bool{}}
	add := func(w topology.WorkQueue) {
		p.work = append(p.work, w.Name)
		p.letters[w.DeadLetterQueue().Name] = true
	}
	for _, s := range specs {
		switch s := s.(type) {
		case topology.WorkQueue:
			add(s)
		case *topology.WorkQueue:
			add(*s)
		case interface{ WorkQueues() []topology.WorkQueue }: // Lanes and Shards, and pointers to them
			for _, w := range s.WorkQueues() {
				add(w)
			}
		case topology.DeadLetterQueue:
			p.letters[s.Name] = true
		case *topology.DeadLetterQueue:
			p.letters[s.Name] = true
		}
	}
	return p
}

func (p parts) of(queue string) string {
	for _, work := range p.work {
		switch {
		case queue == work:
			return "work"
		case strings.HasPrefix(queue, work+".wait."):
			return "wait"
		}
	}
	if p.letters[queue] {
		return "dead-letter"
	}
	return "other"
}
