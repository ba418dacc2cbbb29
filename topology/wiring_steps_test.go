package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
)

// variant is a work queue on a broker of a version.
type variant struct {
	w WorkQueue
	v connection.Version

	// plans has the plan for each sequence of refusals, because the same few sequences
	// answer the thousands of declarations of the tests.
	plans map[string]planned
}

// planned is what newPlan has returned, and the steps of the plan.
type planned struct {
	plan  Plan
	steps []step
	err   error
}

func (x variant) String() string {
	return fmt.Sprintf("%s, %s, %s, existing %t, waits %v", x.v, x.w.Type, x.w.Engine, x.w.Existing, []time.Duration(x.w.Waits))
}

// variants returns every form of a work queue that can be declared.
func variants() (all []variant) {
	for _, v := range []connection.Version{{Major: 3, Minor: 10}, {Major: 4}, {Major: 4, Minor: 3}} {
		for _, kind := range []QueueType{Quorum, Classic} {
			for _, engine := range []Engine{EngineAuto, EngineNack, EngineRepublish, EngineCarry} {
				for _, existing := range []bool{false, true} {
					for _, waits := range []delay.Schedule{{}, {time.Second}, delay.Fixed(time.Second, 3), {2 * time.Second, time.Second, 3 * time.Second}} {
						w := WorkQueue{Name: "q", Type: kind, Engine: engine, Existing: existing, Waits: waits}
						if _, err := NewPlan(v, w); err == nil {
							all = append(all, variant{w, v, map[string]planned{}})
						}
					}
				}
			}
		}
	}
	return all
}

// onTopOf returns the plan for a variant where a network exists, as declarations learn
// it from the refusals of the broker; an error for a conflict.
func (x variant) onTopOf(n *network) (planned, error) {
	var have found
	for refusals := ""; ; {
		answer, known := x.plans[refusals]
		if !known {
			if answer.plan, answer.err = newPlan(x.v, have, []Spec{x.w}); answer.err == nil {
				answer.steps = answer.plan.steps()
			}
			x.plans[refusals] = answer
		}
		p, err := answer.plan, answer.err
		if err != nil {
			return answer, err
		}
		refused := slices.IndexFunc(p.queues, func(q plannedQueue) bool {
			args, exists := n.queues[q.Name]
			return exists && !equalTables(args, q.Args)
		})
		if refused < 0 {
			return answer, nil
		}
		q := p.queues[refused]
		refusals += fmt.Sprintln(q.Name, n.queues[q.Name])
		if err := have.learn(&x.w, q, n.queues[q.Name], &amqp.Error{Code: amqp.PreconditionFailed}); err != nil {
			return answer, err
		}
	}
}

// declared returns the network on which a variant was declared first.
func (x variant) declared(t *testing.T) (*network, planned) {
	t.Helper()
	n := newNetwork()
	if x.w.Existing {
		n.queues[x.w.Name] = amqp.Table{"x-queue-type": string(x.w.Type)}
	}
	p, err := x.onTopOf(n)
	if err != nil {
		t.Fatal(err)
	}
	n.declare(t, p.plan)
	return n, p
}

// journey is a message with attempts left that the broker moves.
type journey struct {
	exchange, key, reason string
	allowed               func(queue string) bool // where it may come to
}

// journeys returns all of a work queue that has a plan: from each wait, and to each
// wait that a nack leads to.
func (w WorkQueue) journeys(p Plan) (all []journey) {
	isWork := func(queue string) bool { return queue == w.Name }
	isWait := func(queue string) bool { return strings.HasPrefix(queue, w.Name+".wait.") }
	for i := range w.Waits {
		all = append(all, journey{w.returnExchange(), w.waitKey(i + 1), "expired", isWork})
		all = append(all, journey{w.returnExchange(), w.waitKey(i + 1), "", isWork}) // carried back
		if p.Engines[0].nacks[i] {
			all = append(all, journey{w.dlxExchange(), w.waitKey(i), "rejected", isWait}) // the key of wait 0 is a producer's
		}
	}
	return all
}

// places returns where each journey of a network leads.
func (n *network) places(all []journey) [][]string {
	places := make([][]string, len(all))
	for i, j := range all {
		places[i] = n.leads(j.exchange, j.key, j.reason)
	}
	return places
}

