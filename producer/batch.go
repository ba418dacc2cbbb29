package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
			for fault := range strings.Lines(err.Error()) {
				faults = append(faults, fmt.Errorf("producer: messages[%d]: %s", i, strings.TrimPrefix(strings.TrimSpace(fault), "producer: ")))
			}
		}
		complete[i] = m
		batch[i] = confirm.Message{Exchange: m.Exchange, Key: m.Key, Publishing: publishing}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
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
	deadline := time.Now().Add(p.cfg.Timeout)
	for i := range batch {
		batch[i].Deadline = deadline
	}
	sent, unsent := p.publisher.SendAll(ctx, batch)
	n := len(sent)
	if unsent != nil {
		n++
	}
	limited, cancel := batch[0].Bound(ctx)
	defer cancel()
	var rest sync.WaitGroup // of those that wait for more than one answer, all at a time
	for i := range n {
		if i == len(sent) || !answered(limited, sent[i]) {
			rest.Go(func() {
				pending, err := (*confirm.Pending)(nil), unsent
				if i < len(sent) {
					pending, err = sent[i], nil
				}
				maybeDuplicate, err := answer(ctx, p.publisher, batch[i], pending, err)
				receipts[i] = p.receipt(ctx, messages[i], maybeDuplicate, err)
			})
			continue
		}
		maybeDuplicate, err := answer(ctx, p.publisher, batch[i], sent[i], nil)
		if err == nil {
			receipts[i] = p.receipt(ctx, messages[i], maybeDuplicate, nil)
			continue
		}
		rest.Go(func() { receipts[i] = p.receipt(ctx, messages[i], maybeDuplicate, err) })
	}
	rest.Wait()
	return n
}

// answered waits for the broker's answer, and reports whether it has come.
func answered(ctx context.Context, pending *confirm.Pending) bool {
	select {
	case <-pending.Done():
	case <-ctx.Done():
	}
	return pending.Answered()
}
