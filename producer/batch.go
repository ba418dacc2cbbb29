package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

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
	limited, cancel := context.WithTimeoutCause(ctx, p.cfg.Timeout, p.timeout)
	defer cancel()
	sent, unsent := p.publisher.SendAll(limited, batch)
	n := len(sent)
	if unsent != nil {
		n++
	}
	var fallbacks sync.WaitGroup // at a time: each may take as long as Timeout
	for i := range n {
		var maybeDuplicate bool
		var err error
		if i < len(sent) {
			maybeDuplicate, err = answer(limited, p.publisher, batch[i], sent[i], nil)
		} else {
			maybeDuplicate, err = answer(limited, p.publisher, batch[i], nil, unsent)
		}
		if err == nil {
			receipts[i] = p.receipt(ctx, messages[i], maybeDuplicate, nil)
			continue
		}
		fallbacks.Go(func() { receipts[i] = p.receipt(ctx, messages[i], maybeDuplicate, err) })
	}
	fallbacks.Wait()
	return n
}
