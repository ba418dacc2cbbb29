package topology

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/route"
)

// observed is what a broker has, as far as it was looked at.
type observed struct {
	parts     map[part]bool                   // queues and exchanges: whether they exist
	denied    map[part]bool                   // those that the user may not look at by AMQP
	queues    map[string]management.Form      // in the form they have
	exchanges map[string]management.Exchange  // the same
	to        map[part][]management.Binding   // all bindings to a queue or an exchange
	from      map[string][]management.Binding // all bindings from an exchange

	vhost     string
	allQueues int               // of the virtual host
	maxQueues *int              // nil: no limit is known
	rules     *management.Rules // nil: they are not known, or not needed
	unseen    []string
}

// part is a part of a plan that a broker shows.
type part struct{ kind, name string }

func (p part) String() string { return fmt.Sprintf("%s %q", p.kind, p.name) }

// need is a part that others declare, with the advice for the case that it is missing.
type need struct {
	part
	advice string
}

// needed returns the parts that others declare.
func (p Plan) needed() (list []need) {
	known := map[part]bool{}
	add := func(n need) {
		if !known[n.part] {
			known[n.part] = true
			list = append(list, n)
		}
	}
	for _, q := range p.needs {
		add(need{part{"queue", q.Name}, q.needAdvice()})
	}
	for _, d := range p.delays {
		for _, name := range d.others {
			add(need{part{"queue", name}, targetAdvice})
		}
	}
	for _, n := range p.boundTo() {
		add(n)
	}
	return list
}

// missing returns the parts of a plan that a broker does not have.
func (p Plan) missing(have observed) []part {
	absent := func(at part) bool { exists, looked := have.parts[at]; return looked && !exists }
	return slices.DeleteFunc(p.parts(), func(at part) bool { return !absent(at) })
}

// parts returns the queues and exchanges of a plan, also those that others declare.
func (p Plan) parts() (all []part) {
	for _, n := range p.needed() {
		if n.kind == "queue" {
			all = append(all, n.part)
		}
	}
	for _, q := range p.queues {
		all = append(all, part{"queue", q.Name})
	}
	for _, n := range p.needed() {
		if n.kind == "exchange" {
			all = append(all, n.part)
		}
	}
	for _, e := range p.exchanges {
		all = append(all, part{"exchange", e.Name})
	}
	return all
}

// settled returns the plan that a declaration ends with on a broker that has these queues,
// and the conflicts that it meets, by queue.
func settled(v connection.Version, specs []Spec, have observed) (Plan, map[string]*ConflictError, error) {
	accepted, conflicts := found{vhost: have.vhost, shown: map[string]management.Queue{}}, map[string]*ConflictError{}
	for name, form := range have.queues {
		accepted.shown[name] = form.Queue
	}
	d := declaration{specs: specs}
	for {
		plan, err := newPlan(v, accepted, specs)
		if err != nil {
			return Plan{}, nil, err
		}
		at := slices.IndexFunc(plan.queues, func(q plannedQueue) bool {
			form, seen := have.queues[q.Name]
			return seen && conflicts[q.Name] == nil && (!isKept(form) || !equalTables(q.Args, declaredArguments(v, form, q.Args)))
		})
		if at < 0 {
			return plan, conflicts, nil
		}
		q := plan.queues[at]
		if form := have.queues[q.Name]; !isKept(form) { // which the broker compares first
			conflicts[q.Name] = differs(have.vhost, "queue", q.Name, "durable", "true", fmt.Sprint(form.Durable), nil)
			continue
		}
		err = accepted.learn(d.workQueue(q.Owner), q, declaredArguments(v, have.queues[q.Name], q.Args), nil)
		if conflict := (*ConflictError)(nil); errors.As(err, &conflict) {
			conflicts[q.Name] = conflict
		}
	}
}

// isKept reports whether a queue lives as long as ours do.
func isKept(form management.Form) bool { return form.Durable && !form.AutoDelete && !form.Exclusive }

