package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
)

// PublishAll publishes messages together, which costs less than a call of
// Publish for each. They are written in their order; one that has to be tried
// again may arrive after those behind it.
//
// Each message ends as with Publish, by itself: receipts[i] is that of
// messages[i], and if its Place is 0 the message is not known to be safe and
// its Err is what Publish would have returned. The error joins these; it is nil
// once all messages are safe. Config.Timeout counts for each message from its
// turn to be written.
//
// If any message is faulty, none is sent, there are no receipts, and the error
// holds all faults of all messages.
func (p *Producer) PublishAll(ctx context.Context, messages []Message) (receipts []Receipt, err error) {
	if ctx == nil {
		return nil, errNoContext
	}
	b := &batch{
		producer: p,
		ctx:      ctx,
		messages: make([]Message, len(messages)), // the caller's own stay as they are
		sendings: make([]confirm.Message, len(messages)),
		receipts: make([]Receipt, len(messages)),
	}
	pointers := make([]*confirm.Message, len(messages))
	var faults []error
	for i, m := range messages {
		p.complete(&m)
		if began := p.hooks.publishing(ctx, &m); i == 0 {
			b.began = began
		}
		if err := p.fill(&b.sendings[i], &m); err != nil {
			faults = append(faults, prefixed(i, err)...)
		}
		b.messages[i] = m
		b.sendings[i].Report, b.sendings[i].Number = b, i
		pointers[i] = &b.sendings[i]
	}
	err = connection.WithClass(errors.Join(faults...), connection.Bug)
	if err == nil && !p.enter() {
		err = fmt.Errorf("producer: %w", errClosed)
	}
	if err != nil {
		for i := range b.messages {
			p.hooks.published(ctx, &b.messages[i], Receipt{ID: b.messages[i].ID, Err: err}, b.began)
		}
		return nil, err
	}
	defer p.calls.Done()

	if len(p.ordered) > 0 {
		pointers = b.withoutKept(pointers)
	}
	b.open.Add(len(pointers))
	if len(pointers) > 0 {
		p.publisher.Send(ctx, pointers...)
	}
	b.open.Wait()
	var errs []error
	for _, r := range b.receipts {
		if r.Place == 0 {
			errs = append(errs, r.Err)
		}
	}
	return b.receipts, errors.Join(errs...)
}

// withoutKept gives messages to the sinks that keep them behind others, and returns
// the rest.
func (b *batch) withoutKept(all []*confirm.Message) (rest []*confirm.Message) {
	for i, sending := range all {
		receipt, kept := b.producer.putBehind(b.ctx, &b.messages[i])
		if !kept {
			rest = append(rest, sending)
			continue
		}
		b.receipts[i] = receipt
		b.producer.hooks.published(b.ctx, &b.messages[i], receipt, b.began)
	}
	return rest
}

// batch is a call of PublishAll.
type batch struct {
	producer *Producer
	ctx      context.Context
	messages []Message
	sendings []confirm.Message
	receipts []Receipt
	began    time.Time
	open     sync.WaitGroup // messages without a receipt
}

// Answered implements confirm.Reporter.
func (b *batch) Answered(messages []*confirm.Message) {
	for _, s := range messages {
		i := s.Number
		if s.Err == nil {
			b.finish(i, s.Repeated, nil)
			continue
		}
		go b.finishFailed(i, s.Err) // PublishAll waits for it
	}
}

// finishFailed is that of asyncMessage.
func (b *batch) finishFailed(i int, err error) {
	s := &b.sendings[i]
	maybeDuplicate := s.Repeated
	if b.producer.worthAnother(b.ctx, s, err) {
		maybeDuplicate, err = b.producer.again(b.ctx, &b.messages[i], s, err)
	}
	b.finish(i, maybeDuplicate, err)
}

func (b *batch) finish(i int, maybeDuplicate bool, err error) {
	defer b.open.Done()
	b.receipts[i] = b.producer.receipt(b.ctx, &b.messages[i], maybeDuplicate, err)
	b.producer.hooks.published(b.ctx, &b.messages[i], b.receipts[i], b.began)
}
