package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/topology"
)

// part is a queue or an exchange.
type part struct{ kind, name string }

// group is what one specification of OLD declares, and NEW neither declares nor needs. The steps of a group delete its parts
// by their names, and so nothing of NEW.
type group struct {
	kind, name string // of the specification
	parts      []part // the queues first

	work    []string    // its work queues
	kept    []string    // work queues that stay, and whose waits go
	held    []string    // work queues that stay, and dead-letter to an exchange of the group
	levels  []string    // of delays
	letters []string    // its other queues without waits
	inUse   [][2]string // of work: a queue and its dead-letter queue, where that is no part of the group

	unbind  []binding // by which messages come to it from elsewhere
	delayed bool      // messages that are delayed to it by its name come too
	bound   []string  // what stays and is bound to its exchanges
	stops   []string  // what is deleted and declared again (~), and leads to the group, takes its dead letters or is of kept
	after   []string  // work queues of other groups that go, and whose dead letters come to it
	shrinks bool      // NEW has these shards with a smaller Count
}

// groups returns what stays behind, those with work queues first, and each before where its dead letters go. What differs cannot stay
// as it is.
func (w written) groups(next written, differs map[part]bool) (list []group, goes map[part]bool) {
	has := map[part]bool{} // NEW
	for _, p := range planned(next.plan) {
		has[p] = true
	}
	for _, d := range next.others {
		has[part{d.Kind, d.Name}] = true
	}
	goes = map[part]bool{}
	specs := inOrder(w.specs)
	all := make([]group, len(specs))
	for _, p := range planned(w.plan) {
		owner := w.wholeOf(p.name)
		ofKept := strings.HasPrefix(p.name, owner+".rehop.") || strings.HasPrefix(p.name, owner+".wait.")
		if has[p] || next.has(owner) && ofKept { // NEW's, or told by Verify
			continue
		}
		if at := w.ownerIn(specs, p); at >= 0 {
			goes[p], all[at].parts = true, append(all[at].parts, p)
		}
	}
	for i, g := range all {
		if len(g.parts) == 0 {
			continue
		}
		g.kind, g.name = w.nameOf(specs[i])
		g.shrinks = g.kind == "shards" && next.spec(g.kind, g.name) != nil
		g.sort(w, differs)
		g.findWays(w, next, goes, differs)
		list = append(list, g)
	}
	takes := func(of [2]string) *group { // dead letters of another group
		if at := slices.IndexFunc(list, func(g group) bool { return slices.Contains(g.parts, part{"queue", of[1]}) }); at >= 0 {
			return &list[at]
		}
		return &group{}
	}
	for i := range slices.Backward(list) {
		for _, of := range list[i].inUse {
			to := takes(of)
			list[i].stops, to.after = unique(append(list[i].stops, to.stops...)), append(to.after, of[0])
		}
	}
	return list, goes
}

// keeps reports whether the work queues of a group are consumed while NEW is declared.
func (g group) keeps() bool {
	isUnbound := slices.ContainsFunc(g.unbind, func(b binding) bool { return !slices.Contains(g.letters, b.Destination) })
	return (isUnbound || len(g.after) > 0) && len(g.work) > 0 && len(g.stops) == 0
}

// inOrder returns specifications with work queues first, and each before one whose work queue takes its dead letters.
func inOrder(specs []topology.Spec) (list []topology.Spec) {
	rest := slices.Clone(specs)
	slices.SortStableFunc(rest, func(a, b topology.Spec) int { return min(1, len(workQueues(b))) - min(1, len(workQueues(a))) })
	for len(rest) > 0 {
		at := slices.IndexFunc(rest, func(s topology.Spec) bool {
			return !slices.ContainsFunc(workQueues(s), func(to topology.WorkQueue) bool {
				return slices.ContainsFunc(rest, func(o topology.Spec) bool {
					return slices.ContainsFunc(workQueues(o), func(from topology.WorkQueue) bool { return from.DeadLetterQueue().Name == to.Name })
				})
			})
		})
		at = max(0, at) // in a circle none is before the others
		list, rest = append(list, rest[at]), slices.Delete(rest, at, at+1)
	}
	return list
}