// declaredArguments returns the arguments of a queue as a declaration has them. What a
// broker of version v does not compare is as it is wanted.
func declaredArguments(v connection.Version, form management.Form, want amqp.Table) amqp.Table {
	args := ruled{broker: form.Queue}.table()
	if _, ok := args["x-queue-type"]; !ok {
		args["x-queue-type"] = form.Type
	}
	maps.DeleteFunc(args, func(name string, _ any) bool { return !isCompared(v, name) })
	for name, wanted := range want {
		if !isCompared(v, name) {
			args[name] = wanted
		}
	}
	dropIncomparable(args)
	return args
}

// compare returns the difference between the specifications and a broker. It is pure.
func compare(v connection.Version, specs []Spec, have observed) (Drift, error) {
	plan, conflicts, err := settled(v, specs, have)
	if err != nil {
		return Drift{}, err
	}
	d := comparison{plan: plan, have: have, drift: Drift{Differences: []Difference{}, Unseen: append([]string{}, have.unseen...), Plan: plan}, planned: map[part]bool{}}
	for _, at := range plan.parts() {
		d.planned[at] = true
	}
	d.missing()
	for _, q := range plan.queues {
		d.queue(q, conflicts[q.Name])
	}
	for _, e := range plan.exchanges {
		d.exchange(e)
	}
	d.targets()
	d.bindings()
	d.extra()
	d.policies()
	d.limit()
	d.defects()
	d.weak()
	return d.drift, nil
}

// comparison collects the entries of a Drift.
type comparison struct {
	plan  Plan
	have  observed
	drift Drift

	planned map[part]bool // queues and exchanges, also those that others declare
	lost    []part        // of these
}

func (d *comparison) add(class DriftClass, code DriftCode, at part, expected, found, effect, remedy string) {
	d.drift.Differences = append(d.drift.Differences, Difference{
		Code: code, Class: class, Kind: at.kind, Name: at.name, Expected: expected, Found: found, Effect: effect, Remedy: remedy,
	})
}

const declareAgain = "topology.Declare adds it, and changes nothing else"

func (d *comparison) missing() {
	advice := map[part]string{}
	for _, n := range d.plan.needed() {
		advice[n.part] = n.advice
	}
	d.lost = d.plan.missing(d.have)
	for _, at := range d.lost {
		remedy, others := advice[at]
		if !others {
			remedy = declareAgain
		}
		d.add(DriftMissing, DriftCode(at.kind+"-missing"), at, d.plan.formOf(at), none, d.plan.lossOf(at), remedy)
	}
}

const none = "none"

// formOf describes a part as it is planned.
func (p Plan) formOf(at part) string {
	for _, q := range p.queues {
		if at == (part{"queue", q.Name}) {
			return "durable" + formatTable(q.Args)
		}
	}
	for _, e := range p.exchanges {
		if at == (part{"exchange", e.Name}) {
			return e.Kind + ", durable" + formatTable(e.Args)
		}
	}
	return "declared by others"
}

// lossOf says what happens without a part.
func (p Plan) lossOf(at part) string {
	for _, q := range slices.Concat(p.needs, p.queues) {
		if at != (part{"queue", q.Name}) {
			continue
		}
		switch q.role {
		case waitRole:
			return "failed attempts do not wait as planned"
		case letterRole:
			return "a message that fails for good has no place to go"
		case levelRole:
			return "delayed messages have no place to wait in, and are stranded"
		}
		return "messages for it reach no queue"
	}
	switch {
	case at.kind == "queue":
		return "messages that are delayed to it are stranded when they are due"
	case levels.Is(at.name):
		return "delayed messages do not reach their target"
	}
	for _, e := range p.exchanges {
		switch {
		case e.Name != at.name:
		case p.isEntrance(at.name):
			return "messages that are published for a lane reach no queue: the broker returns them (NO_ROUTE), or closes the channel of a publisher to this exchange"
		case slices.Contains(p.lanes, e.Owner) && strings.HasPrefix(e.Name, e.Owner+lanesSuffix+"."):
			return "messages without a priority, or with one whose lane is not bound, reach no queue"
		case e.Owner != "":
			return "messages on their way between work queue, waits and dead letters do not go on"
		}
	}
	return "messages that are published to it reach no queue, and the broker closes the channel of their publisher"
}

