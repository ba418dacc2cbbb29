package conformance

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// Queues that were declared on a 3.x broker, which has been upgraded since.

// exceptExec adds to OnlyQuorum4 that a command must be run beside the broker.
func exceptExec(version, queueType string) string {
	if why := matrix.OnlyQuorum4(version, queueType); why != "" {
		return why
	}
	if os.Getenv("AMQP_URL") != "" {
		return "AMQP_URL is set: no rabbitmqctl"
	}
	return ""
}

// declareOldForm declares w as a 3.x broker had it, argument by argument.
func (e *env) declareOldForm(w topology.WorkQueue) {
	e.Helper()
	ch := e.channel()
	defer ch.Close()
	must := func(err error) {
		e.Helper()
		if err != nil {
			e.Fatal(err)
		}
	}
	queue := func(name string, args amqp.Table) {
		args["x-queue-type"] = "quorum"
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		must(err)
	}
	exchange := func(name, kind, alternate string) {
		var args amqp.Table
		if alternate != "" {
			args = amqp.Table{"alternate-exchange": alternate}
		}
		must(ch.ExchangeDeclare(name, kind, true, false, false, false, args))
	}
	exchange(w.Name+".rehop.unrouted", "fanout", "")
	exchange(w.Name+".rehop.return.spare", "fanout", w.Name+".rehop.unrouted")
	exchange(w.Name+".rehop.return", "headers", w.Name+".rehop.return.spare")
	exchange(w.Name+".rehop.delay.spare", "headers", w.Name+".rehop.unrouted")
	exchange(w.Name+".rehop.dlx", "headers", w.Name+".rehop.delay.spare")
	queue(w.Name+".dlq", amqp.Table{})
	for i, wait := range w.Waits {
		queue(route.WaitQueue(w.Name, i+1), amqp.Table{
			"x-message-ttl":             wait.Milliseconds(),
			"x-dead-letter-exchange":    w.Name + ".rehop.return",
			"x-dead-letter-routing-key": w.Name + "@" + string(rune('1'+i)),
		})
	}
	queue(w.Name, amqp.Table{"x-dead-letter-exchange": w.Name + ".rehop.dlx", "x-delivery-limit": int64(20)})
	must(ch.QueueBind(w.Name+".dlq", "", w.Name+".rehop.unrouted", false, nil))
	must(ch.QueueBind(w.Name, "", w.Name+".rehop.return.spare", false, nil))
	must(ch.QueueBind(w.Name, "", w.Name+".rehop.return", false, amqp.Table{"x-match": "all"}))
}

func TestOldFormIsAccepted(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		plan := e.adoptOldForm(w)
		if got := plan.Engines[0]; got.Engine != topology.EngineRepublish || !strings.Contains(got.Why, w.Name) || !strings.Contains(got.Why, "3.x") {
			e.Errorf("engine is %v (%s), want republish because of the 3.x form of %s", got.Engine, got.Why, w.Name)
		}
		again, err := topology.DeclarePlan(e.Context(), e.conn, w)
		e.noError("declare again", err)
		if again.String() != plan.String() {
			e.Errorf("declared again, the plan is\n%s\nwant the same as before\n%s", again, plan)
		}
		goThroughWaits(e, w, topology.EngineRepublish)
	}, "3.x form is accepted on 4.x")
}

// The engine nack, asked for by name, is refused in the old form.
func TestOldFormRefusesTheNackEngine(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.adoptOldForm(w)
		w.Engine = topology.EngineNack
		err := topology.Declare(e.Context(), e.conn, w)
		if err == nil || !strings.Contains(err.Error(), "3.x") || !strings.Contains(err.Error(), w.Name) {
			e.Errorf("Declare with the engine nack: %v, want a refusal because of the 3.x form", err)
		}
		w.Engine = topology.EngineAuto
		goThroughWaits(e, w, topology.EngineRepublish) // and the refusal has broken nothing
	}, "3.x form is accepted on 4.x")
}

// adoptOldForm declares w in the form of 3.x, with a message that waits in it,
// and then by the SDK.
func (e *env) adoptOldForm(w topology.WorkQueue) topology.Plan {
	e.Helper()
	old, err := topology.NewPlan(connection.Version{Major: 3, Minor: 10}, w)
	if err != nil {
		e.Fatal(err)
	}
	e.deleteLater(old)
	e.declareOldForm(w)
	e.rawPublish("", route.WaitQueue(w.Name, 1), amqp.Publishing{MessageId: "waits"})
	plan, err := topology.DeclarePlan(e.Context(), e.conn, w)
	if err != nil {
		e.Fatal(err)
	}
	e.until("the message that waited is back", func() bool { return e.count(w.Name) == 1 })
	if d := e.take(w.Name, 1)[0]; d.MessageId != "waits" {
		e.Errorf("message %q came out of the wait", d.MessageId)
	}
	return plan
}