// ownerIn returns the specification that a part belongs to, -1 for none. A dead-letter queue belongs to the last one with work queues
// that has it, so that it is there as long as something dead-letters to it.
func (w written) ownerIn(specs []topology.Spec, p part) int {
	owner := -1
	for i, s := range specs {
		if w.owns(s, p) && (owner < 0 || len(workQueues(s)) > 0) {
			owner = i
		}
	}
	return owner
}

// owns reports whether a part belongs to a specification, as its name says.
func (w written) owns(s topology.Spec, p part) bool {
	kind, name := w.nameOf(s)
	switch s := s.(type) {
	case topology.DeadLetterQueue:
		return p == part{kind, name} || p == part{"exchange", s.Exchange}
	case topology.Exchange:
		return p == part{kind, name}
	case topology.Delays:
		return strings.HasPrefix(p.name, name+".")
	case topology.Lanes:
		ofLanes := strings.HasPrefix(p.name, s.Exchange()+".unrouted.") || strings.HasPrefix(p.name, s.Exchange()+".due.")
		if p.kind == "exchange" && (p.name == s.Exchange() || ofLanes && w.wholeOf(p.name) == "") {
			return true
		}
	}
	whole := w.wholeOf(p.name)
	isWork := p.kind == "queue" && w.has(p.name)
	return slices.ContainsFunc(workQueues(s), func(q topology.WorkQueue) bool {
		dlq := q.DeadLetterQueue().Name
		return p == part{"queue", q.Name} || p == part{"queue", dlq} && !isWork || whole == q.Name && p.name != whole && !strings.HasSuffix(p.name, ".dlq")
	})
}

func (w written) nameOf(s topology.Spec) (kind, name string) {
	switch s := s.(type) {
	case topology.WorkQueue:
		return "queue", s.Name
	case topology.DeadLetterQueue:
		return "queue", s.Name
	case topology.Lanes:
		return "lanes", s.Name
	case topology.Shards:
		return "shards", s.Name
	case topology.Delays:
		return "delays", w.wholeOf(s.Stranded().Name)
	}
	return "exchange", s.(topology.Exchange).Name
}

// spec returns the specification of a kind and name, nil for none.
func (w written) spec(kind, name string) topology.Spec {
	at := slices.IndexFunc(w.specs, func(s topology.Spec) bool {
		k, n := w.nameOf(s)
		return k == kind && n == name
	})
	if at < 0 {
		return nil
	}
	return w.specs[at]
}

// sort says what the queues of a group are for.
func (g *group) sort(old written, differs map[part]bool) {
	for _, name := range g.named("queue") {
		at := slices.IndexFunc(old.plan.Engines, func(e topology.PlannedEngine) bool { return e.Queue == name || slices.Contains(e.Waits, name) })
		switch {
		case at < 0 && levels.Is(name) && !strings.HasSuffix(name, ".stranded"):
			g.levels = append(g.levels, name)
		case at < 0:
			g.letters = append(g.letters, name)
		case old.plan.Engines[at].Queue == name:
			g.work = append(g.work, name)
		case !slices.Contains(g.parts, part{"queue", old.plan.Engines[at].Queue}) && !slices.Contains(g.kept, old.plan.Engines[at].Queue):
			g.kept = append(g.kept, old.plan.Engines[at].Queue)
			if whole := (part{"queue", old.plan.Engines[at].Queue}); differs[whole] {
				g.stops = append(g.stops, fmt.Sprintf("queue %q", whole.name))
			}
		}
	}
	for name, to := range old.deadTo { // without waits too
		if whole := (part{"queue", name}); !slices.Contains(g.parts, whole) && !differs[whole] && slices.Contains(g.parts, part{"exchange", to}) && !levels.Is(name) && old.has(name) {
			g.held = append(g.held, name)
		}
	}
	slices.Sort(g.held)
	for _, s := range old.specs {
		for _, q := range workQueues(s) {
			if dlq := q.DeadLetterQueue().Name; slices.Contains(g.work, q.Name) && !slices.Contains(g.parts, part{"queue", dlq}) {
				g.inUse = append(g.inUse, [2]string{q.Name, dlq})
				if differs[part{"queue", dlq}] {
					g.stops = append(g.stops, fmt.Sprintf("queue %q", dlq))
				}
			}
		}
	}
}

