package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

func (a *app) compareCommand() *cobra.Command {
	var version string
	return brokerFlag(&cobra.Command{
		Use:   "compare OLD NEW",
		Short: "Say what a change of the specifications changes, without a broker",
		Long: `Compare prints what happens on a broker that has what OLD declares when a service
declares NEW: + is what is new, - is what stays behind, and ~ is another engine, or
what cannot change in place. Each has its effect on messages, and what is to do. The
last line says whether anything has to stop. What others declare for both is taken
to be there. It ends with code 3 if there is a difference. OLD and NEW are files, and
one of them may be - for the standard input.`,
		Example: `  rehop topology compare old.json new.json --broker 4.3`,
		Args:    args(cobra.ExactArgs(2)),
		RunE: func(_ *cobra.Command, rest []string) error {
			if rest[0] == "-" && rest[1] == "-" {
				return usage(errors.New("OLD and NEW are both -, want a file for one of them"))
			}
			if _, err := a.brokerVersion(version); err != nil {
				return err
			}
			old, err := a.written(rest[0], version)
			changed, err2 := a.written(rest[1], version)
			if err := both(err, err2); err != nil {
				return err
			}
			c, err := changeOf(old, changed, cmp.Or(a.vhost, "/"))
			if err != nil {
				return usage(err)
			}
			if a.format == "json" {
				err = a.json(c)
			} else {
				_, err = fmt.Fprint(a.out, c)
			}
			if err != nil || c.isNone() {
				return err
			}
			return &exit{exitPartly, errors.New("NEW differs from OLD")}
		},
	}, &version)
}

// both returns the faults of two files at once.
func both(old, changed error) error {
	if old != nil && changed != nil {
		return usage(errors.New(old.Error() + "\n" + changed.Error()))
	}
	return cmp.Or(old, changed)
}

// change is what happens on a broker that has what OLD declares when NEW is declared.
type change struct {
	Differences []topology.Difference `json:"differences"` // Found is what OLD has, and Expected what NEW has
	Engines     []engineChange        `json:"engines"`
	Attempts    []attemptsChange      `json:"attempts"`
	Notes       []string              `json:"notes"` // of NEW that OLD does not have, and of what consumers do otherwise
	Order       string                `json:"order"` // of the steps, "" for any
	Stops       bool                  `json:"stops"` // something has to stop before NEW can be declared
}

// engineChange is a work queue of both whose failed messages are moved otherwise.
type engineChange struct {
	Queue  string          `json:"queue"`
	Old    topology.Engine `json:"old"`
	New    topology.Engine `json:"new"`
	Why    string          `json:"why"`
	Effect string          `json:"effect"`
}

// attemptsChange is a specification of both whose messages are attempted more or less often.
type attemptsChange struct {
	Kind   string `json:"kind"` // of the specification
	Name   string `json:"name"`
	Old    int    `json:"old"`
	New    int    `json:"new"`
	Effect string `json:"effect"`
}

func (c change) isNone() bool {
	return len(c.Differences)+len(c.Engines)+len(c.Attempts)+len(c.Notes) == 0
}