func TestOldFormPolicy(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work.v2+x", waits(150*time.Millisecond, 300*time.Millisecond)) // a regular expression must not take "." for any
		lookalike := e.rawQueue(strings.Replace(w.Name, "work.v2", "work-v2", 1), nil)
		plan := e.adoptOldForm(w)
		line := policyLine(plan)
		if line == "" {
			e.Fatalf("the plan's notes hold no policy line:\n%s", plan)
		}
		name := "rehop " + w.Name
		e.Cleanup(func() { // t.Context has ended
			_, err := e.node.Exec(context.Background(), "rabbitmqctl", "clear_policy", name)
			e.noError("clear the policy", err)
		})
		if out, err := e.node.Exec(e.Context(), "sh", "-c", line); err != nil {
			e.Fatalf("the advised line\n%s\nfailed: %v %s", line, err, out)
		}
		queues := []string{w.Name, route.WaitQueue(w.Name, 1), route.WaitQueue(w.Name, 2), w.DeadLetterQueue().Name}
		var policies map[string]string
		e.until("the policy applies", func() bool {
			policies = e.policies()
			for _, q := range queues {
				if policies[q] == "" {
					return false
				}
			}
			return true
		})
		for _, q := range queues {
			if policies[q] != name {
				e.Errorf("queue %s has the policy %q, want %q", q, policies[q], name)
			}
		}
		if policies[lookalike] != "" {
			e.Errorf("queue %s, which is another's, has the policy %q", lookalike, policies[lookalike])
		}
		goThroughWaits(e, w, topology.EngineRepublish)

		// Its delivery limit of -1: looking at a letter does not destroy it,
		// which the default of 20 would.
		dlq := w.DeadLetterQueue().Name
		letters := e.count(dlq)
		for range 25 * letters {
			e.crashOnce(dlq)
		}
		e.until("the letters are all still there", func() bool { return e.count(dlq) == letters })

		// At-least-once: a letter that finds no way stays with its queue. Once the
		// next message has come on the same channel, the nack has had its effect.
		ch := e.channel()
		e.noError("unbind", ch.QueueUnbind(dlq, "", w.Name+".rehop.unrouted", nil))
		id := e.publish(producer.Message{RoutingKey: w.Name})
		next := e.publish(producer.Message{RoutingKey: w.Name})
		for _, want := range []string{id, next} {
			e.until("message "+want+" is delivered", func() bool {
				d, ok, err := ch.Get(w.Name, false)
				if err != nil {
					e.Fatal(err)
				}
				if ok && d.MessageId == id {
					e.noError("nack", d.Nack(false, false))
				} else if ok {
					e.noError("ack", d.Ack(false))
				}
				return ok
			})
		}
		e.noError("bind", ch.QueueBind(dlq, "", w.Name+".rehop.unrouted", false, nil))
		e.until("it arrives once there is a way", func() bool { return e.count(dlq) == letters+1 })
		found := false
		for _, d := range e.take(dlq, letters+1) {
			found = found || d.MessageId == id
		}
		if !found {
			e.Errorf("the letter without a way, %q, is not what arrived", id)
		}

		again, err := topology.DeclarePlan(e.Context(), e.conn, w)
		e.noError("declare again under the policy", err)
		if len(again.Engines) != 1 || again.Engines[0].Engine != topology.EngineRepublish {
			e.Errorf("under the policy the engine is %v, want republish", again.Engines)
		}
	}, "3.x form: the advised policy works")
}

// policyLine returns the command in a plan's notes.
func policyLine(plan topology.Plan) string {
	for _, note := range plan.Notes {
		if _, line, ok := strings.Cut(note, "rabbitmqctl set_policy"); ok {
			return "rabbitmqctl set_policy" + line
		}
	}
	return ""
}

// policies returns the policy of every queue, "" for none.
func (e *env) policies() map[string]string {
	e.Helper()
	var rows []struct{ Name, Policy string }
	e.manage(e.Context(), http.MethodGet, "queues/"+vhost, nil, &rows)
	of := map[string]string{}
	for _, row := range rows {
		of[row.Name] = row.Policy
	}
	return of
}
