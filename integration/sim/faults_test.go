package sim

import (
	"context"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// breakLater makes one fault come and go.
func (w *trial) breakLater(ctx context.Context, f fault, operator *connection.Conn) {
	if !sleep(ctx, time.Until(w.began.Add(f.at))) {
		return
	}
	from := time.Now()
	lift := w.breakNow(f, operator)
	sleep(ctx, f.lasts)
	lift()
	w.troubled(f.String(), from, time.Now())
}

// breakNow makes a fault begin, and returns what ends it.
func (w *trial) breakNow(f fault, operator *connection.Conn) (lift func()) {
	b := w.broker
	switch f.kind {
	case cut:
		b.Cut(f.target)
	case disconnect:
		b.Disconnect(f.target, "an operator wants it")
	case halfOpen:
		w.network(f.target).halfOpen()
	case reset:
		w.network(f.target).reset()
	case blackHole:
		return w.network(f.target).blackHole()
	case stall:
		w.stands(stall, b.Stall)
		return func() { w.lifts(stall, b.Resume) }
	case kill:
		w.stands(kill, func() { b.Kill() })
		return func() { w.lifts(kill, b.Start) }
	case stop:
		w.stands(kill, b.Stop)
		return func() { w.lifts(kill, b.Start) }
	case block:
		w.stands(block, func() { b.Block("memory") })
		return func() { w.lifts(block, b.Unblock) }
	case refuse:
		var queues []string
		for _, q := range b.Queues() {
			if w.hits(f, q) {
				queues = append(queues, q)
			}
		}
		for _, q := range queues {
			w.stands(kind("refuse "+q), func() { b.Refuse(q, true) })
		}
		return func() {
			for _, q := range queues {
				w.lifts(kind("refuse "+q), func() { b.Refuse(q, false) })
			}
		}
	case slow:
		w.slower(f.amount, 1)
		return func() { w.slower(f.amount, -1) }
	case deleteQueue:
		from := time.Now()
		for _, q := range b.Queues() {
			if w.hits(f, q) {
				for _, m := range b.DeleteQueue(q) {
					w.ends(q, m)
				}
			}
		}
		return func() { w.restore(f, from, operator) }
	case pause:
		return w.pause(f.target)
	case sigkill:
		w.kill(f.target)
	case ungroup:
		for _, q := range b.Queues() {
			if strings.HasPrefix(q, work+".members.") || strings.HasPrefix(q, work+".seat.") {
				b.DeleteQueue(q)
			}
		}
	case deleteX:
		from := time.Now()
		b.DeleteExchange(w.base(f.shard) + f.target)
		return func() { w.restore(f, from, operator) }
	}
	return func() {}
}

// restore declares what was deleted again, or leaves that to consumers.
func (w *trial) restore(f fault, from time.Time, operator *connection.Conn) {
	if !f.ours || !w.isBack(w.base(f.shard)+f.target, operator) {
		w.declare(operator)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = append(w.away, absence{f, from, time.Now()})
}

// isBack waits until consumers have put an exchange back.
func (w *trial) isBack(name string, operator *connection.Conn) bool {
	for !w.exists(name, operator) {
		if time.Since(w.began) > w.faultsEnd()+w.patience() {
			w.violate("consumers have not put back the exchange %s", name)
			return false
		}
		time.Sleep(5 * time.Second)
	}
	return true
}

func (w *trial) exists(name string, operator *connection.Conn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	session, err := operator.Session(ctx, connection.Consume)
	if err != nil {
		return false
	}
	defer session.Close()
	return session.Do(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, "direct", true, false, false, false, nil)
	}) == nil
}

// stands begins a fault unless one of its kind stands.
func (w *trial) stands(k kind, begin func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.standing[k]++; w.standing[k] == 1 {
		begin()
	}
}

// lifts ends it when the last of its kind ends.
func (w *trial) lifts(k kind, end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.standing[k]--; w.standing[k] == 0 {
		end()
	}
}

// slower changes what the broker adds to every answer.
func (w *trial) slower(by time.Duration, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slowness[0] += by * time.Duration(n)
	w.broker.Slow(w.slowness[0])
}