// isEntrance reports whether an exchange is the one of [Lanes.Exchange].
func (p Plan) isEntrance(exchange string) bool {
	name, found := strings.CutSuffix(exchange, lanesSuffix)
	return found && slices.Contains(p.lanes, name)
}

// queue compares the form of a queue.
func (d *comparison) queue(q plannedQueue, conflict *ConflictError) {
	form, seen := d.have.queues[q.Name]
	if !seen {
		return
	}
	at := part{"queue", q.Name}
	switch {
	case conflict != nil && !isKept(form):
		d.lifetime(at, form.Durable, form.AutoDelete, form.Exclusive, "exclusive", "a restart of the broker or the end of a consumer deletes it, with all messages in it", conflict)
	case conflict != nil:
		args := declaredArguments(d.plan.Version, form, q.Args)
		code := DriftCode("queue-arguments")
		if conflict.Argument == "x-queue-type" {
			code = "queue-type"
		}
		names, effect := q.refused(args), "topology.Declare returns an error, so no program that declares it starts"
		if code != "queue-type" {
			effect = d.harm(q, form, names)
		}
		d.add(DriftDiffers, code, at, argumentsText(names, q.Args), argumentsText(names, args), effect, conflict.Advice)
	}
}

// lifetime compares how long a part lives.
func (d *comparison) lifetime(at part, durable, autoDelete, other bool, otherName, effect string, conflict *ConflictError) {
	text := func(durable, autoDelete, other bool) string {
		return fmt.Sprintf("durable %t, auto-delete %t, %s %t", durable, autoDelete, otherName, other)
	}
	if want, have := text(true, false, false), text(durable, autoDelete, other); want != have {
		d.add(DriftDiffers, DriftCode(at.kind+"-lifetime"), at, want, have, effect, conflict.Advice)
	}
}

// argumentsText writes the arguments of these names.
func argumentsText(names []string, args amqp.Table) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = name + " " + argumentText(name, args[name])
	}
	return strings.Join(texts, ", ")
}

// harm says what other arguments do to a queue. What an argument does that a policy can
// set too, it does as that policy would.
func (d *comparison) harm(q plannedQueue, form management.Form, names []string) string {
	var harms []string
	for _, name := range names {
		value, has := form.Arguments[name]
		if !has {
			continue
		}
		key := strings.TrimPrefix(name, "x-")
		asPolicy := ruled{name: q.Name, role: q.role, broker: management.Queue{
			Type: form.Type, Arguments: asAnswer(q.Args), Definition: map[string]any{key: value, "overflow": form.Arguments["x-overflow"]},
		}}
		if effect := asPolicy.effect(key, d.plan.Version); effect != "" && !slices.Contains(harms, effect) {
			harms = append(harms, effect)
		}
	}
	if len(harms) == 0 {
		return "the queue does not behave as planned, and topology.Declare returns an error"
	}
	return strings.Join(harms, "; ")
}

// asAnswer returns arguments as the management API writes them.
func asAnswer(args amqp.Table) map[string]any {
	answer := map[string]any{}
	for name, v := range args {
		if n, ok := v.(int64); ok {
			v = json.Number(strconv.FormatInt(n, 10))
		}
		answer[name] = v
	}
	return answer
}

// exchange compares the form of an exchange.
func (d *comparison) exchange(e plannedExchange) {
	have, seen := d.have.exchanges[e.Name]
	if !seen {
		return
	}
	at := part{"exchange", e.Name}
	effect := "messages are led elsewhere than planned, and topology.Declare returns an error"
	conflict := func(code DriftCode, argument, want, found string) {
		d.add(DriftDiffers, code, at, argument+" "+want, argument+" "+found, effect, differs(d.have.vhost, "exchange", e.Name, argument, want, found, nil).Advice)
	}
	if have.Type != e.Kind {
		conflict("exchange-kind", "type", e.Kind, have.Type)
	}
	if want, found := plain(e.Args["alternate-exchange"]), plain(have.Arguments["alternate-exchange"]); want != found {
		conflict("exchange-arguments", "alternate-exchange", want, found)
	}
	d.lifetime(at, have.Durable, have.AutoDelete, have.Internal, "internal", "a restart of the broker or an unbinding may delete it, or no client may publish to it",
		differs(d.have.vhost, "exchange", e.Name, "durable", "true", fmt.Sprint(have.Durable), nil))
}

