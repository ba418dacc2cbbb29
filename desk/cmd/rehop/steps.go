package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rehop/rehop/internal/ctl"
)

// whenNew is when nothing comes by programs of OLD any more, and what is left of them can go.
const whenNew = "when NEW is declared and no program of OLD runs"

// steps returns what is to do, so that no message is lost: nothing comes any more, what is there is handled, dead letters leave, and the
// parts are deleted.
func (g group) steps(old, next written, vhost string) (steps []string) {
	add := func(step string, lines ...string) int {
		steps = append(steps, strings.Join(append([]string{step}, lines...), "\n"))
		return len(steps)
	}
	stops, before := strings.Join(g.stops, " or "), ""
	switch {
	case len(g.stops) > 0:
		before = fmt.Sprintf("before %s is deleted, see ~, ", stops)
	case len(g.after) > 0:
		before = fmt.Sprintf("%s, and the steps of %s are done, ", whenNew, quoted(g.after))
	}
	if g.keeps() {
		add(fmt.Sprintf("keep %s in NEW, as %sOLD has it and without Bindings", quoted(g.work), map[string]string{"lanes": "Lanes.WorkQueues of ", "shards": "Shards.WorkQueues of "}[g.kind]))
	}
	if ways := g.stopped(); len(ways) > 0 {
		add(fmt.Sprintf("stop what publishes to %s too, with what publishes to %s, see ~", sourcesText(ways), stops))
	}
	switch entrances := g.entrances(); {
	case g.shrinks && len(g.work) > 0:
		add("let the publishers know the smaller Count, and consume the larger one")
	case entrances != "":
		add(fmt.Sprintf("let what publishes to %s publish elsewhere", entrances))
	}
	from, to, consumed := 0, 0, 0 // the steps in which what is sent back is handled, and of these that of the work queues that go
	addWaits := func(before string) {
		for _, name := range g.kept {
			n := add(before + fmt.Sprintf("stop what publishes to %q or call Pause of its consumers, let a program of OLD run until its waits are empty (%s), and stop that program",
				name, ctl.Empty(vhost, fmt.Sprintf("each %q", name+".wait.*"))))
			from = cmp.Or(from, n)
		}
	}
	ofOld := len(g.stops) == 0 && len(g.unbind)+len(g.after) > 0 // steps follow for which no program of OLD may run
	if ofOld {
		addWaits("")
		from = 0 // what is sent back afterwards is for the new owner
	}
	if len(g.stops) == 0 {
		g.addUnbinding(old, next, vhost, whenNew, add)
	}
	if len(g.work) > 0 {
		step := ctl.Consumed(vhost, g.work...)
		if g.delayed {
			step += ", when no message is delayed to it any more: messages that are delayed to it by its name still come"
		}
		consumed = add(before + step)
		from = cmp.Or(from, consumed)
	}
	if !ofOld {
		addWaits(before)
	}
	to = len(steps)
	for _, name := range g.held {
		from, to = consumed, consumed // the new owner consumes what is held
		add(fmt.Sprintf("when nothing publishes to %q and it is empty, its new owner deletes it and declares it without x-dead-letter-exchange=%s. Nothing of this group is deleted before: what the broker dead-letters from %q would be lost",
			name, old.deadTo[name], name))
	}
	if g.delayed && len(g.work) == 0 {
		add(fmt.Sprintf("%s, wait until %s", whenNew, old.haveCome(next, vhost)))
	}
	if len(g.stops) > 0 {
		g.addUnbinding(old, next, vhost, "when no program of OLD runs, and before anything publishes again, see ~", add)
		to = len(steps) // programs of OLD bind it again
	}
	again := fmt.Sprintf(" and do step %d again", from)
	switch {
	case from == 0:
		again = ""
	case from < to:
		again = fmt.Sprintf(" and do steps %d to %d again", from, to)
	}
	if len(g.levels) > 0 {
		longer := ""
		if next.has(g.name) {
			longer = " for longer than Delays.Max of NEW"
		}
		add(fmt.Sprintf("%s, and no service delays messages by it%s any more, wait until they have come (%s)", whenNew, longer, ctl.Empty(vhost, fmt.Sprintf("each of %q to %q", g.levels[0], g.levels[len(g.levels)-1]))))
	}
	if len(g.letters) > 0 {
		if len(g.work)+len(g.stops) > 0 {
			before = "" // of a step before it
		}
		add(before + g.lettersStep(vhost, again, g.twins(old, next)))
	}
	var commands, queues, dlqs []string
	for _, of := range g.inUse {
		commands = append(commands, ctl.Rehop("dlq send --queue="+ctl.Quote(of[0]), vhost, of[1]))
		queues, dlqs = append(queues, of[0]), append(dlqs, of[1])
	}
	if len(commands) > 0 {
		add(fmt.Sprintf("what failed in %s and is in %s has no queue to go back to afterwards. Send back what is to be handled%s:", quoted(queues), quoted(unique(dlqs)), again), commands...)
	}
	last := whenNew
	switch {
	case g.kind != "lanes" && len(g.open()) > 0:
		but := ""
		if len(g.bound) > 0 {
			but = fmt.Sprintf(", but %s,", quoted(unique(g.bound)))
		}
		last += fmt.Sprintf(", and nothing that stays%s is bound to %s (%s)", but, quoted(g.open()), ctl.Command("rabbitmqctl list_bindings", vhost, "source_name", "destination_name"))
	case len(g.kept) > 0:
		last += ", and no policy leads dead letters to what is deleted"
	}
	commands = nil
	for _, name := range g.named("queue") {
		commands = append(commands, ctl.Command("rabbitmqctl delete_queue", vhost, name))
	}
	if exchanges := g.named("exchange"); len(exchanges) > 0 {
		commands = append(commands, ctl.APIs("DELETE", exchanges, "exchanges", vhost))
	}
	n := add(last+":", commands...)
	if g.keeps() {
		steps[0] += fmt.Sprintf(" until step %d, to be consumed: a program of OLD binds it again when it declares", n)
	}
	return steps
}

