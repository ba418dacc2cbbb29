package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/topology"
)

// left returns what a file has, and the next one has no use for, each with the steps that lose nothing.
func left(old, next written, vhost string) (list []topology.Difference) {
	add := func(kind string, code topology.DriftCode, name, found, expected, effect string, steps ...string) {
		list = append(list, topology.Difference{Code: code, Class: topology.DriftExtra, Kind: kind, Name: name, Expected: expected, Found: found, Effect: effect, Remedy: numbered(steps)})
	}
	kept := next.plan.Queues()
	for _, s := range old.specs {
		switch s := s.(type) {
		case topology.WorkQueue:
			u := unit{kind: "queue", name: s.Name, itself: "this WorkQueue", queues: []topology.WorkQueue{s}, existing: s.Existing}
			switch {
			case next.has(s.Name):
				if now, ok := next.work(s.Name); ok && now.Existing && !s.Existing {
					found := cmp.Or(string(s.Type), string(topology.Quorum))
					if to := slices.DeleteFunc(u.sources(old), func(b binding) bool { return levels.Is(b.Source) }); len(to) > 0 {
						found += ", bound to " + u.describe(to)
					}
					add("declaration of", "queue-extra", s.Name, found, byOthers, "the queue stays with its bindings. NEW declares neither, so nobody puts it or a binding back after it was deleted",
						"its new owner declares it with the same arguments, and its bindings")
				}
			case slices.Contains(kept, s.Name) && len(s.Waits) == 0: // it stays a dead-letter queue
			case slices.Contains(kept, s.Name):
				var deleteThem []string
				for _, wait := range old.waitsOf(s.Name) {
					deleteThem = append(deleteThem, ctl.Command("rabbitmqctl delete_queue", vhost, wait))
				}
				add("waits of", "queue-extra", s.Name, strings.Join(old.waitsOf(s.Name), ", "), none, "they stay. NEW has the queue for dead letters, and no program of NEW consumes it",
					fmt.Sprintf("consume it by a program of OLD until its waits are empty (%s), and stop that program", ctl.Empty(vhost, fmt.Sprintf("each %q", s.Name+".wait.*"))), strings.Join(deleteThem, "; "))
			default:
				u.add(old, next, vhost, add)
			}
		case topology.Lanes:
			now, has := next.lanes(s.Name)
			switch {
			case !has:
				unit{kind: "lanes", name: s.Name, itself: "these Lanes", queues: s.WorkQueues(), exchange: s.Exchange()}.without(next).add(old, next, vhost, add)
			default:
				for _, w := range s.WorkQueues() {
					if slices.ContainsFunc(now.WorkQueues(), func(n topology.WorkQueue) bool { return n.Name == w.Name }) || next.has(w.Name) {
						continue
					}
					steps := []string{fmt.Sprintf("before exchange %s is deleted, see ~, %s", s.Exchange(), ctl.Consumed(vhost, w.Name))}
					deleteIt := "topology.Delete of this one of Lanes.WorkQueues of OLD"
					switch dlq := w.DeadLetterQueue().Name; {
					case slices.Contains(kept, dlq) && dlq != commonLetters(s.WorkQueues()):
						deleteIt = fmt.Sprintf("%s (topology.Delete of it would delete %s, which NEW keeps)", deletion(old, vhost, w), dlq)
					case dlq != commonLetters(s.WorkQueues()):
						steps = append(steps, lettersStep(vhost, 1, dlq))
					}
					add("queue", "queue-extra", w.Name, "declared by OLD", none, "it stays with its waits and dead letters, and no program of NEW handles them", append(steps, deleteIt)...)
				}
			}
		case topology.Shards:
			if !slices.ContainsFunc(next.specs, func(n topology.Spec) bool { n2, ok := n.(topology.Shards); return ok && n2.Name == s.Name }) {
				unit{kind: "shards", name: s.Name, itself: "these Shards", queues: s.WorkQueues()}.without(next).add(old, next, vhost, add)
			}
		case topology.DeadLetterQueue:
			if slices.Contains(kept, s.Name) || old.ofWork(s.Name) {
				break
			}
			deleteIt := "topology.Delete of this DeadLetterQueue alone"
			if s.Exchange != "" && slices.Contains(next.plan.Exchanges(), s.Exchange) {
				deleteIt = fmt.Sprintf("%s (topology.Delete of it may delete exchange %s, which NEW keeps)", ctl.Command("rabbitmqctl delete_queue", vhost, s.Name), s.Exchange)
			}
			add("queue", "queue-extra", s.Name, "declared by OLD", none, "it stays with what is in it", "when nothing publishes to it, "+lettersStep(vhost, 0, s.Name), deleteIt)
		case topology.Exchange:
			needed := next.leaves(topology.Difference{Kind: "exchange", Name: s.Name})
			switch kind := cmp.Or(s.Kind, "topic"); {
			case slices.Contains(next.plan.Exchanges(), s.Name):
			case needed:
				add("exchange", "exchange-extra", s.Name, kind, byOthers, "it stays, and NEW binds to it and does not declare it: topology.Declare of NEW returns an error if it is gone",
					"its new owner declares it, as "+kind)
			default:
				add("exchange", "exchange-extra", s.Name, kind, none, "it stays with its bindings", "when nothing publishes to it: topology.Delete of this Exchange alone, which leaves it while anything is bound to it")
			}
		}
	}
	delays := map[string]bool{}
	for _, name := range old.plan.Queues() {
		if levels.Is(name) && !slices.Contains(kept, name) {
			delays[old.wholeOf(name)] = true
		}
	}
	for _, whole := range sortedKeys(delays) {
		add("delays", "queue-extra", whole, "declared by OLD", none, "they stay: delayed messages come as before, and other services of the virtual host may use them",
			"when no service uses them: topology.Delete of these Delays alone")
	}
	return list
}