// targets compares queues of others that messages are delayed to.
func (d *comparison) targets() {
	for _, planned := range d.plan.delays {
		for _, name := range planned.others {
			form, seen := d.have.queues[name]
			if !seen {
				continue
			}
			if limit, overflow, refuses := refusesTarget(declaredArguments(d.plan.Version, form, nil)); refuses {
				d.add(DriftDiffers, "target-refuses", part{"queue", name}, "no length limit, or overflow drop-head", limit+", overflow "+overflow,
					targetHarm, targetRemedy)
			}
		}
	}
}

// bindings compares the bindings whose ends were looked at.
func (d *comparison) bindings() {
	to, from, found := map[part]bool{}, map[string]bool{}, map[string]plannedBinding{}
	note := func(list []management.Binding) {
		for _, have := range list {
			b := asPlanned(have)
			found[b.identity()] = b
		}
	}
	for at, list := range d.have.to {
		to[at] = true
		note(list)
	}
	for exchange, list := range d.have.from {
		from[exchange] = true
		note(list)
	}
	planned := map[string]bool{}
	for _, b := range d.plan.bindings {
		identity := b.identity()
		_, exists := found[identity]
		if planned[identity] {
			continue // it is specified twice
		}
		planned[identity] = true
		withAnEnd := slices.Contains(d.lost, part{"exchange", b.Exchange}) || slices.Contains(d.lost, b.destination()) // it goes and comes with them
		if looked := to[b.destination()] || from[b.Exchange]; looked && !exists && !withAnEnd {
			d.add(DriftMissing, "binding-missing", part{"binding", b.describe()}, b.describe(), none, d.plan.bindingLoss(b), declareAgain)
		}
	}
	ours := map[part]bool{}
	for _, q := range d.plan.queues {
		ours[part{"queue", q.Name}] = true
	}
	for _, e := range d.plan.exchanges {
		ours[part{"exchange", e.Name}] = e.isOurs()
	}
	for _, identity := range slices.Sorted(maps.Keys(found)) {
		b := found[identity]
		source := part{"exchange", b.Exchange}
		switch {
		case b.Exchange == "", planned[identity], !ours[b.destination()] && !ours[source]:
		case d.isAstray(b):
			d.add(DriftDiffers, "binding-extra", part{"binding", b.describe()}, none, b.describe(),
				fmt.Sprintf("messages on their way between work queue, waits and dead letters come to %s too: each is in two places, and may go round for ever", b.destination()),
				b.strangeness()+unbinding(d.have.vhost, b))
		case d.isOfDelays(b), d.isExtra(b.destination()), d.isExtra(source): // told with them, or of another call
		default:
			effect := "messages take a way that is not in the plan, and may be in two queues"
			if d.isTwin(b, found) {
				effect = "none: it leads the same messages to the same place as a binding of the plan"
			}
			d.add(DriftExtra, "binding-extra", part{"binding", b.describe()}, none, b.describe(), effect, "unless another program or an earlier version of this one relies on it, "+unbinding(d.have.vhost, b))
		}
	}
}

// wiringOf returns the work queue whose exchanges between it and its waits one has the name of.
func wiringOf(exchange string) (owner string, ok bool) {
	at := strings.LastIndex(exchange, ".rehop.") // the name of the work queue may have it too
	if at < 0 {
		return "", false
	}
	owner = exchange[:at]
	return owner, slices.Contains(WorkQueue{Name: owner}.exchanges(), exchange)
}

// isWiring reports whether an exchange is one between a work queue and its waits.
func isWiring(exchange string) bool {
	_, ok := wiringOf(exchange)
	return ok
}

