package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

func native(w *topology.WorkQueue) { w.NativePriority = true }

func TestPriorityHighestFirst(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", native)
		e.declare(w)
		sent := []uint8{1, 4, 4, 9, 7, 1, 9, 5}
		for _, priority := range sent {
			e.publish(producer.Message{RoutingKey: w.Name, Priority: priority})
		}
		e.until("all are in the queue", func() bool { return e.count(w.Name) == len(sent) })
		j := newJournal(succeed)
		e.consume(w, j, consumer.Config{Concurrency: 1})
		e.until("all are done", func() bool { return len(j.of("")) == len(sent) })
		var got []uint8
		for _, run := range j.of("") {
			got = append(got, run.Priority)
		}
		for i := range got[1:] {
			if got[i+1] > got[i] {
				e.Errorf("handled in the order %v, want the highest priority first", got)
				break
			}
		}
		e.atRest(w, 0)
	}, "priority: highest first")
}

func TestPriorityRefused(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", native)
		err := topology.Declare(e.Context(), e.conn, w)
		reason := "holds back"
		if !e.node.version.AtLeast(4, 0) {
			reason = "ignores priorities"
		}
		checkRefusal(e.T, err, w, reason)
		// Nothing was declared.
		_, err = e.channel().QueueDeclarePassive(w.Name, true, false, false, false, nil)
		var reply *amqp.Error
		if !errors.As(err, &reply) || reply.Code != amqp.NotFound {
			e.Errorf("after the refusal the queue is looked at with %v, want 404", err)
		}
	}, "priority: refused with a reason")
}

func checkRefusal(t *testing.T, err error, w topology.WorkQueue, reason string) {
	t.Helper()
	if err == nil {
		t.Errorf("priority of queue %s is accepted, want a refusal: %s", w.Name, reason)
		return
	}
	for _, want := range []string{w.Name, reason, "quorum", "classic"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("refused with %v; want %q in it", err, want)
		}
	}
}

// The same by plan alone, for the versions that no broker here has.
func TestPriorityPlanned(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		version   string
		queueType topology.QueueType
		noWaits   bool
		refused   string // the reason; "" if it is planned
		note      string
	}{
		{version: "3.10.8", queueType: topology.Quorum, refused: "ignores priorities"},
		{version: "3.13.7", queueType: topology.Quorum, noWaits: true, refused: "ignores priorities"},
		{version: "4.0.5", queueType: topology.Quorum, refused: "holds back"},
		{version: "4.2.9", queueType: topology.Quorum, refused: "holds back"},
		{version: "4.2.9", queueType: topology.Quorum, noWaits: true, note: "two classes"},
		{version: "4.3.6", queueType: topology.Quorum, note: "strict levels"},
		{version: "5.0.0", queueType: topology.Quorum, note: "strict levels"},
		{version: "3.10.8", queueType: topology.Classic, note: "x-max-priority"},
		{version: "4.3.6", queueType: topology.Classic, note: "x-max-priority"},
	} {
		v, err := connection.ParseVersion(test.version)
		if err != nil {
			t.Fatal(err)
		}
		w := topology.WorkQueue{Name: "orders", Type: test.queueType, Waits: scaled, NativePriority: true}
		if test.noWaits {
			w.Waits = nil
		}
		plan, err := topology.NewPlan(v, w)
		if test.refused != "" {
			checkRefusal(t, err, w, test.refused)
			continue
		}
		if err != nil {
			t.Errorf("%s on %s: %v, want a plan", test.queueType, v, err)
		} else if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, test.note) {
			t.Errorf("%s on %s: notes are %q, want %q in them", test.queueType, v, notes, test.note)
		}
	}
}

func TestPriorityKept(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(scaled[0], scaled[1]))
		if e.suite.table.Expects("priority: highest first", e.version, string(e.queue)) {
			native(&w)
		}
		e.declare(w)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			switch {
			case d.Attempt == 1 && d.Type == "round trip":
				return consumer.RetryAfter(scaled[1], errBroken)
			case d.Type == "permanent":
				return consumer.DeadLetter(errBroken)
			}
			return errBroken
		})
		e.consume(w, j, consumer.Config{})
		ids := map[string]uint8{}
		var messages []producer.Message
		for priority := range uint8(9 + 1) {
			for _, kind := range []string{"plain", "round trip", "permanent"} {
				messages = append(messages, producer.Message{RoutingKey: w.Name, Type: kind, Priority: priority})
			}
		}
		for i, id := range e.publishAll(messages) {
			ids[id] = messages[i].Priority
		}
		e.until("all are dead letters", func() bool { return e.count(w.DeadLetterQueue().Name) == len(ids) })
		for id, priority := range ids {
			for _, run := range j.of(id) {
				if run.Priority != priority {
					e.Errorf("attempt %d has priority %d, want %d", run.Attempt, run.Priority, priority)
				}
			}
		}
		for _, d := range e.take(w.DeadLetterQueue().Name, len(ids)) {
			if d.Priority != ids[d.MessageId] {
				e.Errorf("letter has priority %d, want %d", d.Priority, ids[d.MessageId])
			}
		}
		e.atRest(w, 0)
	}, "priority: kept on every path")
}