// none is the form of what is not there.
const none = "none"

// numbered returns steps in their order, one a line. A single step has no number.
func numbered(steps []string) string {
	if len(steps) == 1 {
		return steps[0]
	}
	lines := make([]string, len(steps))
	for i, s := range steps {
		lines[i] = fmt.Sprintf("%d. %s", i+1, s)
	}
	return strings.Join(lines, "\n")
}

// unit is a specification of OLD that has work queues, and that NEW does not have.
type unit struct {
	kind, name string
	itself     string // for topology.Delete
	queues     []topology.WorkQueue
	exchange   string // of lanes
	existing   bool
	common     string   // dead-letter queue of all of them, "" for none
	keeps      []string // those work queues that NEW has under another kind of specification
}

// without leaves out the work queues that NEW has.
func (u unit) without(next written) unit {
	u.common = commonLetters(u.queues)
	u.queues = slices.DeleteFunc(u.queues, func(w topology.WorkQueue) bool {
		if next.has(w.Name) {
			u.keeps = append(u.keeps, w.Name)
		}
		return next.has(w.Name)
	})
	return u
}

// commonLetters returns the dead-letter queue that the work queues of lanes or shards have in common, "" for none.
func commonLetters(queues []topology.WorkQueue) string {
	if dlq := queues[0].DeadLetterQueue().Name; dlq != queues[0].Name+".dlq" {
		return dlq
	}
	return ""
}

// deletion returns the commands that delete a work queue and its waits.
func deletion(old written, vhost string, w topology.WorkQueue) string {
	var commands []string
	if !w.Existing {
		commands = append(commands, ctl.Command("rabbitmqctl delete_queue", vhost, w.Name))
	}
	for _, wait := range old.waitsOf(w.Name) {
		commands = append(commands, ctl.Command("rabbitmqctl delete_queue", vhost, wait))
	}
	return strings.Join(commands, "; ")
}

// lettersStep is the step that empties dead-letter queues. What is sent back has to be consumed: again is the step for that, 0 for none.
func lettersStep(vhost string, again int, dlqs ...string) string {
	name, of := dlqs[0], strconv.Quote(dlqs[0])
	if len(dlqs) > 1 {
		name, of = "DLQ", "each of them"
	}
	after := ""
	if again > 0 {
		after = fmt.Sprintf(" and do step %d again", again)
	}
	return fmt.Sprintf("empty %s: move the dead letters (%s), or take them out (%s), or send them back (%s)%s; wait until nothing is left (%s)", strings.Join(dlqs, " and "),
		ctl.Rehop("dlq move --all --to QUEUE", vhost, name), ctl.Rehop("dlq drop --all --copy letters.jsonl", vhost, name), ctl.Rehop("dlq send --all", vhost, name), after, ctl.Empty(vhost, of))
}