// isAstray reports whether a binding of an exchange between a work queue of the plan and its waits leads where those of no schedule,
// engine or version do.
func (d *comparison) isAstray(b plannedBinding) bool {
	owner, ok := wiringOf(b.Exchange)
	if !ok || !d.hasOwner(owner) || d.isOfCommonLetters(b) {
		return false
	}
	w, every, all := WorkQueue{Name: owner}, PlannedEngine{}, builder{}
	for i := range delay.MaxWaits {
		every.Waits, every.nacks = append(every.Waits, route.WaitQueue(owner, i+1)), append(every.nacks, true)
	}
	w.wiring(&all, true, every)
	kind := all.plan.exchanges[slices.IndexFunc(all.plan.exchanges, func(e plannedExchange) bool { return e.Name == b.Exchange })].Kind
	return !b.isAmong(all.plan.bindings, kind)
}

// isAmong reports whether an exchange of this kind takes a binding for one of these.
func (b plannedBinding) isAmong(list []plannedBinding, kind string) bool {
	return slices.ContainsFunc(list, func(of plannedBinding) bool { return of.asReadBy(kind).identity() == b.asReadBy(kind).identity() })
}

// asReadBy returns a binding with only what an exchange of this kind reads of it. By two that are the same so a message comes to their
// queue once.
func (b plannedBinding) asReadBy(kind string) plannedBinding {
	switch kind {
	case amqp.ExchangeDirect, amqp.ExchangeTopic:
		b.Args = nil
	case amqp.ExchangeHeaders:
		b.RoutingKey = ""
	case amqp.ExchangeFanout:
		b.RoutingKey, b.Args = "", nil
	}
	return b // of a plugin's kind all of it
}

// isTwin reports whether a binding of an exchange between a work queue and its waits does what one of the plan does that was found too.
func (d *comparison) isTwin(b plannedBinding, found map[string]plannedBinding) bool {
	at := slices.IndexFunc(d.plan.exchanges, func(e plannedExchange) bool { return e.Name == b.Exchange && isWiring(e.Name) })
	there := slices.DeleteFunc(slices.Clone(d.plan.bindings), func(p plannedBinding) bool {
		_, exists := found[p.identity()]
		return !exists
	})
	return at >= 0 && b.isAmong(there, cmp.Or(d.have.exchanges[b.Exchange].Type, d.plan.exchanges[at].Kind))
}

// isOfCommonLetters reports whether a binding leads the dead letters of a work queue to those that lanes or shards of a Name have in
// common: the work queue may have been one of these, or of lanes that had [Lanes.OneDeadLetterQueue] once. Only its name tells, and
// names alone do not tell a lane with a dot in its own name.
func (d *comparison) isOfCommonLetters(b plannedBinding) bool {
	name, word, isPart := b.asCommonLetters()
	return isPart && (!strings.Contains(word, ".") || slices.ContainsFunc(d.plan.Engines, func(e PlannedEngine) bool {
		return e.Queue == name+"."+word && e.work.lane.lanes == name
	}))
}

// asCommonLetters returns the lanes or shards, and the one of them, whose dead letters a binding would lead to those that they have in
// common.
func (b plannedBinding) asCommonLetters() (name, word string, ok bool) {
	owner, isUnrouted := strings.CutSuffix(b.Exchange, WorkQueue{}.unroutedExchange())
	name, isLetters := strings.CutSuffix(b.Queue, WorkQueue{}.DeadLetterQueue().Name)
	word, isPart := strings.CutPrefix(owner, name+".")
	return name, word, isUnrouted && isLetters && isPart
}

// strangeness says who binds a binding that is astray.
func (b plannedBinding) strangeness() string {
	if name, word, ok := b.asCommonLetters(); ok {
		return fmt.Sprintf("rehop binds it only for lane %q of Lanes %q, so unless work queue %q was that lane once, ", word, name, name+"."+word)
	}
	return "no version of rehop binds it, so "
}

