package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// ruleByPolicy is the rule of dead letters that a policy gives.
const ruleByPolicy = "a queue of others: dead letters by a policy, which comes and goes"

func TestPoliciesThatBreakAPromise(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		log := new(strings.Builder) // written by Declare alone
		conn := e.connectManaged(e.node.ManagementURL(), slog.New(slog.NewTextHandler(log, nil)))
		plan, err := topology.DeclarePlan(e.Context(), conn, w)
		if err != nil {
			e.Fatal(err)
		}
		e.deleteLater(plan)
		if policyLines(plan) > 0 || strings.Contains(fmt.Sprint(plan.Notes), "policies are not known") {
			e.Errorf("without a policy:\n%s", plan)
		}
		j := newJournal(succeed)
		first := e.consumeOn(conn, w, j, consumer.Config{})
		e.until("it is healthy", func() bool { return first.Health() == nil })
		e.halt(first)

		e.setPolicy("policies", "waits", "^"+quoted(w.Name+".wait."), map[string]any{"message-ttl": 50, "expires": 3600000})
		e.setPolicy("operator-policies", "letters", "^"+quoted(w.Name+".dlq"), map[string]any{"max-length": 50})
		e.until("the policies apply", func() bool { // not at once
			found := e.resolve(conn, w)
			faults, err := found.Broker.Policies(e.Context(), conn, found)
			return err == nil && len(faults) == 2*len(w.Waits)+1
		})
		if err := topology.Declare(e.Context(), conn, w); err != nil {
			e.Errorf("Declare: %v, want nil", err)
		}
		if plan, err = topology.DeclarePlan(e.Context(), conn, w); err != nil {
			e.Fatal(err)
		}
		if n := policyLines(plan); n != 2*len(w.Waits)+1 {
			e.Errorf("%d faults, want two of each wait and one of the dead-letter queue:\n%s", n, plan)
		}
		c := e.consumeOn(conn, w, j, consumer.Config{})
		e.until("it is degraded", func() bool { return c.Health() != nil && rehop.Ready(c.Health()) })
		for _, want := range []string{
			fmt.Sprintf("queue %q: policy %q sets message-ttl to 50ms", route.WaitQueue(w.Name, 1), e.name("waits")),
			fmt.Sprintf("queue %q: policy %q sets expires to 1h0m0s", route.WaitQueue(w.Name, 4), e.name("waits")),
			fmt.Sprintf("queue %q: operator policy %q sets max-length to 50", w.Name+".dlq", e.name("letters")),
		} {
			if health := fmt.Sprint(c.Health()); !strings.Contains(health, want) || !strings.Contains(plan.String(), want) {
				e.Errorf("Health: %s\n%s\nwant both to contain %s", health, plan, want)
			}
		}
		if text := log.String(); strings.Count(text, "a policy breaks a promise") != 2*len(w.Waits)+1 {
			e.Errorf("Declare has logged\n%s\nwant a line for each fault", text)
		}
		e.halt(c)

		own := e.ownDelays(100 * time.Millisecond)
		if plan, err = topology.NewPlan(conn.Server().Version, own); err != nil {
			e.Fatal(err)
		}
		e.deleteLater(plan)
		level := fmt.Sprintf("rehop.delays.%v.00", own.Grain)
		e.setPolicy("policies", "levels", "^"+quoted(level), map[string]any{"message-ttl": 5, "dead-letter-routing-key": "other"})
		wants := []string{
			fmt.Sprintf("queue %q: policy %q sets message-ttl to 5ms: delayed messages leave the queue", level, e.name("levels")),
			fmt.Sprintf("queue %q: policy %q sets dead-letter-routing-key to other: delayed messages", level, e.name("levels")),
		}
		names := func(text string) bool {
			return strings.Contains(text, wants[0]) && strings.Contains(text, wants[1])
		}
		e.until("the plan names the policy of the level", func() bool {
			plan, err := topology.DeclarePlan(e.Context(), conn, w, own)
			return err == nil && names(plan.String())
		})
		if conn.Server().Version.AtLeast(4, 0) { // before, a consumer uses no levels
			c = e.consumeOn(conn, w, j, consumer.Config{})
			e.until("Health names it", func() bool { return names(fmt.Sprint(c.Health())) })
			e.halt(c)
		}

		wrong := strings.Replace(e.node.ManagementURL(), "guest:guest@", "guest:wrong-password@", 1)
		unknown := e.connectManaged(wrong, nil)
		if plan, err = topology.DeclarePlan(e.Context(), unknown, w); err != nil {
			e.Errorf("Declare with a wrong password for the management API: %v, want nil", err)
		}
		if notes := fmt.Sprint(plan.Notes); !strings.Contains(notes, "policies are not known") || strings.Contains(notes, "wrong-password") {
			e.Errorf("notes %s, want that policies are not known", notes)
		}
	}, "policies that break a promise are named")
}

// connectManaged opens a Conn that has a management API.
func (e *env) connectManaged(url string, log *slog.Logger) *connection.Conn {
	e.Helper()
	conn, err := connection.Open(e.Context(), connection.Config{URLs: []string{e.node.AMQPURL()}, Name: e.prefix, OpenTimeout: patience, ManagementURL: url, Logger: log})
	if err != nil {
		e.Fatal(err)
	}
	e.closeLater(conn)
	return conn
}

