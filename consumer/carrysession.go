package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// lookForWaits is how often a consumer looks for a wait that a process with a
// longer schedule has added, and longestLook how rarely without waits of its own.
const (
	lookForWaits = 2 * time.Minute
	longestLook  = 30 * time.Minute
)

// carry starts a carrier for each wait that the consumers of a route carry, and
// returns what ends them. They end in their own time, see run.end: a confirm that
// one of them awaits holds up no session.
func (r *run) carry(found way) (end func()) {
	ctx, cancel := context.WithCancel(r.stop)
	start := func(wait route.Wait) {
		c := r.carrier(found.facts, wait)
		r.beside.Go(func() { c.run(ctx) })
	}
	for _, wait := range found.facts.Carry {
		start(wait)
	}
	switch w, ours := r.source.(topology.WorkQueue); {
	case ours && len(found.facts.Carry) > 0:
		r.beside.Go(func() { r.carryAdded(ctx, w, found.facts.Carry, start) })
	case ours && len(w.Waits) == 0:
		r.beside.Go(func() { r.carryFirst(ctx, w, start) })
	}
	return cancel
}

// carryFirst is carryAdded for a schedule without waits: whether those of other
// schedules are carried is known once the first of them exists. It looks ever more
// rarely, because nearly always there is none, and the broker logs each look.
func (r *run) carryFirst(ctx context.Context, w topology.WorkQueue, start func(route.Wait)) {
	for pause := lookForWaits; sleep(ctx, pause); pause = min(2*pause, longestLook) {
		if !r.exists(ctx, route.CarriedQueue(w.Name, 1, 1)) {
			continue
		}
		resolved, err := topology.Resolve(ctx, r.conn, w)
		if err != nil {
			r.report.again.Warn("cannot find out whether waits of other schedules are to be carried", err, "queue", r.queue)
			continue
		}
		if waits := wayOf(resolved).facts.Carry; len(waits) > 0 {
			for _, wait := range waits {
				start(wait)
			}
			r.carryAdded(ctx, w, waits, start)
			return
		}
	}
}

// carryAdded starts carriers for the waits of other schedules that are not known,
// at once and when they are added, until ctx ends. It asks for those queues alone:
// a question after a part that does not answer costs the socket.
func (r *run) carryAdded(ctx context.Context, w topology.WorkQueue, known []route.Wait, start func(route.Wait)) {
	started := map[string]bool{}
	for _, wait := range known {
		started[wait.Queue] = true
	}
	for more := true; more; more = sleep(ctx, lookForWaits) {
		for rung := 1; rung <= route.MaxRungs; rung++ {
			nth := 1
			for ; ctx.Err() == nil; nth++ {
				name := route.CarriedQueue(w.Name, rung, nth)
				if started[name] {
					continue
				}
				if !r.exists(ctx, name) {
					break
				}
				started[name] = true
				start(route.Wait{Queue: name, Rung: rung})
			}
			if nth == 1 {
				break // a schedule's waits are declared in order
			}
		}
	}
}

func (r *run) exists(ctx context.Context, queue string) bool {
	channel, err := r.conn.Session(ctx, connection.Consume)
	if err != nil {
		return false
	}
	err = channel.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	_ = channel.Close() // nothing is in flight on it
	return err == nil
}

func (r *run) carrier(facts route.Facts, wait route.Wait) *carrier {
	exchange, key := facts.Back(wait.Rung)
	limits := &timeouts{} // those of this queue, which may have its own
	b := &back{
		to: topology.Address{Exchange: exchange, Key: key}, wait: wait, within: r.cfg.CopyTimeout, report: r.report,
		open: func() *confirm.Publisher {
			return confirm.New(r.conn, confirm.Limits{Messages: carryPrefetch})
		},
	}
	tag := "rehop-" + r.host + "-carry"
	r.health.carried(wait.Queue, nil)
	return &carrier{
		queue: wait.Queue,
		wait:  wait.For,
		open: func(ctx context.Context, prefetch int) (waitSession, error) {
			return consumeWait(ctx, r.conn, wait.Queue, tag, prefetch, limits)
		},
		publish: b.publish,
		close:   b.close,
		hold:    limits.holdLimit,
		failed: func(err error) {
			r.report.again.Warn("what is due is not brought back to its queue", err, "queue", r.queue, "wait", wait.Queue)
		},
		trouble: func(err error) { r.health.carried(wait.Queue, err) },
	}
}

// back is where the messages of one wait go.
type back struct {
	to     topology.Address
	wait   route.Wait
	within time.Duration
	report reporter
	open   func() *confirm.Publisher

	publisher *confirm.Publisher // nil before the first message, and after a failure
}