// isOurs reports whether all bindings of an exchange are declared by rehop. The exchanges of the user have other bindings.
func (e plannedExchange) isOurs() bool { return e.Owner != "" || levels.Is(e.Name) }

// isOfDelays reports whether another call may have declared a binding with Delays: one to a target of its own from the
// exchange that leads to all targets, one from a longer level, or one by which lanes are a target.
func (d *comparison) isOfDelays(b plannedBinding) bool {
	if levels.Is(b.Exchange) && strings.HasSuffix(b.Exchange, ".deliver") {
		return levels.IsDeliverPattern(b.RoutingKey, b.Queue)
	}
	return (levels.Is(b.Exchange) || d.isDue(b.Exchange)) && !d.planned[part{"exchange", b.Exchange}]
}

// isDue reports whether an exchange has the name of one that leads delayed messages to lanes of the plan.
func (d *comparison) isDue(exchange string) bool {
	return slices.ContainsFunc(d.plan.Engines, func(e PlannedEngine) bool {
		return e.work.ofLanes() && strings.HasPrefix(exchange, e.work.lane.lanes+lanesSuffix+dueSuffix)
	})
}

func (b plannedBinding) destination() part {
	if b.ToExchange != "" {
		return part{"exchange", b.ToExchange}
	}
	return part{"queue", b.Queue}
}

// bindingLoss says what happens without a binding.
func (p Plan) bindingLoss(b plannedBinding) string {
	if b.users {
		return "messages that are published to its exchange with such a key do not reach " + b.destination().String()
	}
	switch {
	case levels.Is(b.Exchange):
		return "delayed messages do not reach their target"
	case p.isEntrance(b.Exchange):
		return "messages of this priority go to the normal lane, and not to " + b.destination().String()
	case slices.Contains(p.lanes, b.Owner) && strings.HasPrefix(b.Exchange, b.Owner+lanesSuffix+restSuffix):
		return "messages without a priority reach no queue: the broker returns them (NO_ROUTE)"
	}
	return "messages on their way between work queue, waits and dead letters take another one, or do not go on"
}

// identity is what makes a binding another one.
func (b plannedBinding) identity() string {
	text, err := json.Marshal([]any{b.Exchange, b.RoutingKey, b.Queue, b.ToExchange, wireText(map[string]any(b.Args))})
	if err != nil { // of floats such as NaN
		return b.describe()
	}
	return string(text)
}

// wireText returns a value as the management API writes it, with all numbers as texts.
func wireText(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		return wireText(map[string]any(v))
	case map[string]any:
		all := map[string]any{}
		for name, v := range v {
			all[name] = wireText(v)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i, v := range v {
			all[i] = wireText(v)
		}
		return all
	case []byte:
		return string(v)
	case time.Time:
		return strconv.FormatInt(v.Unix(), 10)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
		return v.String()
	case string, nil:
		return v
	}
	return fmt.Sprint(v)
}

// asPlanned returns a binding of a broker.
func asPlanned(have management.Binding) plannedBinding {
	b := plannedBinding{Exchange: have.Source, RoutingKey: have.RoutingKey, Args: have.Arguments}
	if have.ToExchange {
		b.ToExchange = have.Destination
	} else {
		b.Queue = have.Destination
	}
	return b
}