// policyLines counts the entries of policies that a plan names.
func policyLines(plan topology.Plan) (n int) {
	for line := range strings.Lines(plan.String()) {
		if strings.HasPrefix(line, "policy ") {
			n++
		}
	}
	return n
}

// A team gives its queues dead letters by policies: the queue has no argument for them, and the plan has the
// policy. Retries need none of it, so no message is lost when somebody takes the policy away. What does need it
// are messages whose consumers die, and then Verify and Health say so.
func TestDeadLettersByPolicy(t *testing.T) {
	everywhere(t, func(e *env) {
		w := topology.WorkQueue{Name: e.name("work.v2+x"), Type: e.queue, Existing: true, Waits: shortly}
		e.rawQueue(w.Name, nil)
		conn := e.connectManaged(e.node.ManagementURL(), e.log())
		plan, err := topology.NewPlan(conn.Server().Version, w)
		e.noError("plan", err)
		e.deleteLater(plan)
		e.noError("declare", topology.Declare(e.Context(), conn, w))
		line := policyLine(plan)
		if (line == "") != (e.queue == topology.Classic) {
			e.Fatalf("the plan of a %s queue has the policy %q", e.queue, line)
		}
		loses := e.queue == topology.Quorum && conn.Server().Version.AtLeast(4, 0)
		verified := func() bool {
			drift, err := topology.Verify(e.Context(), conn, w)
			e.noError("verify", err)
			text, n := drift.String(), len(drift.Differences)
			if missing := strings.Contains(text, "! queue "+w.Name+" (policy-missing)"); missing != (n == 1) || n > 1 || !drift.OK() {
				e.Fatalf("Verify finds\n%s\nwant policy-missing or nothing, and that a program starts", text)
			}
			return n == 0 && len(drift.Unseen) == 0
		}
		noted := func() bool {
			plan, err := topology.DeclarePlan(e.Context(), conn, w)
			e.noError("declare", err)
			return policyLine(plan) != ""
		}
		e.until("Verify says what is lost", func() bool { return verified() != loses }) // the API does not know at once
		e.until("Declare notes it", func() bool { return noted() == loses })

		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Type == "bad" || d.Type == "slow" && d.Attempt < 3 {
				return errBroken
			}
			return nil
		})
		var ids []string
		send := func() {
			for range 10 {
				for _, kind := range []string{"good", "slow", "bad"} {
					ids = append(ids, e.publish(producer.Message{RoutingKey: w.Name, Type: kind}))
				}
			}
		}
		healthy := func(c *running) bool { return !strings.Contains(fmt.Sprint(c.Health()), "dead-letter-exchange") }
		set := func() {
			if line == "" {
				return
			}
			if out, err := e.node.Exec(e.Context(), "sh", "-c", line); err != nil {
				e.Fatalf("%s: %v %s", line, err, out)
			}
			e.until("the policy applies", verified)
		}
		clear := func() {
			if line == "" {
				return
			}
			_, err := e.node.Exec(context.Background(), "rabbitmqctl", "clear_policy", "rehop "+w.Name)
			e.noError("clear the policy", err)
		}
		set()
		e.Cleanup(func() { _, _ = e.node.Exec(context.Background(), "rabbitmqctl", "clear_policy", "rehop "+w.Name) })
		if noted() {
			e.Error("Declare notes the policy that applies")
		}
		c := e.consumeOn(conn, w, j, consumer.Config{})
		send()
		e.until("some wait", func() bool { return len(j.of("")) > len(ids)/2 })
		clear()
		send()
		e.until("the policy is gone", func() bool { return verified() != loses })
		send()
		e.until("all have an end", func() bool {
			for _, id := range ids {
				if !j.reached(id, consumer.DispositionDone) && !j.reached(id, consumer.DispositionDeadLetter) {
					return false
				}
			}
			return true
		})
		e.halt(c)
		letters := len(ids) / 3
		for _, id := range ids {
			if n := len(j.settlements(id)); j.reached(id, consumer.DispositionDeadLetter) && n != len(w.Waits)+1 {
				e.Errorf("message %q was given up after %d attempts, want %d", id, n, len(w.Waits)+1)
			}
		}
		e.atRest(w, letters)
		c = e.consumeOn(conn, w, j, consumer.Config{})
		e.until("Health says what is lost", func() bool { return healthy(c) != loses })
		e.halt(c)

		// One that kills its consumers: without the policy 4.0 and later delete it.
		e.publish(producer.Message{RoutingKey: w.Name, Type: "guilty"})
		for range route.DeliveryLimit + 1 {
			e.crashOnce(w.Name)
		}
		if !loses {
			e.until("it has come back", func() bool { return e.count(w.Name) == 1 })
		}
		set()
		if loses {
			e.publish(producer.Message{RoutingKey: w.Name, Type: "guilty"})
		}
		if e.queue == topology.Quorum {
			e.until("it is a dead letter", func() bool {
				e.crash(w.Name)
				return e.count(w.DeadLetterQueue().Name) == letters+1
			})
		} else {
			e.take(w.Name, 1)
		}
		e.atRest(w, map[bool]int{true: letters + 1, false: letters}[e.queue == topology.Quorum])
		c = e.consumeOn(conn, w, j, consumer.Config{})
		e.until("it is healthy", func() bool { return c.Health() == nil })
		e.halt(c)
	}, ruleByPolicy)
}