// walk does the steps of a declaration, and checks after each one that no journey
// ends in the dead-letter queue, or in two queues, that did not before. Then the rest of
// the steps may never be done: the process may die.
// rule says what is tried, and is asked only where it fails: there are many thousands.
func (n *network) walk(t *testing.T, rule func() string, steps []step, all []journey) {
	t.Helper()
	before := n.places(all)
	for _, s := range steps {
		if err := n.do(s); err != nil {
			t.Errorf("%s: %v", rule(), err)
			return
		}
		for i, now := range n.places(all) {
			j := all[i]
			switch {
			case len(now) == 0 && len(before[i]) == 0, slices.Equal(now, before[i]):
			case len(now) == 1 && j.allowed(now[0]):
			default:
				t.Errorf("%s: after %s a message that was %q with %q by %s is in %v, and was to come to %v before", rule(), s.what, j.reason, j.key, j.exchange, now, before[i])
				return
			}
		}
	}
}

// Whatever part of whatever wiring somebody has deleted, and wherever the declaration
// ends that puts it back: nothing that it adds leads a message with attempts left to
// the dead-letter queue.
func TestNoStepOfADeclarationMakesALetterOfAMessageWithAttemptsLeft(t *testing.T) {
	t.Parallel()
	for _, x := range variants() {
		whole, p := x.declared(t)
		all := x.w.journeys(p.plan)
		before := whole.places(all)
		newNetworkOf(x).walk(t, func() string { return x.String() + ", for the first time" }, p.steps, all)
		for _, part := range p.steps {
			n := whole.without(part)
			again, err := x.onTopOf(n)
			if err != nil {
				t.Fatalf("%s, without %s: %v", x, part.what, err)
			}
			n.walk(t, func() string { return fmt.Sprintf("%s, without %s", x, part.what) }, again.steps, all)
			for i, places := range n.places(all) {
				if !slices.Equal(places, before[i]) {
					t.Errorf("%s, without %s: declared again, %+v leads to %v, want %v as before", x, part.what, all[i], places, before[i])
				}
			}
		}
	}
}

// The same where any of the exchanges are gone at once.
func TestNoStepOfADeclarationMakesALetterWhereSeveralExchangesAreGone(t *testing.T) {
	t.Parallel()
	for _, x := range variants() {
		whole, p := x.declared(t)
		all := x.w.journeys(p.plan)
		var exchanges []step
		for _, part := range p.steps {
			if part.exchange != nil {
				exchanges = append(exchanges, part)
			}
		}
		for gone := range 1 << len(exchanges) {
			n, names := whole, []string{}
			for i, part := range exchanges {
				if gone>>i&1 == 1 {
					n, names = n.without(part), append(names, part.exchange.Name)
				}
			}
			if gone == 0 {
				continue
			}
			again, err := x.onTopOf(n)
			if err != nil {
				t.Fatalf("%s, without %v: %v", x, names, err)
			}
			n.walk(t, func() string { return fmt.Sprintf("%s, without %v", x, names) }, again.steps, all)
		}
	}
}

// newNetworkOf is that of a broker on which nothing of a variant exists.
func newNetworkOf(x variant) *network {
	n := newNetwork()
	if x.w.Existing {
		n.queues[x.w.Name] = amqp.Table{"x-queue-type": string(x.w.Type)}
	}
	return n
}

// left is all that a declaration leaves for the next one to find, as text: what exists,
// each part that somebody may delete, and the messages that are on their way.
func (x variant) left(whole *network, p planned) string {
	var text strings.Builder
	fmt.Fprint(&text, x.w.Type, x.w.Existing, whole)
	for _, part := range p.steps {
		switch {
		case part.queue != nil:
			fmt.Fprintf(&text, "\n%+v", *part.queue)
		case part.exchange != nil:
			fmt.Fprintf(&text, "\n%+v", *part.exchange)
		case part.binding != nil:
			fmt.Fprintf(&text, "\n%+v", *part.binding)
		}
	}
	for _, j := range x.w.journeys(p.plan) {
		fmt.Fprintf(&text, "\n%s %s %s", j.exchange, j.key, j.reason)
	}
	return text.String()
}

