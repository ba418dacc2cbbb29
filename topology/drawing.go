package topology

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/internal/levels"
)

// row is a part of a drawing: what a consumer reads, or the exact delays, with what leads
// there and where messages go on. The lanes, the shards and the levels of a specification are
// one box, and so are the waits of a work queue.
type row struct {
	from []entry
	main box
	to   []exit
}

// box is a queue, an exchange or several that belong together.
type box struct {
	look  look
	names []string // of the queues or the exchange in it
	lines []string // what is written in it
}

// look is the way a box is drawn.
type look uint8

const (
	exchangeLook look = iota
	queueLook
	waitsLook
	lettersLook
	levelsLook
)

// entry is an exchange that leads to the main box of a row, with what a message must have.
type entry struct {
	box
	keys []string
}

// exit is a way from the main box of a row, and the way back from there, if there is one.
type exit struct {
	boxes     []box
	way, back string
	isBeyond  bool // the boxes have rows of their own, or none
}

// isAbout reports whether a queue is in the main box of a row, or its wait, or has its dead letters.
func (r row) isAbout(queue string) bool {
	r.to = slices.DeleteFunc(slices.Clone(r.to), func(e exit) bool { return e.isBeyond })
	return anyBox([]row{r}, queue, false)
}

// rows returns the drawing of the plan. A row stands for each specification that has a
// queue, and for each exchange that leads to none of them.
func (p Plan) rows() (list []row) {
	var own []row // of dead-letter queues that no work queue has
	for _, s := range p.specs {
		switch s := s.(type) {
		case WorkQueue:
			var from []entry
			if !s.Existing {
				from = p.bound(s.Name, "", s.Bindings)
			}
			list = append(list, p.workRow([]WorkQueue{s}, []string{s.Name}, from, s.Name))
		case Lanes:
			list = append(list, p.lanesRow(s))
		case Shards:
			list = append(list, p.shardsRow(s))
		}
	}
	for _, s := range p.specs {
		q, ok := s.(DeadLetterQueue)
		if !ok {
			continue
		}
		r := row{main: p.lettersBox([]string{q.Name}, q.Name)}
		if q.Exchange != "" {
			r.from = []entry{{box: p.exchangeBox(q.Exchange)}}
		}
		if q.Exchange != "" || !anyBox(list, q.Name, false) {
			own = append(own, r)
		}
	}
	list = append(list, own...)
	for _, d := range p.delays {
		list = append(list, p.delaysRow(d, list))
	}
	for _, s := range p.specs {
		if e, ok := s.(Exchange); ok && !anyBox(list, e.Name, true) {
			list = append(list, row{main: p.exchangeBox(e.Name)})
		}
	}
	asConsumed(list)
	return list
}

// asConsumed makes the dead-letter queues that are consumed as work queues the boxes of these.
func asConsumed(list []row) {
	for _, r := range list {
		for _, e := range r.to {
			for i, b := range e.boxes {
				at := slices.IndexFunc(list, func(r row) bool { return r.main.look == queueLook && slices.Contains(r.main.names, b.names[0]) })
				if at >= 0 && b.look == lettersLook {
					e.boxes[i] = list[at].main
				}
			}
		}
	}
}

// anyBox reports whether a queue or an exchange is drawn.
func anyBox(list []row, name string, exchange bool) bool {
	for _, r := range list {
		boxes := []box{r.main}
		for _, e := range r.from {
			boxes = append(boxes, e.box)
		}
		for _, e := range r.to {
			boxes = append(boxes, e.boxes...)
		}
		for _, b := range boxes {
			if slices.Contains(b.names, name) && (b.look == exchangeLook) == exchange {
				return true
			}
		}
	}
	return false
}

// workRow is the row of work queues that belong together: one, or all lanes or shards.
func (p Plan) workRow(queues []WorkQueue, lines []string, from []entry, family string) row {
	first := queues[0]
	r := row{from: from, main: box{look: queueLook}}
	var waits, letters []string
	for _, w := range queues {
		r.main.names = append(r.main.names, w.Name)
		if name := w.DeadLetterQueue().Name; !slices.Contains(letters, name) {
			letters = append(letters, name)
		}
	}
	var engines []string
	wait := box{look: waitsLook}
	for _, e := range p.Engines {
		at := slices.Index(r.main.names, e.Queue)
		if at < 0 {
			continue
		}
		if !slices.Contains(engines, string(e.Engine)) {
			engines = append(engines, string(e.Engine))
		}
		for i, name := range e.Waits {
			wait.names = append(wait.names, name)
			line := family + strings.TrimPrefix(name, e.Queue) + ": " + briefly(first.Waits[i])
			if !slices.Contains(waits, line) {
				waits = append(waits, line)
			}
		}
	}
	wait.lines = waits
	kind := string(first.Type.orDefault())
	if first.Existing {
		kind = "declared by others"
	}
	if len(first.Waits) > 0 {
		kind += ", engine " + strings.Join(engines, " or ")
	}
	r.main.lines = append(lines, kind)
	if first.SingleActiveConsumer {
		r.main.lines = append(r.main.lines, "single active consumer")
	}
	if first.NativePriority {
		r.main.lines = append(r.main.lines, "native priority")
	}
	if len(first.Waits) > 0 {
		r.to = append(r.to, exit{boxes: []box{wait}, way: "failed", back: "comes back"})
	}
	title := letters[0]
	if len(letters) > 1 {
		title = family + ".dlq"
	}
	r.to = append(r.to, exit{boxes: []box{p.lettersBox(letters, title)}, way: "dead letter"})
	return r
}

