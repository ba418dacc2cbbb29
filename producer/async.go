package producer

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rehop/rehop/internal/confirm"
)

// PublishAsync publishes a message without waiting for its answer: for callers
// that keep many in flight. It returns once the message is written, and so waits
// while Config.Window and Config.WindowBytes leave no room.
//
// done is called exactly once, with what Publish would have returned, from
// another goroutine or from within PublishAsync. It may be nil if Flush or
// Config.Trace tell enough. It may publish, but not call Close. Most functions
// given to PublishAsync run one after another, so each must return soon; a panic in
// one is logged. The message's body and headers must not be changed before done is
// called.
//
// ctx bounds the waiting for room, the tries and the fallback, as in Publish.
func (p *Producer) PublishAsync(ctx context.Context, m Message, done func(Receipt, error)) {
	if ctx == nil {
		if done != nil {
			done(Receipt{ID: m.ID, Err: errNoContext}, errNoContext)
		}
		return
	}
	p.complete(&m)
	a := &asyncMessage{producer: p, ctx: ctx, m: m, done: done}
	a.began = p.hooks.publishing(ctx, &a.m)
	err := p.fill(&a.sending, &a.m)
	if err == nil && !p.enter() {
		err = fmt.Errorf("producer: message %q: %w", a.m.ID, errClosed)
	}
	if err != nil {
		a.call(Receipt{ID: a.m.ID, Err: err})
		return
	}
	if receipt, kept := p.putBehind(ctx, &a.m); kept {
		a.call(receipt)
		p.calls.Done()
		return
	}
	p.async.add()
	a.sending.Report = asyncReporter{}
	a.sending.Owner = a
	p.publisher.Send(ctx, &a.sending)
}

// Flush waits until every message of PublishAsync has its receipt. It returns an
// error only if ctx ends before.
func (p *Producer) Flush(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	select {
	case <-p.async.none():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("producer: %d messages have no receipt yet: %w", p.async.count(), context.Cause(ctx))
	}
}

// asyncMessage is a message of PublishAsync.
type asyncMessage struct {
	producer *Producer
	ctx      context.Context
	m        Message
	done     func(Receipt, error)
	began    time.Time
	sending  confirm.Message
}

// asyncReporter gets the answers. A message that was not confirmed gets a
// goroutine of its own, which sends it again or gives it to a fallback.
type asyncReporter struct{}

// Answered implements confirm.Reporter.
func (asyncReporter) Answered(messages []*confirm.Message) {
	var p *Producer
	for _, s := range messages {
		a := s.Owner.(*asyncMessage) // see PublishAsync
		if s.Err == nil {
			p = a.producer
			p.confirmed.add(a)
			continue
		}
		go a.finishFailed(s.Err) // counted in calls
	}
	if p != nil {
		p.confirmed.run(&p.calls)
	}
}

// confirmed are messages of PublishAsync whose done is to be called. A goroutine
// of its own calls them, while there are any: on the goroutine that brings the
// answers, a done that waits for room would wait for itself.
type confirmed struct {
	mu      sync.Mutex
	waiting []*asyncMessage
	running bool
}

func (c *confirmed) add(a *asyncMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, a)
}

// run starts the goroutine unless it runs, and counts it in calls. The messages
// that wait are counted too, so calls is not zero.
func (c *confirmed) run(calls *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running && len(c.waiting) > 0 {
		c.running = true
		calls.Go(c.finishAll)
	}
}

func (c *confirmed) finishAll() {
	for batch := c.take(); batch != nil; batch = c.take() {
		for _, a := range batch {
			a.finish(a.sending.Repeated, nil)
		}
	}
}

// take returns what waits, or nil at the end of the goroutine.
func (c *confirmed) take() []*asyncMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := c.waiting
	c.waiting = nil
	c.running = batch != nil
	return batch
}

// finishFailed sends a message again whose first try failed, if that can help, and
// finishes it.
func (a *asyncMessage) finishFailed(err error) {
	maybeDuplicate := a.sending.Repeated
	if a.producer.worthAnother(a.ctx, &a.sending, err) {
		maybeDuplicate, err = a.producer.again(a.ctx, &a.m, &a.sending, err)
	}
	a.finish(maybeDuplicate, err)
}

func (a *asyncMessage) finish(maybeDuplicate bool, err error) {
	p := a.producer
	defer p.calls.Done()
	defer p.async.remove()
	a.call(p.receipt(a.ctx, &a.m, maybeDuplicate, err))
}

// call hands the receipt to the Trace and to done.
func (a *asyncMessage) call(r Receipt) {
	p := a.producer
	p.hooks.published(a.ctx, &a.m, r, a.began)
	if a.done == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			p.cfg.Logger.Error("the function given to PublishAsync panicked", "message", r.ID, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	if r.Place == 0 {
		a.done(r, r.Err)
		return
	}
	a.done(r, nil)
}

// outstanding counts messages without a receipt.
type outstanding struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // nil, or closed when n is 0 again
}

func (o *outstanding) add() {
	o.mu.Lock()
	o.n++
	o.mu.Unlock()
}

func (o *outstanding) remove() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 && o.zero != nil {
		close(o.zero)
		o.zero = nil
	}
}

func (o *outstanding) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// none returns a channel that is closed when nothing is outstanding.
func (o *outstanding) none() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	zero := o.zero
	if zero == nil {
		zero = make(chan struct{})
		if o.n == 0 {
			close(zero)
			return zero
		}
		o.zero = zero
	}
	return zero
}