// findWays says how messages come to a group from elsewhere.
func (g *group) findWays(old, next written, goes, differs map[part]bool) {
	for _, b := range old.bindings {
		isWiring := strings.Contains(b.Source, ".rehop.")
		if slices.Contains(g.open(), b.Source) && !goes[b.to()] {
			g.bound = append(g.bound, b.Destination)
		}
		if !slices.Contains(g.parts, b.to()) || slices.Contains(g.parts, b.from()) || isWiring && goes[b.from()] {
			continue
		}
		meets, _, same := next.newcomers(old, b)
		switch {
		case differs[b.from()]:
			g.stops = append(g.stops, fmt.Sprintf("exchange %q", b.Source))
		case levels.Is(b.Source) && (!same || len(meets) == 0): // unbound, what is delayed would be stranded, or not come here
			g.delayed = true
		default:
			g.unbind = append(g.unbind, b)
		}
	}
	g.stops = unique(g.stops)
}

// stopped returns the bindings by which publishers reach a group in which something has to stop.
func (g group) stopped() (ways []binding) {
	for _, b := range g.unbind {
		if len(g.stops) > 0 && b.isOfPublishers() {
			ways = append(ways, b)
		}
	}
	return ways
}

// twins returns the dead-letter queues of NEW that take the same dead letters as those of a group, until these are unbound.
func (g group) twins(old, next written) (names []string) {
	for _, b := range g.unbind {
		if strings.Contains(b.Source, ".rehop.") && slices.Contains(g.letters, b.Destination) {
			both, _, _ := next.newcomers(old, b)
			names = append(names, both...)
		}
	}
	return unique(names)
}

func (g group) named(kind string) (names []string) {
	for _, p := range g.parts {
		if p.kind == kind {
			names = append(names, p.name)
		}
	}
	return names
}

// open returns the exchanges that programs publish to.
func (g group) open() []string {
	return slices.DeleteFunc(g.named("exchange"), func(name string) bool {
		return strings.Contains(name, ".rehop.") || levels.Is(name) || g.kind == "lanes" && name != g.name+".lanes"
	})
}

// entrances are what programs publish to.
func (g group) entrances() string {
	var texts []string
	for _, name := range g.open() {
		texts = append(texts, fmt.Sprintf("exchange %q", name))
	}
	names := g.work
	if g.kind == "queue" && slices.Contains(g.letters, g.name) {
		names = []string{g.name}
	}
	if len(names) > 0 {
		texts = append(texts, quoted(names)+" by name")
	}
	return strings.Join(texts, " or to ")
}