func changeOf(old, next written, vhost string) (c change, err error) {
	// The broker has what others declare for both.
	others := slices.DeleteFunc(slices.Clone(old.others), func(d topology.Difference) bool {
		return !next.leaves(d)
	})
	file, err := withOthers(old.file, vhost, others)
	if err != nil {
		return c, err
	}
	drift, err := topology.VerifyDefinitions(file, vhost, next.specs...)
	if err != nil {
		return c, err
	}
	c = change{Differences: []topology.Difference{}, Engines: []engineChange{}, Attempts: []attemptsChange{}, Notes: []string{}}
	next.plan = drift.Plan // on the broker of OLD
	if next.file, err = next.plan.Definitions(vhost); err == nil {
		err = next.readParts()
	}
	if err != nil {
		return c, err
	}
	differs := map[part]bool{}
	for _, d := range drift.Differences {
		if d.Class == topology.DriftDiffers {
			differs[part{d.Kind, d.Name}] = true
		}
	}
	groups, goes := old.groups(next, differs)
	toldElsewhere := func(d topology.Difference) bool { // with a group, or with what is deleted because it cannot stay as it is
		ends, whole := []part{{d.Kind, d.Name}}, ""
		if b := old.binding(d); b != nil {
			if ends = []part{b.from(), b.to()}; next.wholeOf(b.Source) == next.wholeOf(b.Destination) {
				whole = next.wholeOf(b.Source)
			}
		} else if d.Kind == "exchange" {
			whole = next.wholeOf(d.Name)
		}
		return slices.ContainsFunc(append(ends, part{"queue", whole}), func(p part) bool { return goes[p] || differs[p] })
	}
	added := map[string][]topology.Difference{} // new parts, by the one that they are a part of
	for _, d := range drift.Differences {
		whole := next.wholeOf(d.Name)
		if d.Class == topology.DriftDiffers && old.binding(d) != nil {
			d.Class = topology.DriftExtra // OLD binds it, and Declare of NEW leaves it
		}
		if d.Kind == "binding" {
			whole = next.wholeOf(strings.TrimPrefix(d.Name[strings.LastIndex(d.Name, "--> ")+len("--> "):], "exchange "))
		}
		switch {
		case d.Class == topology.DriftBroken || d.Class == topology.DriftWeak: // also of OLD
		case d.Class == topology.DriftMissing && whole != "" && whole != d.Name && !old.has(whole) && d.Expected != byOthers:
			added[whole] = append(added[whole], d)
		case d.Class == topology.DriftExtra && toldElsewhere(d):
		default:
			c.Differences = append(c.Differences, inWords(d, old, next, vhost))
		}
	}
	for _, whole := range sortedKeys(added) {
		c.Differences = withParts(c.Differences, whole, added[whole])
	}
	for _, b := range old.bindings { // Verify does not tell of bindings of exact delays: every service that declares delays has some
		d := topology.Difference{Code: "binding-extra", Class: topology.DriftExtra, Kind: "binding", Name: b.String(), Expected: none, Found: b.String()}
		same := func(o binding) bool { return o.String() == d.Name }
		told := slices.ContainsFunc(c.Differences, func(o topology.Difference) bool { return o.Name == d.Name })
		if levels.Is(b.Source) && !told && !toldElsewhere(d) && !slices.ContainsFunc(next.bindings, same) {
			c.Differences = append(c.Differences, inWords(d, old, next, vhost))
		}
	}
	for _, g := range groups {
		c.Differences = append(c.Differences, g.difference(old, next, vhost))
	}
	c.Differences = append(c.Differences, handedOver(old, next)...)
	for _, now := range drift.Plan.Engines {
		for _, was := range old.plan.Engines {
			if was.Queue == now.Queue && was.Engine != now.Engine && len(was.Waits) > 0 && len(now.Waits) > 0 && !differs[part{"queue", now.Queue}] {
				c.Engines = append(c.Engines, engineChange{now.Queue, was.Engine, now.Engine, now.Why, engineEffect[now.Engine]})
			}
		}
	}
	for _, note := range drift.Plan.Notes {
		if !slices.Contains(old.plan.Notes, note) {
			c.Notes = append(c.Notes, note)
		}
	}
	c.addConsumers(old, next)
	steps, single, differ := 0, 0, 0
	for _, d := range c.Differences {
		switch {
		case strings.HasPrefix(d.Remedy, "1. "):
			steps++
		case strings.Contains(d.Remedy, whenNew):
			single++
		}
		if d.Class == topology.DriftDiffers {
			differ++
		}
	}
	if c.Stops = differ > 0; steps+single > 0 && steps+differ > 0 && steps+single+differ > 1 {
		c.Order = fmt.Sprintf("first the steps of every entry before %q, then ~, then the other steps, each time from top to bottom", whenNew)
	}
	return c, nil
}

// addConsumers adds what consumers of NEW do otherwise, although no part of the topology says so.
func (c *change) addConsumers(old, next written) {
	for _, s := range next.specs {
		kind, name := next.nameOf(s)
		before, after := workQueues(old.spec(kind, name)), workQueues(s)
		if len(before) == 0 || len(after) == 0 {
			continue
		}
		was, now := before[0], after[0] // the others have the same
		if was, now := len(was.Waits)+1, len(now.Waits)+1; was != now {
			c.Attempts = append(c.Attempts, attemptsChange{kind, name, was, now, attemptsEffect(was, now)})
		}
		note := func(what, was, now, why string) {
			if was != now {
				c.Notes = append(c.Notes, fmt.Sprintf("%s %s: %s is %s, and %s in OLD: %s", kind, name, what, now, was, why))
			}
		}
		effect := "a queue that exists keeps its own"
		switch isNew := next.plan.Version.AtLeast(4, 3); {
		case isNew && now.Type == topology.Classic:
			effect = "a classic queue of broker 4.3 has none"
		case isNew:
			effect = "the broker takes a message away from a handler of NEW that has it for so long"
		}
		note("consumer_timeout", timeoutText(was.ConsumerTimeout), timeoutText(now.ConsumerTimeout), effect)
		if was.Existing && now.Existing {
			const theirs = "others declare the queue, and it keeps its form"
			note("type", string(cmp.Or(was.Type, topology.Quorum)), string(cmp.Or(now.Type, topology.Quorum)), theirs)
			note("single_active_consumer", strconv.FormatBool(was.SingleActiveConsumer), strconv.FormatBool(now.SingleActiveConsumer), theirs)
		}
	}
}