// addUnbinding adds the step that unbinds what NEW does not bind.
func (g group) addUnbinding(old, next written, vhost, when string, add func(step string, lines ...string) int) {
	if len(g.unbind) == 0 {
		return
	}
	var commands []string
	var lost []binding
	for _, b := range g.unbind {
		commands = append(commands, b.unbinding(vhost))
		if _, _, same := next.newcomers(old, b); !same {
			lost = append(lost, b)
		}
	}
	step := fmt.Sprintf("%s, unbind %s", when, described(g.unbind))
	if len(lost) > 0 {
		step += fmt.Sprintf(". Messages from %s that match no other binding reach no queue then: stop what publishes them before", sourcesText(lost))
	}
	add(step+":", commands...)
}

// lettersStep returns the step that empties the dead-letter queues. again says which steps consume what it sends back. If g.after is not empty, the queues
// also have dead letters of other groups, which cannot go back: their work queues are gone by then. A letter that failed after NEW was declared
// is in twins as well, unless it failed in a queue of work.
func (g group) lettersStep(vhost, again string, twins []string) string {
	name, of := g.letters[0], strconv.Quote(g.letters[0])
	if len(g.letters) > 1 {
		name, of = "DLQ", "each of them"
	}
	sends := func(queues []string) string {
		var commands []string
		for _, name := range g.letters {
			for _, queue := range queues {
				commands = append(commands, ctl.Rehop("dlq send --queue="+ctl.Quote(queue), vhost, name))
			}
		}
		return strings.Join(commands, "; ")
	}
	own, all := sends(g.work), ctl.Rehop("dlq send --all", vhost, name)
	if stay := sends(slices.Concat(g.work, g.kept)); len(g.after) > 0 && stay != "" {
		all = stay
	}
	back := fmt.Sprintf("send them back (%s)%s", all, again)
	if len(twins) > 0 {
		back = fmt.Sprintf("send those back that failed before NEW was declared, TIME ago (%s)%s: later ones may be in %s too", ctl.Rehop("dlq send --older TIME", vhost, name), again, quoted(twins))
		if own != "" {
			back += fmt.Sprintf(", but not those of %s (%s)", quoted(g.work), own)
		}
	}
	return fmt.Sprintf("empty %s: move the dead letters (%s), or take them out (%s), or %s; wait until nothing is left (%s)", strings.Join(g.letters, " and "),
		ctl.Rehop("dlq move --all --to QUEUE", vhost, name), ctl.Rehop("dlq drop --all --copy letters.jsonl", vhost, name), back, ctl.Empty(vhost, of))
}

// numbered returns steps in their order, one a line, and the commands of each on lines below it. A single step has no number.
func numbered(steps []string) string {
	if len(steps) == 1 {
		return steps[0]
	}
	lines := make([]string, len(steps))
	for i, s := range steps {
		lines[i] = fmt.Sprintf("%d. %s", i+1, strings.ReplaceAll(s, "\n", "\n   "))
	}
	return strings.Join(lines, "\n")
}