// difference returns a group as what stays behind.
func (g group) difference(old, next written, vhost string) topology.Difference {
	d := topology.Difference{Code: "exchange-extra", Class: topology.DriftExtra, Kind: g.kind, Name: g.name, Expected: none, Found: "declared by OLD", Effect: g.effect(old, next), Remedy: numbered(g.steps(old, next, vhost))}
	queues := g.named("queue")
	var with []string
	for _, p := range g.parts {
		switch {
		case p == part{g.kind, g.name} || p.kind == "exchange" && strings.Contains(p.name, ".rehop."):
		case p.kind == "exchange":
			with = append(with, fmt.Sprintf("exchange %s", p.name))
		default:
			with = append(with, p.name)
		}
	}
	if len(queues) > 0 {
		d.Code = "queue-extra"
	}
	if len(with) > 0 {
		d.Found += ", with " + strings.Join(with, ", ")
	}
	if kind, ok := old.kinds[part{g.kind, g.name}]; ok && g.kind == "exchange" {
		d.Found = kind
	}
	if _, isPart := old.kinds[part{g.kind, g.name}]; isPart && !slices.Contains(g.parts, part{g.kind, g.name}) || !isPart && next.spec(g.kind, g.name) != nil {
		d.Kind, d.Expected = "parts of "+d.Kind, "none of these"
	}
	return d
}

// effect says what happens to messages before the steps are done.
func (g group) effect(old, next written) string {
	var texts, both, sources, letters []string
	which := "each message"
	for _, b := range g.unbind {
		if owner, _, isWiring := strings.Cut(b.Source, ".rehop."); isWiring {
			letters = append(letters, owner)
			continue
		}
		meets, all, _ := next.newcomers(old, b)
		if both = append(both, meets...); !all || len(meets) == 0 {
			which = "each message that matches both"
		}
		sources = append(sources, fmt.Sprintf("exchange %q", b.Source))
	}
	if entrances := g.entrances(); len(sources) == 0 && entrances != "" {
		sources = []string{"what publishes to " + entrances}
	}
	switch {
	case len(both) > 0:
		own := strconv.Quote(g.name)
		if slices.Contains(both, g.name) { // lanes and a queue may have one name
			own = g.kind + " " + own
		}
		texts = append(texts, fmt.Sprintf("%s reaches both %s and %s from when NEW is declared until %s is unbound, and is handled twice while both are consumed", which, own, quoted(unique(both)), own))
	case g.shrinks && len(g.work) > 0:
		texts = append(texts, "programs of OLD handle its messages. topology.Declare of NEW returns an error while one of these queues has messages and no consumer")
	case len(g.work) > 0:
		texts = append(texts, fmt.Sprintf("messages still come from %s, and no program of NEW handles them", strings.Join(unique(sources), " and ")))
	case len(sources) > 0:
		texts = append(texts, "messages still come from "+strings.Join(unique(sources), " and "))
	case len(g.levels) > 0:
		texts = append(texts, "delayed messages come as before, and other services of the virtual host may use it")
	case len(g.kept) > 0:
		texts = append(texts, fmt.Sprintf("no program of NEW consumes %s and brings back what waits", quoted(g.kept)))
	}
	if len(letters) > 0 {
		texts = append(texts, fmt.Sprintf("dead letters of %s still come to %s too", quoted(unique(letters)), quoted(g.letters)))
	}
	return strings.Join(append([]string{"it stays with what is in it"}, texts...), "; ")
}

// handedOver returns what OLD declares, and others have to declare for NEW.
func handedOver(old, next written) (list []topology.Difference) {
	for _, p := range planned(old.plan) {
		if !next.leaves(topology.Difference{Kind: p.kind, Name: p.name}) {
			continue
		}
		form := old.kinds[p]
		if to := old.bindingsTo(p); len(to) > 0 {
			form += ", bound to " + sourcesText(to)
		}
		list = append(list, topology.Difference{Code: topology.DriftCode(p.kind + "-extra"), Class: topology.DriftExtra, Kind: "declaration of", Name: p.name, Expected: byOthers, Found: form,
			Effect: "it stays with its bindings. topology.Declare of NEW returns an error if it is gone, and nobody puts it or a binding back after it was deleted",
			Remedy: "its new owner declares it, as " + form})
	}
	return list
}

// none is what a difference says where one side has nothing.
const none = "none"

func quoted(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = strconv.Quote(name)
	}
	return strings.Join(texts, " and ")
}

// unique returns names in their order, each once.
func unique(names []string) (list []string) {
	for _, name := range names {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}