// The same where the process that declares has another version of the work queue, or
// the broker was upgraded. Many variants leave the same: the one on the oldest broker
// stands for all of them, because it can be upgraded to each broker that they can.
func TestNoStepOfAChangedDeclarationMakesALetterEither(t *testing.T) {
	t.Parallel()
	all, tried := variants(), map[string]bool{}
	for _, x := range all {
		whole, p := x.declared(t)
		left := x.left(whole, p)
		if tried[left] {
			continue
		}
		tried[left] = true
		journeys, parts := x.w.journeys(p.plan), append([]step{{what: "nothing"}}, p.steps...)
		for _, y := range all {
			if x.w.Type != y.w.Type || x.w.Existing != y.w.Existing || !y.v.AtLeast(x.v.Major, x.v.Minor) {
				continue
			}
			if _, err := y.onTopOf(whole); err != nil {
				if conflict := (*ConflictError)(nil); !errors.As(err, &conflict) && !strings.Contains(err.Error(), "refused here") {
					t.Errorf("%s, then %s: %v", x, y, err)
				}
				continue
			}
			for _, part := range parts {
				n := whole.without(part)
				again, err := y.onTopOf(n)
				if err != nil {
					continue // the wait 1 that told the form is gone
				}
				n.walk(t, func() string { return fmt.Sprintf("%s, without %s, then %s", x, part.what, y) }, again.steps, journeys)
			}
		}
	}
}

// A message with attempts left never ends in the dead-letter queue because one
// exchange or one binding is gone: it comes to a wait, is held, or comes back.
func TestOneExchangeOrBindingThatIsGoneMakesNoLetter(t *testing.T) {
	for _, x := range variants() {
		whole, p := x.declared(t)
		journeys := x.w.journeys(p.plan)
		before := whole.places(journeys)
		for _, part := range p.steps {
			if part.queue != nil {
				continue
			}
			for i, now := range whole.without(part).places(journeys) {
				switch {
				case slices.Equal(now, before[i]), len(now) == 0, len(now) == 1 && journeys[i].allowed(now[0]):
				default:
					t.Errorf("%s, without %s: %+v leads to %v, and before to %v", x, part.what, journeys[i], now, before[i])
				}
			}
		}
	}
}

// Messages whose work queue is gone are kept by the dead-letter queue, because a
// broker that cannot deliver 32 of them out of a wait delivers no other; and those
// whose wait is gone wait in the first one.
func TestWhereMessagesGoWhoseQueueIsGone(t *testing.T) {
	for _, x := range variants() {
		whole, p := x.declared(t)
		for _, part := range slices.Concat(p.steps, []step{{what: "the work queue", queue: &plannedQueue{Name: x.w.Name}}}) {
			if part.queue == nil {
				continue
			}
			n := whole.without(part)
			for _, j := range x.w.journeys(p.plan) {
				was, now := whole.leads(j.exchange, j.key, j.reason), n.leads(j.exchange, j.key, j.reason)
				switch gone := part.queue.Name; {
				case slices.Contains(was, gone) && (gone == x.w.Name || gone == route.WaitQueue(x.w.Name, 1)):
					if !slices.Equal(now, []string{x.w.DeadLetterQueue().Name}) {
						t.Errorf("%s, without %s: %+v leads to %v, want the dead-letter queue", x, gone, j, now)
					}
				case slices.Contains(was, gone) && strings.Contains(gone, ".wait."):
					if !slices.Equal(now, []string{route.WaitQueue(x.w.Name, 1)}) {
						t.Errorf("%s, without %s: %+v leads to %v, want the first wait", x, gone, j, now)
					}
				}
			}
		}
	}
}

// No exchange leads back to itself: neither by bindings nor by alternates.
func TestNoWiringHasALoop(t *testing.T) {
	for _, x := range variants() {
		_, declared := x.declared(t)
		p := declared.plan
		next := map[string][]string{}
		for _, e := range p.exchanges {
			if alternate, ok := e.Args["alternate-exchange"].(string); ok {
				next[e.Name] = append(next[e.Name], alternate)
			}
		}
		for _, b := range p.bindings {
			if b.ToExchange != "" {
				next[b.Exchange] = append(next[b.Exchange], b.ToExchange)
			}
		}
		for _, from := range slices.Sorted(maps.Keys(next)) {
			seen, todo := map[string]bool{}, slices.Clone(next[from])
			for len(todo) > 0 {
				at := todo[0]
				todo = todo[1:]
				if at == from {
					t.Fatalf("%s: %s leads to itself", x, from)
				}
				if !seen[at] {
					seen[at] = true
					todo = append(todo, next[at]...)
				}
			}
		}
	}
}