func (u unit) add(old, next written, vhost string, add func(kind string, code topology.DriftCode, name, found, expected, effect string, steps ...string)) {
	var parts, names, letters, keptLetters []string
	kept := func(dlq string) bool { return slices.Contains(next.plan.Queues(), dlq) }
	for _, w := range u.queues {
		names = append(names, w.Name)
		if u.kind != "queue" {
			parts = append(parts, w.Name)
		}
		parts = append(parts, old.waitsOf(w.Name)...)
		if dlq := w.DeadLetterQueue().Name; !slices.Contains(letters, dlq) {
			letters = append(letters, dlq)
		}
	}
	if u.common != "" && !slices.Contains(letters, u.common) {
		letters = append(letters, u.common)
	}
	if len(names) == 0 && u.exchange == "" { // NEW has all but the dead letters that they had in common
		if u.common != "" && !kept(u.common) {
			add("queue", "queue-extra", u.common, "declared by OLD", none, "it stays, and dead letters come to it too as long as its bindings stay",
				lettersStep(vhost, 0, u.common), ctl.Command("rabbitmqctl delete_queue", vhost, u.common))
		}
		return
	}
	found := "declared by OLD, with " + strings.Join(append(parts, letters...), ", ")
	var leave, stay []binding // to unbind, and those of delayed messages that come in any case
	both, exactly := []string{}, true
	var lost []binding // of those to unbind, the ones that NEW has no other one of
	for _, b := range u.sources(old) {
		meets, all, same := next.newcomers(old, b, u)
		if levels.Is(b.Source) && !same {
			stay = append(stay, b)
			continue
		}
		leave = append(leave, b)
		if !same {
			lost = append(lost, b)
		}
		for _, other := range meets {
			if !slices.Contains(both, other) {
				both = append(both, other)
			}
		}
		exactly = exactly && all && len(meets) > 0
	}
	has, keep, by := "it stays with its waits and dead letters: ", "keep it in NEW without its Bindings", "it by its name"
	if u.kind != "queue" {
		has, keep, by = "they stay with their waits and dead letters: ", "keep them in NEW without Bindings", "them by their names"
	}
	if len(u.keeps) > 0 {
		keep = fmt.Sprintf("keep %s in NEW by WorkQueue without Bindings", strings.Join(names, " and "))
	}
	if u.exchange != "" {
		by = fmt.Sprintf("exchange %q", u.exchange)
	}
	if u.existing {
		has = "others declare it, and its waits and dead letters stay: "
	}
	var effect string
	switch {
	case len(both) > 0:
		which := "each message that matches both"
		if exactly {
			which = "each message"
		}
		effect = fmt.Sprintf("%s reaches both %q and %s from when NEW is declared until %q is unbound, and is handled twice while both are consumed", which, u.name, quoted(both), u.name)
	case len(leave) > 0:
		effect = fmt.Sprintf("messages still come from %s, and no program of NEW handles them", exchangesText(leave))
	case u.existing:
		effect = "messages still come, and no program of NEW handles them"
	default:
		effect = fmt.Sprintf("what is published to %s still comes, and no program of NEW handles it", by)
	}
	var before []string // the steps before the queues are emptied
	switch {
	case len(leave) > 0:
		unbind := "unbind it from " + u.describe(leave)
		how := "on its page in the management plugin, or by Channel.QueueUnbind"
		if u.exchange != "" {
			unbind, how = fmt.Sprintf("unbind exchange %q from %s", u.exchange, u.describe(leave)), "on its page in the management plugin, or by Channel.ExchangeUnbind; a lane with Bindings by Channel.QueueUnbind"
		}
		if len(lost) > 0 {
			how += fmt.Sprintf(". Messages from %s that match no other binding reach no queue then: stop what publishes them before", u.describe(lost))
		}
		if len(names) > 0 {
			before = append(before, keep)
		}
		before = append(before, fmt.Sprintf("when NEW is declared and no program of OLD runs, %s, %s", unbind, how))
	case u.existing:
		before = append(before, "let its owner publish nothing to it, or consume it by another program from then on")
	default:
		before = append(before, fmt.Sprintf("let what publishes to %s publish elsewhere", by))
	}
	steps, again := before, 0
	if len(names) > 0 {
		empty := ctl.Consumed(vhost, names...)
		if len(u.keeps) > 0 && len(names) == 1 {
			empty = fmt.Sprintf("of %s, %s", names[0], empty)
		}
		if len(stay) > 0 {
			empty += ", when no message is delayed to it any more: messages that are delayed to it by its name still come"
		}
		steps = append(steps, empty)
		again = len(steps)
	}
	letters = slices.DeleteFunc(letters, func(dlq string) bool {
		if kept(dlq) {
			keptLetters = append(keptLetters, dlq)
		}
		return kept(dlq)
	})
	if len(letters) > 0 {
		steps = append(steps, lettersStep(vhost, again, letters...))
	}
	if len(keptLetters) == 0 && len(u.keeps) == 0 {
		steps = append(steps, fmt.Sprintf("topology.Delete of %s alone: with all of OLD it would delete what NEW keeps", u.itself))
	} else {
		steps = append(steps, u.deletions(old, vhost, kept)...)
	}
	if len(leave) > 0 && len(names) > 0 {
		steps[0] += fmt.Sprintf(" until step %d, to be consumed: a program of OLD binds it again when it declares", len(steps))
	}
	add(u.kind, "queue-extra", u.name, found, none, has+effect, steps...)
}

