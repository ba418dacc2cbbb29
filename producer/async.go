package producer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
)

// PublishAsync publishes a message without waiting for its answer: for callers
// that keep many in flight. It returns once the message is written, and so waits
// while Config.Window and Config.WindowBytes leave no room.
//
// done is called exactly once, with the results that Publish would have returned, from
// another goroutine or from within PublishAsync. If it is nil, a message that is not known
// to be safe is logged as an error, and Flush and Shutdown tell of it. done may publish, but not call Flush, Shutdown or Close,
// which wait for it. The functions given to PublishAsync run one after another, so each
// must return soon. A message whose function has not run yet takes no room in the
// window any more. A panic in a function is logged. The message's body and headers must
// not be changed before done is called.
//
// A message that is sent again, or given to the Fallback, keeps its room until it has
// its receipt. So PublishAsync waits in an outage as it does for confirms.
//
// ctx bounds the waiting for room, the tries and the fallback, as in Publish.
func (p *Producer) PublishAsync(ctx context.Context, m Message, done func(Receipt, error)) {
	if ctx == nil {
		if done == nil {
			p.untold.note(errNoContext)
			return
		}
		done(Receipt{ID: m.ID, Err: errNoContext}, errNoContext)
		return
	}
	p.complete(&m)
	a := &asyncMessage{producer: p, m: m, done: done}
	ctx, a.began = p.trace.publishing(ctx, &a.m)
	a.ctx = ctx
	err := p.fill(ctx, &a.sending, &a.m)
	var entered, slot bool
	if err == nil {
		if entered, slot = p.window.enterAsync(a.sending.Size); !entered {
			err = fmt.Errorf("producer: message %q: %w", a.m.ID, errClosed)
		}
	}
	if err != nil {
		a.call(Receipt{ID: a.m.ID, Err: err})
		return
	}
	a.slot = slot
	if receipt, kept := p.putBehind(ctx, &a.m); kept {
		a.decide(receipt)
		a.end()
		return
	}
	if !slot {
		a.sending.Begin()
		if err := p.window.await(ctx, &a.sending); err != nil {
			a.decide(p.receipt(ctx, &a.m, false, err))
			a.end()
			return
		}
		a.slot = true
	}
	a.sending.Report = asyncReporter{}
	a.sending.Owner = a
	p.publisher.Send(ctx, &a.sending)
}

// Flush waits until no message of PublishAsync is without a receipt and the functions of all
// of them have returned. This includes messages that other goroutines publish meanwhile, so
// with a steady stream it may wait until ctx ends.
//
// Flush returns an error if ctx ends first, and if messages without a function are not known
// to be safe: it says how many, and wraps the error of the first one. Each message is told of
// once, by the first call of Flush or Shutdown that returns after its receipt.
func (p *Producer) Flush(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	select {
	case <-p.window.flushed():
		return p.untold.tell()
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("producer: %d messages have no receipt yet: %w", p.window.unflushed(), pause.Ended(ctx)), p.untold.tell())
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
	slot     bool // it has one of the window
	receipt  Receipt
}

// asyncReporter gets the answers. The slots of confirmed messages are free at once.
// A message that was not confirmed keeps its own while it is sent again or given to
// a fallback.
type asyncReporter struct{}

// Answered implements confirm.Reporter.
func (asyncReporter) Answered(messages []*confirm.Message) {
	p := messages[0].Owner.(*asyncMessage).producer // see PublishAsync
	slots, bytes := 0, 0
	for _, s := range messages {
		if s.Err == nil {
			slots++
			bytes += s.Size
		}
	}
	if slots > 0 {
		p.window.safe(slots)
	}
	for _, s := range messages {
		a := s.Owner.(*asyncMessage)
		if s.Err == nil {
			a.decided(Receipt{ID: a.m.ID, Place: PlaceQueue, MaybeDuplicate: s.Repeated})
			p.decided.add(a)
			continue
		}
		p.failing.run(a.ctx, func() { a.finishFailed(s.Err) })
	}
	if slots > 0 {
		p.window.release(slots, bytes)
		p.decided.run()
	}
}

// decided are messages of PublishAsync that have their receipts, and whose functions
// are to be called. A goroutine of its own calls them, while there are any: on the
// goroutine that brings the answers, a function that waits for room would wait for
// itself.
type decided struct {
	mu      sync.Mutex
	waiting []*asyncMessage
	running bool
}

func (d *decided) add(a *asyncMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, a)
}

// run starts the goroutine unless it runs. The window counts the messages that wait.
func (d *decided) run() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running && len(d.waiting) > 0 {
		d.running = true
		go d.endAll() // ends with the messages that wait
	}
}

func (d *decided) endAll() {
	for batch := d.take(); batch != nil; batch = d.take() {
		for _, a := range batch {
			a.end()
		}
	}
}

// take returns the messages that wait, or nil at the end of the goroutine.
func (d *decided) take() []*asyncMessage {
	d.mu.Lock()
	defer d.mu.Unlock()
	batch := d.waiting
	d.waiting = nil
	d.running = batch != nil
	return batch
}

// finishFailed sends a message again whose first try failed, if that can help, and
// finishes it.
func (a *asyncMessage) finishFailed(err error) {
	p, receipt := a.producer, endedReceipt(a.m.ID, err)
	defer func() {
		a.decide(receipt)
		p.decided.add(a)
		p.decided.run()
	}()
	maybeDuplicate := a.sending.Repeated
	if p.worthAnother(a.ctx, &a.sending, err) {
		maybeDuplicate, err = p.again(a.ctx, &a.m, &a.sending, err)
	}
	receipt = p.receipt(a.ctx, &a.m, maybeDuplicate, err)
}

// decide notes the receipt, and gives the slot back.
func (a *asyncMessage) decide(r Receipt) {
	slot, size := a.slot, a.sending.Size
	a.decided(r)
	if r.Place != "" {
		a.producer.window.safe(1)
	}
	if slot {
		a.producer.window.release(1, size)
	}
}

// decided notes the receipt, and forgets the message unless a hook wants it.
func (a *asyncMessage) decided(r Receipt) {
	a.receipt, a.slot = r, false
	a.sending = confirm.Message{}
	if a.producer.trace.Published == nil {
		a.m = Message{ID: r.ID}
	}
}

// end tells of the receipt.
func (a *asyncMessage) end() {
	defer a.producer.window.leaveAsync(a.receipt.Place != "")
	a.call(a.receipt)
}

// call hands the receipt to the Traces and to done.
func (a *asyncMessage) call(r Receipt) {
	p := a.producer
	p.trace.published(a.ctx, &a.m, r, time.Since(a.began))
	if a.done == nil {
		if r.Place == "" {
			p.untold.note(r.Err)
			p.repeats.Error("message of PublishAsync is not known to be safe", r.Err, "message", r.ID)
		}
		return
	}
	defer func() {
		if v := recover(); v != nil {
			p.cfg.Logger.Error("the function given to PublishAsync panicked", "message", r.ID, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	if r.Place == "" {
		a.done(r, r.Err)
		return
	}
	a.done(r, nil)
}