func (p Plan) lanesRow(l Lanes) row {
	queues := l.WorkQueues()
	lines := []string{l.Name + ": lanes by share"}
	if l.strict() {
		lines[0] = l.Name + ": lanes, the highest first"
	}
	for i, w := range queues {
		line := w.Name
		if share := l.Lanes[i].Share; share > 0 {
			line += fmt.Sprintf(", share %d", share)
		}
		lines = append(lines, line)
	}
	from := p.bound(l.Exchange(), "by priority", l.Bindings)
	if len(l.Bindings) == 0 {
		from = []entry{{p.exchangeBox(l.Exchange()), []string{"by priority"}}}
	}
	for _, w := range queues {
		if len(w.Bindings) > 0 {
			from = merge(from, p.bound(w.Name, "to "+w.Name, w.Bindings))
		}
	}
	return p.workRow(queues, lines, from, l.Name+".*")
}

func (p Plan) shardsRow(s Shards) row {
	lines := []string{fmt.Sprintf("%s: %d shards by OrderKey", s.Name, s.Count), s.queue(0)}
	if s.Count > 1 {
		lines[1] += " to " + s.queue(s.Count-1)
	}
	return p.workRow(s.WorkQueues(), lines, []entry{{p.exchangeBox(""), []string{"Shards.Queue of the OrderKey"}}}, s.Name+".*")
}

// delaysRow leads to the queues and exchanges that messages can be delayed to. Drawn are the
// other rows.
func (p Plan) delaysRow(d plannedDelays, drawn []row) row {
	var targets []box
	for _, name := range d.Queues {
		target := box{queueLook, []string{name}, []string{name, "declared by others"}}
		if at := slices.IndexFunc(drawn, func(r row) bool { return r.main.look != exchangeLook && slices.Contains(r.main.names, name) }); at >= 0 {
			target = drawn[at].main
		}
		if !slices.ContainsFunc(targets, func(have box) bool { return have.names[0] == target.names[0] }) {
			targets = append(targets, target)
		}
	}
	for _, x := range d.Exchanges {
		if x.Refuses("") == "" {
			targets = append(targets, p.exchangeBox(x.Name))
		}
	}
	queues, stranded := levelQueues(d.Delays), levels.Of(d.Levels.Grain).Stranded()
	longest := briefly(d.Levels.Max)
	if days := d.Levels.Max / (24 * time.Hour); days > 1 {
		longest = fmt.Sprintf("%d days", days)
	}
	r := row{main: box{levelsLook, queues, []string{
		strings.TrimSuffix(stranded, ".stranded") + ": exact delays",
		fmt.Sprintf("%v to %s", d.Levels.Grain, longest),
		fmt.Sprintf("%d queues", len(queues)),
	}}}
	if len(targets) > 0 {
		r.to = append(r.to, exit{boxes: targets, way: "when due", isBeyond: true})
	}
	r.to = append(r.to, exit{boxes: []box{p.lettersBox([]string{stranded}, stranded)}, way: "no queue"})
	return r
}

// lettersBox returns the box of dead-letter queues.
func (p Plan) lettersBox(names []string, title string) box {
	b := box{lettersLook, names, []string{title}}
	for _, q := range append(slices.Clone(p.queues), p.needs...) {
		if ttl, ok := q.Args["x-message-ttl"].(int64); ok && slices.Contains(names, q.Name) {
			kept := "kept " + briefly(time.Duration(ttl)*time.Millisecond)
			if len(names) > 1 {
				kept = q.Name + ": " + kept
			}
			b.lines = append(b.lines, kept)
		}
	}
	return b
}

// exchangeBox returns the box of an exchange; "" is the default exchange.
func (p Plan) exchangeBox(name string) box {
	if name == "" {
		return box{exchangeLook, []string{""}, []string{"default exchange"}}
	}
	kind := "declared by others"
	for _, e := range p.exchanges {
		if e.Name == name {
			kind = e.Kind
		}
	}
	return box{exchangeLook, []string{name}, []string{name, kind}}
}

// bound returns the exchanges that bindings lead from, or the default exchange where there are
// none. More is what else is written beside each key.
func (p Plan) bound(queue, more string, bindings []Binding) (from []entry) {
	for _, b := range bindings {
		key := strings.TrimSpace(b.RoutingKey + formatTable(b.Headers))
		if more != "" {
			key = strings.TrimSpace(key + " " + more)
		}
		from = merge(from, []entry{{p.exchangeBox(b.Exchange), []string{key}}})
	}
	if len(bindings) == 0 {
		from = []entry{{p.exchangeBox(""), []string{queue}}}
	}
	return from
}

// merge adds entries, one for each exchange.
func merge(list, more []entry) []entry {
	for _, e := range more {
		at := slices.IndexFunc(list, func(have entry) bool { return have.names[0] == e.names[0] })
		if at < 0 {
			list = append(list, e)
		} else {
			list[at].keys = append(list[at].keys, e.keys...)
		}
	}
	return list
}