// deletions returns the steps that delete a unit of which NEW keeps something.
func (u unit) deletions(old written, vhost string, kept func(dlq string) bool) (steps []string) {
	var alone, byCommand, keptLetters []string
	for _, w := range u.queues {
		if dlq := w.DeadLetterQueue().Name; !kept(dlq) {
			alone = append(alone, w.Name)
		} else if byCommand = append(byCommand, deletion(old, vhost, w)); !slices.Contains(keptLetters, dlq) {
			keptLetters = append(keptLetters, dlq)
		}
	}
	if len(byCommand) > 0 {
		steps = append(steps, fmt.Sprintf("%s (topology.Delete of it would delete %s, which NEW keeps)", strings.Join(byCommand, "; "), strings.Join(keptLetters, " and ")))
	}
	if len(alone) > 0 {
		would := strings.Join(append(keptLetters, u.keeps...), " and ")
		steps = append(steps, fmt.Sprintf("topology.Delete of %s of WorkQueues of OLD, one by one: of %s it would delete %s, which NEW keeps", strings.Join(alone, " and "), u.itself, would))
	}
	if len(u.keeps) == 0 {
		return steps
	}
	if u.common != "" && !kept(u.common) {
		steps = append(steps, ctl.Command("rabbitmqctl delete_queue", vhost, u.common))
	}
	if u.exchange != "" {
		steps = append(steps, fmt.Sprintf("delete exchange %s (%s), and so those whose names begin with %s", u.exchange, ctl.API("DELETE", "", "exchanges", vhost, u.exchange), u.exchange+"."))
	}
	return steps
}

// sources returns the bindings by which messages come to a unit.
func (u unit) sources(w written) (list []binding) {
	for _, b := range w.bindings {
		own := func(q topology.WorkQueue) bool { return strings.HasPrefix(b.Source, q.Name+".rehop.") }
		to := func(q topology.WorkQueue) bool { return b.DestinationType == "queue" && b.Destination == q.Name }
		isOwn := u.exchange != "" && (b.Source == u.exchange || strings.HasPrefix(b.Source, u.exchange+"."))
		if !isOwn && !slices.ContainsFunc(u.queues, own) && (slices.ContainsFunc(u.queues, to) || b.DestinationType == "exchange" && u.exchange != "" && b.Destination == u.exchange) {
			list = append(list, b)
		}
	}
	return list
}

// describe returns the exchanges that bindings lead from, with their keys.
func (u unit) describe(list []binding) string {
	keys := map[string][]string{}
	var order []string
	for _, b := range list {
		if keys[b.Source] == nil {
			order = append(order, b.Source)
		}
		keys[b.Source] = append(keys[b.Source], b.key())
	}
	for i, source := range order {
		order[i] = fmt.Sprintf("exchange %q (%s)", source, strings.Join(keys[source], ", "))
	}
	return strings.Join(order, " and ")
}