// policies finds the policies that break a promise.
func (d *comparison) policies() {
	var broken breaking
	for _, q := range d.plan.policed() {
		form, seen := d.have.queues[q.name]
		if q.user, q.operator = (management.Policy{Name: form.Policy}), (management.Policy{Name: form.OperatorPolicy}); d.have.rules != nil && (!seen || form.Policy != "" && form.OperatorPolicy != "") {
			if !seen { // it will have them when it is declared, as others had them that were here before
				if form = d.plannedForm(q.name); form.Name == "" {
					continue
				}
			}
			user, operator, unsure := d.have.rules.Of(form)
			switch {
			case !seen && unsure == "":
				form.Policy, form.OperatorPolicy, form.Definition, seen = user.Name, operator.Name, management.Together(user, operator), true
				q.user, q.operator = user, operator
			case !seen && !slices.Contains(d.drift.Unseen, unsure):
				d.drift.Unseen = append(d.drift.Unseen, unsure)
			case seen && user.Name == form.Policy && operator.Name == form.OperatorPolicy: // or they have just changed
				q.user, q.operator = user, operator
			}
		}
		if !seen {
			continue
		}
		q.broker = form.Queue
		if q.role == foreignRole && form.Unsure != "" {
			d.lettersUnsure(q)
			continue
		}
		for _, f := range q.faults(d.plan.Version) {
			if f.Policy == "" {
				d.lettersMissing(f, form)
				continue
			}
			code := policyCode
			if strings.HasPrefix(f.Policy, operatorPolicy) {
				code = operatorPolicyCode
			}
			broken.add(f, len(d.drift.Differences))
			d.add(DriftOverridden, code, part{"queue", q.name}, q.expected(f.Key), fmt.Sprintf("%s sets %s to %s", f.Policy, f.Key, f.Value), f.Effect, "")
		}
		d.timeout(q)
	}
	for _, b := range broken {
		remedy := b.remedy(d.have)
		for _, at := range b.at {
			d.drift.Differences[at].Remedy = remedy
		}
	}
}

// timeout judges the consumer timeout that a queue was declared with, as that of a policy: topology.Declare accepts any.
func (d *comparison) timeout(q ruled) {
	v, own := d.plan.Version, q.argument(consumerTimeoutArgument)
	effect := q.timeoutEffect(v, own)
	if effect == "" || q.role == waitRole && v.AtLeast(4, 3) { // which compares it
		return
	}
	planned := d.plan.queues[slices.IndexFunc(d.plan.queues, func(p plannedQueue) bool { return p.Name == q.name })]
	remedy := fmt.Sprintf("%s; then delete it (%s) and declare again", planned.emptied(d.have.vhost), deleteQueue(d.have.vhost, q.name))
	if q.role == workRole {
		remedy += bindAgain
	}
	if v.AtLeast(4, 3) {
		remedy = "set ConsumerTimeout in the specification: consumers then ask for it, and the argument does not count"
	}
	d.add(DriftOverridden, "queue-arguments", part{"queue", q.name}, q.expected(consumerTimeoutArgument),
		consumerTimeoutArgument+" "+milliseconds(strconv.FormatInt(own, 10)), effect, remedy)
}

// plannedForm returns a queue as it is planned, without a name if it is none of the plan.
func (d *comparison) plannedForm(name string) management.Form {
	for _, q := range d.plan.queues {
		if q.Name == name {
			kind, _ := q.Args["x-queue-type"].(string)
			return management.Form{Name: name, Durable: true, Queue: management.Queue{Type: kind, Arguments: asAnswer(q.Args)}}
		}
	}
	return management.Form{}
}

// lettersMissing tells of a queue of others without dead letters, which its owner gives it.
func (d *comparison) lettersMissing(f route.PolicyFault, form management.Form) {
	for _, e := range d.plan.Engines {
		if e.Queue == f.Queue {
			d.add(DriftWeak, "policy-missing", part{"queue", f.Queue}, f.Key+" "+e.work.unroutedExchange()+", or another one", none, f.Effect,
				"its owner may mend it while it lives: "+e.work.letterAdvice(d.have.vhost, form.Queue, true, d.plan.Version))
		}
	}
}

// lettersUnsure tells of a queue of others whose arguments give it no dead letters, and whose policies are not known.
func (d *comparison) lettersUnsure(q ruled) {
	why := q.broker.Unsure
	q.broker.Unsure = ""
	if q.lossEffect(d.plan.Version) != "" && !slices.Contains(d.drift.Unseen, why) { // a file has told why already
		d.drift.Unseen = append(d.drift.Unseen, fmt.Sprintf("policies of queue %q: %s", q.name, why))
	}
}

