package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/internal/route"
)

// extra finds parts with names of this plan's work queues and lanes that it does not have.
func (d *comparison) extra() {
	for _, name := range slices.Sorted(maps.Keys(d.have.queues)) {
		if d.isExtra(part{"queue", name}) {
			d.extraQueue(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.have.exchanges)) {
		if d.isExtra(part{"exchange", name}) {
			d.extraExchange(name)
		}
	}
}

// isExtra reports whether a part was found by its name and is not in the plan.
func (d *comparison) isExtra(at part) bool {
	if d.planned[at] {
		return false
	}
	switch at.kind {
	case "queue":
		_, seen := d.have.queues[at.name]
		return seen && d.isOfThisPlan(at.name)
	default:
		_, seen := d.have.exchanges[at.name]
		owner, ofWiring := wiringOf(at.name)
		return seen && !d.isDue(at.name) && (!ofWiring || d.hasOwner(owner))
	}
}

// isOfThisPlan reports whether a queue has the name of a part of a work queue of the plan. A work queue whose own name looks like that of
// such a part has parts with names that begin alike: those are of another service.
func (d *comparison) isOfThisPlan(queue string) bool {
	if owner, _, isWait := route.WaitOf(queue); isWait {
		return d.hasOwner(owner)
	}
	owner, isLetters := strings.CutSuffix(queue, WorkQueue{}.DeadLetterQueue().Name)
	return isLetters && d.hasOwner(owner) || d.countOf(queue) > 0
}

// hasOwner reports whether the plan has a work queue, or had it with a larger Count of its shards.
func (d *comparison) hasOwner(queue string) bool {
	return slices.Contains(d.plan.owners(), queue) || d.countOf(queue) > 0 && d.isShard(queue)
}

func (d *comparison) extraExchange(name string) {
	effect, remedy := "none: it leads messages of processes with another engine, schedule or Count to the same places", "leave it; topology.Delete deletes it with its work queue"
	if !isWiring(name) && !d.isOfLanes(name) {
		effect, remedy = "not known: it has a name like those of rehop, and no version of rehop declares it", "find out who declared it; topology.Delete leaves it"
	}
	d.add(DriftExtra, "exchange-extra", part{"exchange", name}, none, d.have.exchanges[name].Type, effect, remedy)
}

// isOfLanes reports whether an exchange has the name of one that lanes of the plan had with other fields.
func (d *comparison) isOfLanes(exchange string) bool {
	return slices.ContainsFunc(d.plan.lanes, func(name string) bool { return strings.HasPrefix(exchange, name+lanesSuffix+restSuffix) })
}

// extraQueue tells of a queue with the name of a wait, of a shard or of a dead-letter queue. Its form says whether it is one.
func (d *comparison) extraQueue(name string) {
	args := declaredArguments(d.plan.Version, d.have.queues[name], nil)
	found, deleteIt := "durable"+formatTable(args), deleteQueue(d.have.vhost, name)
	extra := func(effect, remedy string) {
		d.add(DriftExtra, "queue-extra", part{"queue", name}, none, found, effect, remedy)
	}
	owner, waitNumber, isWait := route.WaitOf(name)
	if !isWait {
		owner = name
	}
	switch count := d.countOf(owner); {
	case count > 0 && !d.isShard(owner):
		extra("not known: it has the name of a shard of a larger Count, and no shard has its form", "find out who declared it; a larger Count is refused while it is there")
	case count > 0 && (!isWait || isFormOfWait(owner, name, waitNumber, args)):
		extra("none, while a consumer knows the larger Count: otherwise nobody handles messages in it",
			fmt.Sprintf("consume the larger Count until the shards from number %d on and their waits are empty: %s; then %s", count, plannedQueue{Owner: owner, role: workRole}.emptied(d.have.vhost), deleteIt))
	case isWorkQueue(name, args):
		extra("none: it is a work queue of its own", "leave it; "+anotherName(name))
	case !isWait:
		extra("none: dead letters of an earlier form stay in it", plannedQueue{Name: name, role: letterRole}.emptied(d.have.vhost)+"; then "+deleteIt)
	case isFormOfWait(owner, name, waitNumber, args) && isCarriedForm(args) && !d.carries(owner):
		extra("messages in it do not come back: by the engine of this plan no consumer carries them, and none come to it",
			"find out whether a consumer still carries them; if none does, "+takenOut(d.have.vhost, owner, name, waitNumber, args)+deleteIt)
	case isFormOfWait(owner, name, waitNumber, args):
		extra(d.earlierEffect(owner, name, waitNumber, args), d.earlierWait(owner, name, waitNumber, args))
	case name != route.WaitQueue(owner, waitNumber) || !d.hasWait(owner, waitNumber): // Declare neither looks at it nor leads anything to it
		extra("none for this plan, which has no such wait; no schedule gives a wait this form, so messages in it may not come back by themselves",
			"find out who declared it; if nobody else uses it, "+takenOut(d.have.vhost, owner, name, waitNumber, args)+deleteIt)
	default:
		code := DriftCode("queue-arguments")
		if t := args["x-queue-type"]; t != string(Quorum) && t != string(Classic) {
			code = "queue-type"
		}
		d.add(DriftDiffers, code, part{"queue", name}, "the form of a wait, or no such queue", found, "messages in it may not come back, and topology.Declare plans another queue for this wait",
			"find out who declared it; declare, and start the consumers again, which then use that other queue; "+takenOut(d.have.vhost, owner, name, waitNumber, args)+deleteIt+" and declare again")
	}
}

// isShard reports whether a queue beyond Count has the form of a shard, or is gone and has left its waits.
func (d *comparison) isShard(name string) bool {
	form, seen := d.have.queues[name]
	if !seen {
		return true
	}
	args := declaredArguments(d.plan.Version, form, nil)
	return isWorkQueue(name, args) && (args["x-queue-type"] == string(Classic) || args["x-queue-leader-locator"] != nil)
}

// isWorkQueue reports whether a queue has the form of a work queue: no other part dead-letters to an exchange of its own name.
func isWorkQueue(name string, args amqp.Table) bool {
	return args["x-dead-letter-exchange"] == WorkQueue{Name: name}.dlxExchange()
}

// anotherName says what to do about a work queue that has the name of a part of another one.
func anotherName(queue string) string {
	return fmt.Sprintf("%q is also the name of a part of another work queue: give one of the two work queues another name", queue)
}

// earlierEffect says when messages come back that are in a wait of another schedule, and where this one has its own.
func (d *comparison) earlierEffect(owner, name string, waitNumber int, args amqp.Table) string {
	text := fmt.Sprintf("messages in it come back when they have waited %v, the wait of the schedule that sent them there", waitIn(args))
	if at := slices.IndexFunc(d.plan.queues, func(q plannedQueue) bool {
		return q.Owner == owner && q.role == waitRole && q.waitNumber == waitNumber
	}); at >= 0 {
		q := d.plan.queues[at]
		return fmt.Sprintf("%s; wait %d of this plan is %v, in queue %q beside it", text, waitNumber, waitIn(q.Args), q.Name)
	}
	return text + fmt.Sprintf("; this plan has no wait %d, so it sends none there", waitNumber)
}

// earlierWait says how a wait of another schedule goes. The current schedule does not use it, so nothing of that has to stop. But
// consumers that carry find the waits by their numbers, in order, and so do they find those of one number.
func (d *comparison) earlierWait(owner, name string, waitNumber int, args amqp.Table) string {
	deleteIt := deleteQueue(d.have.vhost, name)
	if isCarriedForm(args) {
		next := d.foundBy(owner, name, waitNumber)
		if d.planned[part{"queue", next}] {
			return fmt.Sprintf("leave it: consumers find %q, which is used in its place, only while it is there; to have one queue again, %s; then %s and %s and declare again",
				next, plannedQueue{Owner: owner, role: waitRole}.emptied(d.have.vhost), deleteQueue(d.have.vhost, next), deleteIt)
		}
		if next != "" {
			deleteIt = fmt.Sprintf("delete %q first, which consumers find only while this one is there; then %s", next, deleteIt)
		}
		deleteIt += ", and start the consumers again, whose Health misses it"
	} else if name == route.WaitQueue(owner, waitNumber) && d.hasWait(owner, waitNumber) {
		deleteIt += " and declare again, which uses its name again"
	}
	return fmt.Sprintf("nothing has to stop: when every consumer has been started since this schedule was declared, nothing new comes to it; wait until it is empty (%s); then %s; or let topology.DeleteWaits do it",
		ctl.Empty(d.have.vhost, strconv.Quote(name)), deleteIt)
}

// carries reports whether consumers of a work queue carry the waits of other schedules: by the engine, or, without waits,
// because the first wait of any schedule is carried.
func (d *comparison) carries(owner string) bool {
	return slices.ContainsFunc(d.plan.Engines, func(e PlannedEngine) bool {
		if e.Queue != owner || len(e.Waits) > 0 {
			return e.Queue == owner && e.Engine == EngineCarry
		}
		first, seen := d.have.queues[route.WaitQueue(owner, 1)]
		return seen && isCarriedForm(declaredArguments(d.plan.Version, first, nil))
	})
}

// foundBy returns the queue that consumers which carry look for only if there is one of this name, "" if there is none.
func (d *comparison) foundBy(owner, name string, waitNumber int) string {
	nth := 1
	if digits, ok := strings.CutPrefix(name, route.WaitQueue(owner, waitNumber)+"."); ok {
		nth, _ = strconv.Atoi(digits) // 0 for no number: such a queue leads to no other
	}
	var list []string
	if nth > 0 {
		list = append(list, route.CarriedQueue(owner, waitNumber, nth+1))
	}
	if nth == 1 && !d.hasWait(owner, waitNumber) {
		list = append(list, route.WaitQueue(owner, waitNumber+1))
	}
	for _, next := range list {
		if _, there := d.have.queues[next]; there {
			return next
		}
	}
	return ""
}

// takenOut says how the messages of a queue with the name of a wait, and another form, come back: nothing brings them. They go on with the
// key of the wait, so that attempts count as if it were over.
func takenOut(vhost, owner, name string, waitNumber int, args amqp.Table) string {
	if t := args["x-queue-type"]; t != string(Quorum) && t != string(Classic) {
		return "wait until nobody needs its messages any more, because no reader takes one out; then "
	}
	w := WorkQueue{Name: owner}
	to := w.returnExchange() + "/" + w.waitKey(waitNumber)
	if strings.Contains(owner, "/") { // which ends the exchange
		to = "/" + owner
	}
	return fmt.Sprintf("bring its messages back (%s), which are attempted at once; if the command refuses, it says what to do instead; wait until it is empty (%s); then ",
		ctl.Rehop("dlq move --all --to "+ctl.Quote(to), vhost, name), ctl.Empty(vhost, strconv.Quote(name)))
}

// countOf returns the Count of the Shards that would have a queue of this name with a larger Count, 0 if there are none.
func (d *comparison) countOf(name string) int {
	for _, s := range d.plan.shards {
		if s.hasName(name) && !slices.Contains(d.plan.owners(), name) {
			return s.Count
		}
	}
	return 0
}

// hasWait reports whether the plan of a work queue has a wait of a number.
func (d *comparison) hasWait(owner string, waitNumber int) bool {
	return slices.ContainsFunc(d.plan.Engines, func(e PlannedEngine) bool { return e.Queue == owner && waitNumber <= len(e.Waits) })
}

// isFormOfWait reports whether a declaration of some schedule, type and version gives a wait
// queue these arguments.
func isFormOfWait(owner, name string, waitNumber int, args amqp.Table) bool {
	waits := make(delay.Schedule, waitNumber)
	waits[waitNumber-1] = waitIn(args)
	for _, t := range []QueueType{Quorum, Classic} {
		w := WorkQueue{Name: owner, Type: t, Waits: waits}
		for _, q := range []plannedQueue{
			w.timedWait(name, waitNumber, version3), w.timedWait(name, waitNumber, version4), w.carriedWait(name, waitNumber, version4),
		} {
			if slices.ContainsFunc(append(q.Also, q.Args), func(form amqp.Table) bool { return equalTables(form, args) }) {
				return true
			}
		}
	}
	return false
}
