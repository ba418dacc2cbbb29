package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop/internal/confirm"
)

// PublishAll publishes messages together, which costs less than a call of
// Publish for each. They are written in their order; one that has to be tried
// again may arrive after those behind it.
//
// Each message ends as with Publish, by itself: receipts[i] is that of
// messages[i], and if its Place is 0 the message is not known to be safe and
// its Err is what Publish would have returned. The error joins these; it is nil
// once all messages are safe. Config.Timeout counts anew for each
// Config.Window of messages.
//
// If any message is faulty, none is sent, there are no receipts, and the error
// holds all faults of all messages.
func (p *Producer) PublishAll(ctx context.Context, messages []Message) (receipts []Receipt, err error) {
	batch := make([]confirm.Message, len(messages))
	complete := make([]Message, len(messages)) // the caller's own stay as they are
	var faults []error
	for i, m := range messages {
		p.complete(&m)
		publishing, err := m.publishing()
		if err != nil {
			faults = append(faults, fmt.Errorf("producer: messages[%d]: %w", i, err))
		}
		complete[i] = m
		batch[i] = confirm.Message{Exchange: m.Exchange, Key: m.Key, Publishing: publishing}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if !p.enter() {
		return nil, fmt.Errorf("producer: %w", errClosed)
	}
	defer p.calls.Done()

	receipts = make([]Receipt, len(messages))
	for next := 0; next < len(batch); {
		next += p.publishSome(ctx, complete[next:], batch[next:], receipts[next:])
	}
	var errs []error
	for _, r := range receipts {
		if r.Place == 0 {
			errs = append(errs, r.Err)
		}
	}
	return receipts, errors.Join(errs...)
}

// publishSome publishes as many messages as the window has room for, and
// returns how many have their receipt.
func (p *Producer) publishSome(ctx context.Context, messages []Message, batch []confirm.Message, receipts []Receipt) int {
	batch = batch[:min(len(batch), p.cfg.Window)]
	for i := range batch {
		batch[i].Deadline = time.Now().Add(p.cfg.Timeout)
	}
	sent, err := p.publisher.SendAll(ctx, batch)
	for i, pending := range sent {
		receipts[i] = p.receipt(ctx, messages[i], batch[i], pending, nil)
	}
	n := len(sent)
	if err != nil {
		receipts[n] = p.receipt(ctx, messages[n], batch[n], nil, err)
		n++
	}
	return n
}