// publish publishes messages, together, and hands over their answers, those that
// are found together at a time.
func (b *back) publish(ctx context.Context, messages []*waiting, user string, answered func([]answer)) {
	if b.publisher == nil {
		b.publisher = b.open()
	}
	batches := make(answers, len(messages))
	copies := make([]*confirm.Message, len(messages))
	for i, w := range messages {
		p := w.publishing(user)
		copies[i] = &confirm.Message{
			Exchange: b.to.Exchange, Key: b.to.Key, Publishing: p,
			Header: xdeath.HeaderSize(p), Timeout: b.within, Report: batches, Number: i,
		}
		b.report.due(b.carried(w))
	}
	b.publisher.Send(ctx, copies...)
	sound := true
	for left := len(messages); left > 0; {
		batch := <-batches
		left -= len(batch)
		for _, a := range batch {
			if a.err == nil {
				b.report.carried(b.carried(messages[a.index]))
			} else {
				sound = false
			}
		}
		answered(batch)
	}
	if !sound {
		b.close() // a channel that was refused by a queue can go on being refused (3.10)
	}
}

// answers has room for as many as there are messages.
type answers chan []answer

// answer is that to the message with this index.
type answer struct {
	index int
	err   error
}

// Answered implements confirm.Reporter.
func (as answers) Answered(messages []*confirm.Message) {
	batch := make([]answer, len(messages))
	for i, m := range messages {
		batch[i] = answer{index: m.Number, err: m.Err}
	}
	as <- batch
}

// close gives up what is not confirmed.
func (b *back) close() {
	if b.publisher != nil {
		_ = b.publisher.Close()
		b.publisher = nil
	}
}

func (b *back) carried(w *waiting) Carried {
	c := Carried{Queue: b.wait.Queue, Rung: b.wait.Rung, ID: w.raw.MessageId}
	if !w.due.IsZero() {
		c.Late = time.Since(w.due)
	}
	return c
}

// brokerWait is a waitSession at the broker.
type brokerWait struct {
	channel   *connection.Session
	queue     string
	messages  chan amqp.Delivery
	cancelled <-chan string
	limits    *timeouts
}

// consumeWait starts to consume a wait queue. Nothing waits for the broker's
// answer, which a queue without a leader does not give: that would end the socket
// under all others. A queue that does not exist ends the channel.
func consumeWait(ctx context.Context, conn *connection.Conn, queue, tag string, prefetch int, limits *timeouts) (waitSession, error) {
	channel, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return nil, err
	}
	b := &brokerWait{channel: channel, messages: make(chan amqp.Delivery, prefetch), queue: queue, limits: limits, cancelled: channel.Channel().NotifyCancel(make(chan string, 1))}
	var arriving <-chan amqp.Delivery
	err = channel.Do(ctx, func(ch *amqp.Channel) (err error) {
		if err = ch.Qos(prefetch, 0, false); err != nil {
			return err
		}
		arriving, err = ch.Consume(queue, tag, false, false, false, true, nil)
		return err
	})
	if err != nil {
		b.close()
		return nil, consumeError(queue, err)
	}
	go func() { // ends with the channel
		defer close(b.messages)
		for raw := range arriving {
			b.messages <- raw // there is room for all that can be unacked
		}
	}()
	return b, nil
}

func (b *brokerWait) deliveries() <-chan amqp.Delivery { return b.messages }
func (b *brokerWait) done() <-chan struct{}            { return b.channel.Done() }
func (b *brokerWait) ack(tag uint64, multiple bool) error {
	return b.channel.Channel().Ack(tag, multiple)
}
func (b *brokerWait) user() string { return b.channel.User() }

// close gives back what is not acked, in its order and to the head of the queue.
// A nack does not everywhere: it leads to the tail of a quorum queue without a
// delivery limit before 4.3, and would be delivered here again.
func (b *brokerWait) close() { _ = b.channel.Close() }

var errWaitCancelled = errors.New("it was deleted, is not available, or a message was held longer than its consumer timeout")

// mayBeGone reports whether an error may say that a wait queue was deleted.
func mayBeGone(err error) bool {
	var reason *amqp.Error
	return errors.Is(err, errWaitCancelled) || errors.As(err, &reason) && reason.Code == amqp.NotFound
}

// reason returns why the deliveries ended while the oldest message in hand had
// been there for held.
func (b *brokerWait) reason(held time.Duration) error {
	// The library puts the cancel in before it ends the deliveries, and closes
	// both when the channel is lost.
	select {
	case _, ok := <-b.cancelled:
		if ok && b.channel.Server().Version.AtLeast(4, 3) && b.limits.cancelled(held) {
			return b.timeoutError()
		} else if ok {
			return fmt.Errorf("consumer: the broker cancelled the consuming of wait queue %q: %w", b.queue, errWaitCancelled)
		}
	case <-b.channel.Done():
	}
	<-b.channel.Done()
	err := b.channel.Err()
	var reason *amqp.Error
	switch {
	case !errors.As(err, &reason):
		return fmt.Errorf("consumer: wait queue %q: %w", b.queue, err)
	case b.limits.closed(reason):
		return b.timeoutError()
	}
	return consumeError(b.queue, err)
}

func (b *brokerWait) timeoutError() error {
	return fmt.Errorf("consumer: a message of wait queue %q was held longer than the broker's consumer timeout of %v: messages are given back sooner from now on",
		b.queue, b.limits.limit().Round(time.Millisecond))
}