func timeoutText(d time.Duration) string {
	if d == 0 {
		return "that of the broker"
	}
	return d.String()
}

// attemptsEffect says what becomes of messages that fail with consumers of NEW.
func attemptsEffect(was, now int) string {
	switch {
	case now == 1:
		return "without waits a failure goes straight to the dead-letter queue"
	case now < was:
		return fmt.Sprintf("a message whose attempt %d or a later one fails with consumers of NEW is dead-lettered", now)
	}
	return fmt.Sprintf("a message that fails with consumers of NEW is attempted up to %d times, also one that OLD has attempted", now)
}

// engineEffect says how an engine moves what fails from now on.
var engineEffect = map[topology.Engine]string{
	topology.EngineNack:      "the broker moves what fails with consumers of NEW to its wait",
	topology.EngineRepublish: "consumers of NEW send what fails to its wait as confirmed copies",
	topology.EngineCarry:     "consumers of NEW send what fails to its wait as confirmed copies, and carry it back",
}

// byOthers is the form of what others declare.
const byOthers = "declared by others"

// addIt is what is to do about something new.
const addIt = "nothing stops: topology.Declare of NEW adds it"

// inWords returns a difference between a broker and a plan as one between OLD and NEW.
func inWords(d topology.Difference, old, next written, vhost string) topology.Difference {
	owner, _, isWait := route.WaitOf(d.Name)
	isWait = isWait && !old.has(d.Name) && !next.has(d.Name) // a work queue may have such a name
	switch {
	case d.Class == topology.DriftMissing && d.Expected == byOthers:
		d.Effect = "NEW needs it, and topology.Declare of NEW returns an error without it"
	case d.Class == topology.DriftMissing && old.leaves(d):
		d.Found = byOthers
		d.Effect = "others declared it for OLD: if it has another form, topology.Declare of NEW returns an error"
		d.Remedy = "see what form it has: rehop topology verify NEW"
	case d.Class == topology.DriftMissing:
		d.Remedy = addIt
		switch {
		case d.Kind == "binding":
			d.Effect = "it is new: messages that are published from then on, and match it, take it"
		case d.Kind == "exchange":
			d.Effect = "it is new, and nothing is published to it before NEW"
		case isWait:
			d.Effect = "it is new: what fails with consumers of NEW waits in it. What waits elsewhere comes back as before"
			if !old.has(owner) {
				d.Effect = "it is new, and empty"
			}
		case old.hasShardsOf(d.Name) && next.hasShardsOf(d.Name):
			d.Effect = "it is new, and empty. Keys move to it when publishers know the larger Count, and no message moves"
			d.Remedy = "nothing stops: declare and consume NEW first, and let the publishers know it then"
		default:
			d.Effect = "it is new, and empty"
		}
	case d.Class == topology.DriftDiffers:
		if to := old.bindingsTo(part{d.Kind, d.Name}); len(to) > 0 {
			d.Remedy += ". OLD binds it to " + sourcesText(to)
		}
		if from := old.deadLetteredTo(d.Name); len(from) > 0 && d.Kind == "queue" && next.has(d.Name) {
			d.Remedy += fmt.Sprintf(". Before it is deleted, stop the consumers of %s too, whose dead letters come to it", quoted(from))
		}
	case d.Class == topology.DriftExtra && d.Kind == "binding":
		d.Effect = "it stays: messages that match it still take it, also while NEW runs"
		b := old.binding(d)
		if b == nil {
			break
		}
		if both, all, _ := next.newcomers(old, *b); len(both) > 0 {
			which := "each message that matches both"
			if all {
				which = "each message"
			}
			d.Effect += fmt.Sprintf(". So %s reaches both %q and %s until it is unbound", which, b.Destination, quoted(both))
		}
		when := ""
		if levels.Is(b.Source) {
			when = " and " + old.haveCome(next, vhost)
		}
		d.Remedy = fmt.Sprintf("unbind it %s%s: %s", whenNew, when, b.unbinding(vhost))
	case d.Class == topology.DriftExtra && d.Kind == "exchange":
		d.Effect = "it stays, and leads messages of programs of OLD to the same places"
	case d.Class == topology.DriftExtra && isWait:
		d.Effect = "it stays: messages in it come back as usual, and none come from programs of NEW"
	}
	return d
}