// limit finds out whether the virtual host has room for the missing queues.
func (d *comparison) limit() {
	if d.have.maxQueues == nil || *d.have.maxQueues < 0 {
		return
	}
	lost := 0
	for _, at := range d.lost {
		if at.kind == "queue" {
			lost++
		}
	}
	if room := max(0, *d.have.maxQueues-d.have.allQueues); lost > room {
		d.add(DriftOverridden, "queue-limit", part{"virtual host", d.have.vhost}, fmt.Sprintf("room for %d queues", lost),
			fmt.Sprintf("max-queues %d, and %d queues exist", *d.have.maxQueues, d.have.allQueues), "topology.Declare is refused",
			"raise the limit max-queues: "+ctl.API("PUT", fmt.Sprintf(`{"value":%d}`, d.have.allQueues+lost), "vhost-limits", d.have.vhost, "max-queues"))
	}
}

// weak finds what is as declared, and goes slower than it could.
func (d *comparison) weak() {
	for _, q := range d.plan.queues {
		form, seen := d.have.queues[q.Name]
		if d.have.to == nil { // nor are policies known, which may have mended it
			return
		}
		effect, remedy := heldAdvice(d.have.vhost, q.Name, q.Args, form.Definition, d.plan.Version)
		if !seen || q.role != workRole || effect == "" {
			continue
		}
		found := none
		if policy, has := form.Definition[disconnectedTimeoutKey]; has {
			found = fmt.Sprintf("%s sets %s to %v", ruled{broker: form.Queue}.policies(), disconnectedTimeoutKey, policy)
		} else if own, has := q.Args[disconnectedTimeoutArgument]; has {
			found = fmt.Sprintf("%s %v", disconnectedTimeoutArgument, own)
		}
		d.add(DriftWeak, "consumer-held", part{"queue", q.Name}, fmt.Sprintf("%s %d", disconnectedTimeoutArgument, disconnectedTimeout.Milliseconds()), found, effect, remedy)
	}
	for _, s := range d.plan.shards {
		d.leaders(s)
	}
}

// leaders finds a node that leads more shards than its share and one. The broker spreads the leaders
// of new queues only, and leaves them where a restart of the nodes has put them.
func (d *comparison) leaders(s Shards) {
	if s.Type.orDefault() != Quorum { // a classic queue has one node, and no leader to move
		return
	}
	led, nodes := map[string][]string{}, map[string]bool{}
	for _, w := range s.WorkQueues() {
		form := d.have.queues[w.Name]
		if form.Leader != "" {
			led[form.Leader] = append(led[form.Leader], w.Name)
		}
		for _, node := range form.Online {
			nodes[node] = true
		}
	}
	for _, node := range slices.Sorted(maps.Keys(led)) {
		share := (s.Count + len(nodes) - 1) / max(1, len(nodes))
		if len(nodes) > 1 && len(led[node]) > share+1 {
			d.add(DriftWeak, "leaders-together", part{"queue", led[node][0]}, fmt.Sprintf("leaders of %d shards on %d nodes", s.Count, len(nodes)),
				fmt.Sprintf("%s leads %d of them", node, len(led[node])), "these shards share the CPU and the disk of one node",
				fmt.Sprintf("rabbitmq-queues rebalance quorum --vhost-pattern %s --queue-pattern %s", ctl.Quote("^"+regexp.QuoteMeta(d.have.vhost)+"$"), ctl.Quote("^"+regexp.QuoteMeta(s.Name)+`\.[0-9][0-9]$`)))
		}
	}
}

// defects finds out which known defects of the broker the plan meets.
func (d *comparison) defects() {
	v := d.plan.Version
	if v.Major != 4 || v.Minor != 3 || v.Patch < 0 || v.Patch > 5 { // a series has no defect that its newest version does not have
		return
	}
	for _, q := range d.plan.queues {
		if q.Args["x-single-active-consumer"] == true && q.Args["x-queue-type"] == string(Quorum) {
			d.add(DriftBroken, "broker-defect", part{"queue", q.Name}, "broker 4.3.6 or later", "broker "+v.String(),
				"once every attached consumer has met its consumer timeout, the queue delivers to none of them any more (rabbitmq-server issue 17317)",
				"upgrade the broker; until then, restart the consumers of a queue that stands still")
		}
	}
}