func exchangesText(list []binding) string {
	var names []string
	for _, b := range list {
		if name := fmt.Sprintf("exchange %q", b.Source); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

func quoted(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(texts, " and ")
}

// binding is a binding of a file of definitions.
type binding struct {
	Source          string         `json:"source"`
	Destination     string         `json:"destination"`
	DestinationType string         `json:"destination_type"`
	RoutingKey      string         `json:"routing_key"`
	Arguments       map[string]any `json:"arguments"`
}

func (b binding) key() string {
	if target := strings.TrimLeft(b.RoutingKey, "*."); levels.Is(b.Source) {
		return fmt.Sprintf("key that ends with %q", target)
	}
	text := fmt.Sprintf("key %q", b.RoutingKey)
	for _, name := range sortedKeys(b.Arguments) {
		text += fmt.Sprintf(" %s=%v", name, b.Arguments[name])
	}
	return text
}

// String is the name of the binding in a topology.Difference.
func (b binding) String() string {
	args := ""
	for _, name := range sortedKeys(b.Arguments) {
		args += fmt.Sprintf(" %s=%v", name, b.Arguments[name])
	}
	to := b.Destination
	if b.DestinationType == "exchange" {
		to = "exchange " + to
	}
	return fmt.Sprintf("%s --%s%s--> %s", b.Source, b.RoutingKey, args, to)
}

// newcomers returns the queues, or exchanges of lanes, that a new binding leads messages of a former one to, whether
// each of them takes all of these messages, and whether some binding of NEW elsewhere does.
func (w written) newcomers(old written, b binding, u unit) (names []string, all, same bool) {
	all = true
	for _, n := range w.bindings {
		if n.Source != b.Source || slices.ContainsFunc(u.queues, func(q topology.WorkQueue) bool { return q.Name == n.Destination }) || n.Destination == u.exchange && u.exchange != "" {
			continue
		}
		kind := old.kinds[b.Source]
		equal := kind == "fanout" || n.RoutingKey == b.RoutingKey && maps.EqualFunc(n.Arguments, b.Arguments, func(x, y any) bool { return fmt.Sprint(x) == fmt.Sprint(y) })
		same = same || equal
		isNew := !slices.ContainsFunc(old.bindings, func(o binding) bool { return o.String() == n.String() })
		if isNew && (equal || meet(kind, n.RoutingKey, b.RoutingKey)) {
			all = all && equal
			if !slices.Contains(names, n.Destination) {
				names = append(names, n.Destination)
			}
		}
	}
	return names, all, same
}

// meet reports whether one message may match two binding keys of an exchange of a kind.
func meet(kind, a, b string) bool {
	switch kind {
	case "direct":
		return a == b
	case "topic":
		return topicsMeet(strings.Split(a, "."), strings.Split(b, "."))
	}
	return true
}

func topicsMeet(a, b []string) bool {
	// meets[i][j] is whether a from word i on and b from word j on meet.
	meets := make([][]bool, len(a)+1)
	for i := len(a); i >= 0; i-- {
		meets[i] = make([]bool, len(b)+1)
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
				meets[i][j] = true
			case i < len(a) && a[i] == "#":
				meets[i][j] = meets[i+1][j] || j < len(b) && meets[i][j+1]
			case j < len(b) && b[j] == "#":
				meets[i][j] = meets[i][j+1] || i < len(a) && meets[i+1][j]
			case i < len(a) && j < len(b):
				meets[i][j] = (a[i] == b[j] || a[i] == "*" || b[j] == "*") && meets[i+1][j+1]
			}
		}
	}
	return meets[0][0]
}

// waitsOf returns the waits of a work queue.
func (w written) waitsOf(queue string) []string {
	for _, e := range w.plan.Engines {
		if e.Queue == queue {
			return e.Waits
		}
	}
	return nil
}

// ofWork reports whether a queue has the dead letters of a work queue.
func (w written) ofWork(dlq string) bool {
	for _, s := range w.specs {
		for _, q := range workQueues(s) {
			if q.DeadLetterQueue().Name == dlq {
				return true
			}
		}
	}
	return false
}

func workQueues(s topology.Spec) []topology.WorkQueue {
	switch s := s.(type) {
	case topology.WorkQueue:
		return []topology.WorkQueue{s}
	case topology.Lanes:
		return s.WorkQueues()
	case topology.Shards:
		return s.WorkQueues()
	}
	return nil
}

func (w written) work(name string) (topology.WorkQueue, bool) {
	for _, s := range w.specs {
		if q, ok := s.(topology.WorkQueue); ok && q.Name == name {
			return q, true
		}
	}
	return topology.WorkQueue{}, false
}

func (w written) lanes(name string) (topology.Lanes, bool) {
	for _, s := range w.specs {
		if l, ok := s.(topology.Lanes); ok && l.Name == name {
			return l, true
		}
	}
	return topology.Lanes{}, false
}

// attemptsOf returns the number of attempts of each specification that has work queues, by its name.
func (w written) attemptsOf() map[string]int {
	all := map[string]int{}
	for _, s := range w.specs {
		switch s := s.(type) {
		case topology.WorkQueue:
			all[s.Name] = len(s.Waits) + 1
		case topology.Lanes:
			all[s.Name] = len(s.Waits) + 1
		case topology.Shards:
			all[s.Name] = len(s.Waits) + 1
		}
	}
	return all
}

// readParts reads the bindings of a file of definitions, and the kinds of its exchanges.
func (w *written) readParts() error {
	var parts struct {
		Bindings  []binding
		Exchanges []struct{ Name, Type string }
	}
	if err := json.Unmarshal(w.file, &parts); err != nil {
		return err
	}
	w.bindings, w.kinds = parts.Bindings, map[string]string{}
	for _, e := range parts.Exchanges {
		w.kinds[e.Name] = e.Type
	}
	return nil
}