// withParts adds the parts of something new to its own difference, or one for them.
func withParts(list []topology.Difference, whole string, parts []topology.Difference) []topology.Difference {
	var queues []string
	exchanges, bindings := 0, 0
	for _, d := range parts {
		switch d.Kind {
		case "queue":
			queues = append(queues, d.Name)
		case "exchange":
			exchanges++
		default:
			bindings++
		}
	}
	if exchanges > 0 {
		queues = append(queues, fmt.Sprintf("exchanges: %d", exchanges))
	}
	if bindings > 0 {
		queues = append(queues, fmt.Sprintf("bindings: %d", bindings))
	}
	with := strings.Join(queues, ", ")
	at := slices.IndexFunc(list, func(d topology.Difference) bool {
		return d.Kind == "queue" && d.Name == whole && d.Class == topology.DriftMissing
	})
	if at < 0 {
		return append(list, topology.Difference{Code: parts[0].Code, Class: topology.DriftMissing, Kind: "parts of", Name: whole, Expected: with, Found: "none",
			Effect: "they are new, and no message takes them before NEW", Remedy: addIt})
	}
	list[at].Expected += "; with " + with
	return list
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// String returns the change as text for a person.
func (c change) String() string {
	var s strings.Builder
	sign := map[topology.DriftClass]string{topology.DriftMissing: "+", topology.DriftExtra: "-", topology.DriftDiffers: "~"}
	say := func(head string, lines ...[2]string) {
		fmt.Fprintln(&s, plain(head))
		for _, line := range lines {
			fmt.Fprintf(&s, "    %-8s %s\n", line[0]+":", strings.ReplaceAll(line[1], "\n", "\n             "))
		}
	}
	counts := map[string]int{}
	for _, d := range c.Differences {
		mark := cmp.Or(sign[d.Class], "!")
		counts[mark]++
		say(fmt.Sprintf("%s %s %s (%s)", mark, d.Kind, d.Name, d.Code), [2]string{"OLD", plain(d.Found)}, [2]string{"NEW", plain(d.Expected)}, [2]string{"effect", d.Effect}, [2]string{"to do", d.Remedy})
	}
	for _, e := range c.Engines {
		say(fmt.Sprintf("~ engine of %s", e.Queue), [2]string{"OLD", string(e.Old)}, [2]string{"NEW", fmt.Sprintf("%s (%s)", e.New, e.Why)},
			[2]string{"effect", e.Effect + ". What waits comes back as before"}, [2]string{"to do", "nothing stops: programs of OLD and NEW run side by side"})
	}
	for _, a := range c.Attempts {
		say(fmt.Sprintf("~ attempts of %s %s", a.Kind, a.Name), [2]string{"OLD", strconv.Itoa(a.Old)}, [2]string{"NEW", strconv.Itoa(a.New)}, [2]string{"effect", a.Effect},
			[2]string{"to do", "nothing stops: programs of OLD and NEW run side by side"})
	}
	for _, note := range c.Notes {
		say("note " + note)
	}
	if c.Order != "" {
		fmt.Fprintf(&s, "order: %s\n", c.Order)
	}
	var sums []string
	for _, sum := range []struct {
		n    int
		text string
	}{{counts["+"], "new"}, {counts["~"], "cannot change in place"}, {counts["-"], "left behind"}, {counts["!"], "overridden"}, {len(c.Engines), "by another engine"}, {len(c.Attempts), "with other attempts"}} {
		if sum.n > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", sum.n, sum.text))
		}
	}
	stop := "nothing has to stop"
	if slices.ContainsFunc(c.Differences, func(d topology.Difference) bool { return strings.HasPrefix(d.Remedy, "1. ") }) {
		stop += " but for the steps of -"
	}
	switch {
	case c.isNone():
		s.WriteString("no difference\n")
	case len(sums) == 0:
		s.WriteString("nothing has to stop\n")
	case c.Stops:
		fmt.Fprintf(&s, "%s: NEW cannot be declared before something stops, see ~\n", strings.Join(sums, ", "))
	case slices.ContainsFunc(c.Differences, func(d topology.Difference) bool { return strings.Contains(d.Effect, " reaches both ") }):
		fmt.Fprintf(&s, "%s: %s, and messages reach two queues until what - says is done\n", strings.Join(sums, ", "), stop)
	default:
		fmt.Fprintf(&s, "%s: %s\n", strings.Join(sums, ", "), stop)
	}
	return s.String()
}
