package conformance

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// What a letter in the dead-letter queue says.

// parse reads the headers of a letter, which must be well-formed.
func (e *env) parse(d amqp.Delivery) xdeath.History {
	e.Helper()
	h, err := xdeath.Parse(d.Headers)
	if err != nil {
		e.Errorf("headers of %q: %v", d.MessageId, err)
	}
	return h
}

// wantLetter is what a letter must say beside its body and properties.
type wantLetter struct {
	cause     rehop.Cause
	attempts  int
	err       string
	errorType string
	exchange  string
	key       string
	since     time.Time // before the message was published
	firstGap  time.Duration
}

// checkLetter reads the raw headers, by the names that are the contract.
func (e *env) checkLetter(w topology.WorkQueue, d amqp.Delivery, want wantLetter) {
	e.Helper()
	host, err := os.Hostname()
	e.noError("host name", err)
	for header, value := range map[string]any{
		"x-rehop-cause":          string(want.cause),
		"x-rehop-final-attempts": int64(want.attempts),
		"x-rehop-error":          want.err,
		"x-rehop-error-type":     want.errorType,
		"x-rehop-queue":          w.Name,
		"x-rehop-exchange":       want.exchange,
		"x-rehop-routing-key":    want.key,
		"x-rehop-host":           host,
	} {
		if got := d.Headers[header]; got != value {
			e.Errorf("letter's %s is %#v, want %#v", header, got, value)
		}
	}
	if got, found := d.Headers["x-rehop-attempts"]; found {
		e.Errorf("letter has x-rehop-attempts %v, want none: any way back starts at attempt 1", got)
	}
	first, _ := d.Headers["x-rehop-first-failed-at"].(time.Time)
	last, _ := d.Headers["x-rehop-failed-at"].(time.Time)
	since := want.since.Truncate(time.Second) // AMQP carries whole seconds
	if first.Before(since) || last.Before(first) || last.After(time.Now()) {
		e.Errorf("letter failed first at %v and at last at %v, want both in this order between %v and now", first, last, since)
	}
	// Each is cut to whole seconds, hence one second less.
	if got := last.Sub(first); got < want.firstGap-time.Second {
		e.Errorf("letter's failures lie %v apart, want at least %v (its waits) less a second", got, want.firstGap)
	}
}

func TestExhausted(t *testing.T) {
	everywhere(t, func(e *env) {
		exchange, w := e.shop("work")
		since := time.Now()
		j := newJournal(fail)
		e.consume(w, j, consumer.Config{})
		sent := e.fullMessage(exchange, "order.paid")
		id := e.publish(sent)
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		e.checkAttempts(j, w, id, 5)
		d := e.letter(w)
		var sum time.Duration
		for _, wait := range w.Waits {
			sum += wait
		}
		e.checkLetter(w, d, wantLetter{
			cause: rehop.CauseExhausted, attempts: 5, err: errBroken.Error(), errorType: "*errors.errorString",
			exchange: exchange, key: "order.paid", since: since, firstGap: sum,
		})
		e.checkRaw(d, sent)
		if d.DeliveryMode != amqp.Persistent {
			e.Errorf("letter's delivery mode is %d, want persistent", d.DeliveryMode)
		}
		e.atRest(w, 0)
	}, "exhausted")
}

func TestNoWaits(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits())
		e.declare(w)
		since := time.Now()
		j := newJournal(fail)
		id := e.send(w.Name, 1)[0]
		e.consume(w, j, consumer.Config{})
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		e.checkAttempts(j, w, id, 1)
		e.checkLetter(w, e.letter(w), wantLetter{
			cause: rehop.CauseExhausted, attempts: 1, err: errBroken.Error(), errorType: "*errors.errorString",
			key: w.Name, since: since,
		})
		e.atRest(w, 0)
	}, "no waits: one attempt")
}

// missingTicket is an error type that letters name.
type missingTicket struct{ number string }

func (m missingTicket) Error() string { return "no ticket " + m.number }

func TestPermanent(t *testing.T) {
	everywhere(t, func(e *env) {
		exchange, w := e.shop("work")
		since := time.Now()
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Type == "later" && d.Attempt == 1 {
				return errBroken
			}
			return consumer.DeadLetter(missingTicket{"7"})
		})
		e.consume(w, j, consumer.Config{})
		for kind, attempts := range map[string]int{"at once": 1, "later": 2} {
			sent := e.fullMessage(exchange, "order.paid")
			sent.Type = kind
			id := e.publish(sent)
			e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
			e.checkAttempts(j, w, id, attempts)
			d := e.letter(w)
			e.checkLetter(w, d, wantLetter{
				cause: rehop.CausePermanent, attempts: attempts, err: "no ticket 7", errorType: "conformance.missingTicket",
				exchange: exchange, key: "order.paid", since: since,
			})
			e.checkRaw(d, sent)
		}
		e.atRest(w, 0)
	}, "permanent")
}

func TestPanic(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work", waits(150*time.Millisecond))
		e.declare(w)
		since := time.Now()
		j := newJournal(panicsOverTickets)
		id := e.publish(producer.Message{RoutingKey: w.Name})
		e.consume(w, j, consumer.Config{})
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		e.checkAttempts(j, w, id, 2)
		d := e.letter(w)
		e.checkLetter(w, d, wantLetter{
			cause: rehop.CauseExhausted, attempts: 2, err: "panic: no ticket 7", errorType: "*consumer.PanicError",
			key: w.Name, since: since,
		})
		if stack, _ := d.Headers["x-rehop-stack"].(string); !strings.Contains(stack, "panicsOverTickets") {
			e.Errorf("letter's x-rehop-stack is %.200q, want the panicking function in it", stack)
		}
		// The consumer survived.
		after := e.publish(producer.Message{RoutingKey: w.Name, Type: "harmless"})
		e.until("a further message is done", func() bool { return j.reached(after, consumer.DispositionDone) })
		e.atRest(w, 0)
	}, "panic")
}

func panicsOverTickets(_ context.Context, d *consumer.Delivery) error {
	if d.Type == "harmless" {
		return nil
	}
	panic(errors.New("no ticket 7"))
}
