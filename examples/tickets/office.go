package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
)

// office holds the two handlers. A service writes such handlers itself.
type office struct {
	operator operator
	post     func(letter) // takes the letters that replace an SMS
}

// serve handles the orders, and the dead letters among them, until ctx ends.
func (d setup) serve(ctx context.Context, conn *connection.Conn, o operator, l *ledger) error {
	office := office{operator: o, post: l.letterSent}
	sms, err := consumer.New(conn, d.sms, l.ofThisRun(office.sendSMS), consumer.Config{
		Concurrency:    16,
		HandlerTimeout: 5 * time.Second,
		DrainTimeout:   5 * time.Second,
		Traces:         []consumer.Trace{l.trace()},
	})
	if err != nil {
		return err
	}
	letters, err := consumer.New(conn, d.letters, l.ofThisRun(office.sendLetter), consumer.Config{
		Concurrency:  4,
		DrainTimeout: 5 * time.Second,
	})
	if err != nil {
		return err
	}

	// One that cannot go on ends the other.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var errs [2]error
	var running sync.WaitGroup
	for i, c := range []*consumer.Consumer{sms, letters} {
		if c == letters && l.keep {
			continue
		}
		running.Go(func() {
			defer cancel()
			errs[i] = c.Run(ctx)
		})
	}
	running.Wait()
	return errors.Join(errs[:]...)
}

// cancelled orders need no SMS any more. They were cancelled after they had
// been published.
var cancelled = map[string]bool{"T-0148": true}

// sendSMS handles one order. What it returns decides what becomes of the
// message.
func (o office) sendSMS(ctx context.Context, d *consumer.Delivery) error {
	var order Order
	if err := json.Unmarshal(d.Body, &order); err != nil {
		return consumer.DeadLetter(fmt.Errorf("order: %w", err))
	}
	if cancelled[order.ID] {
		return consumer.Discard("cancelled by the passenger")
	}
	text := fmt.Sprintf("%s, %s: %s", firstName(order.Passenger), order.Train, order.Message)
	err := o.operator.send(ctx, order, text, d.Attempt)
	var busy *busyError
	switch {
	case errors.Is(err, errBadNumber):
		return consumer.DeadLetter(err) // four more attempts would change nothing
	case errors.As(err, &busy):
		return consumer.RetryAfter(busy.comeBackIn, err)
	}
	return err // nil: sent; any other error: the next attempt, after its wait
}

// firstName has a bug, left in on purpose: a passenger with one name makes it
// panic. To the consumer that is a failed attempt like any other.
func firstName(passenger string) string {
	return passenger[:strings.Index(passenger, " ")]
}

// letter is sent to a passenger whom no SMS could reach.
type letter struct {
	messageID string
	order     Order
	reason    string // why the order was given up
	attempts  int    // that were spent on it
	err       string // the last one's
}

// sendLetter handles one dead letter of sendSMS. Its past is in d.History.
func (o office) sendLetter(_ context.Context, d *consumer.Delivery) error {
	l := letter{
		messageID: d.ID,
		reason:    string(d.History.Failure.Cause),
		attempts:  d.History.FinalAttempts,
		err:       d.History.Failure.Error,
	}
	// A body that cannot be read is no reason to fail: what fails here is held
	// and handled again for ever, there is no queue behind a dead-letter queue.
	if err := json.Unmarshal(d.Body, &l.order); err != nil {
		l.err += "; " + err.Error()
	}
	if l.reason == "" {
		// No handler gave it up: consumers died with it, or it expired.
		l.reason = "moved by the broker"
	}
	o.post(l)
	return nil
}
