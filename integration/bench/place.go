package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// place is a work queue of its own for one trial, with all its parts. Both
// sides work in the same wiring.
type place struct {
	conn *connection.Conn
	work topology.WorkQueue // zero with shards
	plan topology.Plan

	shards topology.Shards
}

// newPlace declares it. Its one wait is longer than any trial.
func (b *bench) newPlace(ctx context.Context, r row) (*place, error) {
	work := topology.WorkQueue{
		Name:   "rehop-bench-" + rand.Text(),
		Type:   r.queue,
		Engine: r.engine,
		Waits:  delay.Schedule{time.Hour},
	}
	p := &place{conn: b.conn, work: work}
	spec := topology.Spec(work)
	if r.shards > 0 {
		p.work, p.shards = topology.WorkQueue{}, topology.Shards{Name: work.Name, Count: r.shards, Type: r.queue, Waits: delay.Fixed(5*time.Second, 3), SingleActiveConsumer: true}
		spec = p.shards
	}
	var err error
	if p.plan, err = topology.DeclarePlan(ctx, b.conn, spec); err != nil {
		return nil, err
	}
	return p, nil
}

// remove deletes it, also after an interrupt.
func (p *place) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := p.conn.Session(ctx, connection.Consume)
	if err != nil {
		return
	}
	defer func() { _ = s.Close() }()
	// What cannot be deleted has the prefix of all of them.
	_ = s.Do(ctx, func(ch *amqp.Channel) error {
		for _, name := range p.plan.Queues() {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil {
				return err
			}
		}
		for _, name := range p.plan.Exchanges() {
			if err := ch.ExchangeDelete(name, false, false); err != nil {
				return err
			}
		}
		return nil
	})
}

// verify returns nil once the messages are where the row ends. Dead letters need
// a moment to get there. back is what judge says.
func (p *place) verify(ctx context.Context, at end, n int) (back int, err error) {
	s, err := p.conn.Session(ctx, connection.Consume)
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.Close() }()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		depths, err := p.depths(ctx, s)
		if err != nil {
			return 0, err
		}
		back, fault := judge(p.work, at, n, depths)
		if p.shards.Count > 0 {
			back, fault = p.judgeShards(depths)
		}
		if fault == nil {
			return back, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return 0, errors.Join(context.Cause(ctx), fault)
		}
	}
}

// depths returns how many messages each queue of the place has ready.
func (p *place) depths(ctx context.Context, s *connection.Session) (map[string]int, error) {
	depths := map[string]int{}
	err := s.Do(ctx, func(ch *amqp.Channel) error {
		for _, name := range p.plan.Queues() {
			state, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return err
			}
			depths[name] = state.Messages
		}
		return nil
	})
	return depths, err
}

// maxBack is how many settled messages may be back in the work queue. A quorum
// queue takes acks and nacks without answering, and some of those that precede
// the closing of the channel can be lost: in a few runs of a hundred, on either
// side, some dozens of messages come back. A client that does not settle cannot
// hide here: when its connection ends, all that it had come back.
const maxBack = 256

// judge returns how many settled messages are back in the work queue, or an
// error unless all n messages are where the row ends, or there.
func judge(w topology.WorkQueue, at end, n int, depths map[string]int) (back int, fault error) {
	work, wait := depths[w.Name], depths[route.WaitQueue(w.Name, 1)]
	others := -work - wait
	for _, depth := range depths {
		others += depth
	}
	ok := others == 0
	switch at {
	case inWorkQueue:
		ok = ok && work == n && wait == 0
	case consumed:
		ok = ok && work <= maxBack && wait == 0
		back = work
	case inFirstWait: // a lost nack leaves no message in the wait, a lost ack does
		ok = ok && work <= maxBack && wait <= n && work+wait >= n
		back = work
	}
	if !ok {
		return 0, fmt.Errorf("of %d messages %d are in the work queue, %d in its wait, %d elsewhere", n, work, wait, others)
	}
	return back, nil
}

// judgeShards returns how many settled messages are back in the shards, or an error unless all others
// are gone.
func (p *place) judgeShards(depths map[string]int) (back int, fault error) {
	others := 0
	for _, depth := range depths {
		others += depth
	}
	for _, q := range p.shards.WorkQueues() {
		back += depths[q.Name]
	}
	if others -= back; others > 0 || back > maxBack {
		return 0, fmt.Errorf("%d messages are in the shards, %d elsewhere", back, others)
	}
	return back, nil
}
