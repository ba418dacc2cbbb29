package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/confirm"
)

// PublishAll publishes messages together, which costs less than a call of
// Publish for each. They are written in their order; a message that has to be tried
// again may arrive after the messages behind it.
//
// Each message is published as by Publish. receipts[i] is the receipt of messages[i];
// if its Place is 0, the message is not known to be safe, and its Err is the error that
// Publish would have returned. The error of PublishAll joins these errors, and is nil
// if all messages are safe. Config.Timeout counts for each message from its turn to be
// written.
//
// If any message is faulty in itself (see [Message.Validate]), none is sent, there
// are no receipts, and the error holds all faults of all messages. There are no receipts
// either if ctx is nil or the Producer is closed. A message whose Delay leads nowhere on
// this Conn gets a receipt with that error, and all other messages are sent.
func (p *Producer) PublishAll(ctx context.Context, messages []Message) (receipts []Receipt, err error) {
	if ctx == nil {
		return nil, errNoContext
	}
	b := &batch{
		producer: p,
		ctx:      ctx,
		answered: make(chan int, len(messages)),
		messages: make([]Message, len(messages)), // the caller's own stay as they are
		sendings: make([]confirm.Message, len(messages)),
		receipts: make([]Receipt, len(messages)),
	}
	if p.trace.Publishing != nil {
		b.ctxs = make([]context.Context, len(messages))
	}
	if p.trace.Published != nil {
		b.ended = make([]time.Time, len(messages))
	}
	pointers := make([]*confirm.Message, 0, len(messages))
	var faults []error
	for i, m := range messages {
		p.complete(&m)
		of, began := p.trace.publishing(ctx, &m)
		if i == 0 {
			b.began = began
		}
		if b.ctxs != nil {
			b.ctxs[i] = of
		}
		err := p.fill(of, &b.sendings[i], &m)
		b.messages[i] = m
		b.sendings[i].Report, b.sendings[i].Number = b, i
		switch {
		case err == nil:
			pointers = append(pointers, &b.sendings[i])
		case errors.As(err, new(*delayError)):
			b.receipts[i] = Receipt{ID: m.ID, Err: err}
		default:
			faults = append(faults, prefixed(i, err)...)
		}
	}
	err = rehop.WithClass(errors.Join(faults...), rehop.ClassBug)
	if err == nil && !p.window.enter(len(messages)) {
		err = fmt.Errorf("producer: %w", errClosed)
	}
	if err != nil {
		for i := range b.messages {
			b.receipts[i] = Receipt{ID: b.messages[i].ID, Err: err}
			b.published(i)
		}
		return nil, err
	}
	for i := range b.receipts {
		if b.receipts[i].Err != nil {
			b.end(i, false)
		}
	}
	if len(p.ordered) > 0 {
		pointers = b.withoutKept(pointers)
	}
	if len(pointers) > 0 {
		defer context.AfterFunc(ctx, p.publisher.CutOff)()
		p.publisher.Send(ctx, pointers...)
	}
	for range pointers {
		i := <-b.answered
		b.end(i, b.receipts[i].Place != "")
	}
	var errs []error
	for _, r := range b.receipts {
		if r.Place == "" {
			errs = append(errs, r.Err)
		}
	}
	return b.receipts, errors.Join(errs...)
}

// withoutKept gives messages to the sinks that keep them behind others, and returns
// the rest.
func (b *batch) withoutKept(all []*confirm.Message) (rest []*confirm.Message) {
	for _, sending := range all {
		i := sending.Number
		receipt, kept := b.producer.putBehind(b.of(i), &b.messages[i])
		if !kept {
			rest = append(rest, sending)
			continue
		}
		b.receipts[i] = receipt
		b.end(i, false)
	}
	return rest
}

// batch is a call of PublishAll.
type batch struct {
	producer *Producer
	ctx      context.Context
	ctxs     []context.Context // of each message; nil without a hook Publishing
	messages []Message
	sendings []confirm.Message
	receipts []Receipt
	began    time.Time
	ended    []time.Time // when each message had its receipt; nil without a hook Published
	answered chan int    // the numbers of messages that have their receipts; has room for all
}

// Answered implements confirm.Reporter.
func (b *batch) Answered(messages []*confirm.Message) {
	confirmed := 0
	for _, s := range messages {
		if s.Err == nil {
			confirmed++
		}
	}
	b.producer.window.safe(confirmed)
	for _, s := range messages {
		i := s.Number
		if s.Err == nil {
			b.receipts[i] = Receipt{ID: b.messages[i].ID, Place: PlaceQueue, MaybeDuplicate: s.Repeated}
			b.answer(i)
			continue
		}
		b.producer.failing.run(b.of(i), func() { b.finishFailed(i, s.Err) })
	}
}

// finishFailed is called for a message whose first try has failed, as in asyncMessage.
func (b *batch) finishFailed(i int, err error) {
	s := &b.sendings[i]
	maybeDuplicate := s.Repeated
	b.receipts[i] = endedReceipt(b.messages[i].ID, err)
	defer func() {
		if b.receipts[i].Place != "" {
			b.producer.window.safe(1)
		}
		b.answer(i)
	}()
	if ctx := b.of(i); b.producer.worthAnother(ctx, s, err) {
		maybeDuplicate, err = b.producer.again(ctx, &b.messages[i], s, err)
	}
	b.receipts[i] = b.producer.receipt(b.of(i), &b.messages[i], maybeDuplicate, err)
}

// answer hands a message with its receipt to PublishAll. The hook of a message may publish:
// on the goroutine that brings the answers it would wait for itself.
func (b *batch) answer(i int) {
	if b.ended != nil {
		b.ended[i] = time.Now()
	}
	b.answered <- i
}

// of returns the ctx of a message.
func (b *batch) of(i int) context.Context {
	if b.ctxs == nil {
		return b.ctx
	}
	return b.ctxs[i]
}

// end counts a message that has its receipt; safe says that the window knows it as safe.
func (b *batch) end(i int, safe bool) {
	b.published(i)
	b.producer.window.leave(safe)
}

func (b *batch) published(i int) {
	took := time.Since(b.began)
	if b.ended != nil && !b.ended[i].IsZero() {
		took = b.ended[i].Sub(b.began)
	}
	b.producer.trace.published(b.of(i), &b.messages[i], b.receipts[i], took)
}
