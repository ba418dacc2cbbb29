package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
)

// corrected are the phone numbers of the passengers whose orders had none that works.
var corrected = map[string]string{
	"T-0023": "+90 542 000 11 23",
	"T-0058": "+34 600 000 558",
	"T-0081": "+33 6 39 98 10 81",
	"T-0109": "+49 171 3921090",
	"T-0142": "+90 542 000 11 42",
	"T-0166": "+33 6 39 98 11 66",
	"T-0187": "+48 512 000 187",
}

// worker sends the SMS of orders that somebody has sent back from the dead letters.
// By then their errors are mended: the network reaches everybody, the wrong numbers
// are corrected, and passengers may have one name.
type worker struct {
	mu  sync.Mutex
	out io.Writer
}

// serve handles orders until ctx ends.
func (w *worker) serve(ctx context.Context, d setup, conn *connection.Conn) error {
	c, err := consumer.New(conn, d.sms, w.sendSMS, consumer.Config{Concurrency: 16})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w.out, "a worker whose causes of failure are mended sends the SMS of orders that come back"); err != nil {
		return err
	}
	return c.Run(ctx)
}

func (w *worker) sendSMS(_ context.Context, d *consumer.Delivery) error {
	var order Order
	if err := json.Unmarshal(d.Body, &order); err != nil {
		return consumer.DeadLetter(fmt.Errorf("order: %w", err))
	}
	if number, ok := corrected[order.ID]; ok && !phoneNumber.MatchString(order.Phone) {
		order.Phone = number
	}
	if !phoneNumber.MatchString(order.Phone) {
		return consumer.DeadLetter(fmt.Errorf("%q: %w", order.Phone, errBadNumber))
	}
	name, _, _ := strings.Cut(order.Passenger, " ")
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.out, "SMS sent to %s (%s, sent back: %d): %s, %s: %s\n",
		order.Phone, order.ID, d.History.Redrives, name, order.Train, order.Message)
	return nil
}
