package topology

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/internal/route"
)

// Role is what a program does with the specifications of a plan, see [Plan.Permissions].
type Role string

// The roles.
const (
	// RoleDeclare calls [Declare] with the specifications.
	RoleDeclare Role = "declare"

	// RoleConsume consumes the work queues, lanes and shards. It consumes a
	// [DeadLetterQueue] that none of the other specifications leads to. On broker 4.0 and
	// later it uses the [Delays] for consumer.RetryAfter.
	RoleConsume Role = "consume"

	// RolePublish publishes to each [Exchange], to the exchanges of Bindings, to the Exchange
	// of a DeadLetterQueue, and by their names to the work queues and shards without Bindings. It
	// publishes to the lanes without Bindings by Lanes.Exchange. With [Delays] it publishes
	// with a Delay as well, and declares the Delays on its Conn: together with each Exchange, and
	// with the work queues that it publishes to, and the Queues of the Delays, as Delays.Queues.
	//
	// A publish to a queue by its name takes write on amq.default, the default exchange, and the
	// broker asks for nothing on the queue. So this user may publish to every queue of the virtual
	// host. A publisher that may not reach them all publishes to an Exchange that the work queue is bound
	// to, without Delays, whose exchanges lead to each of their targets.
	RolePublish Role = "publish"
)

// Permissions are the permissions of a user in a virtual host: regular expressions of
// the names of queues and exchanges, as rabbitmqctl set_permissions and the management API
// (PUT /api/permissions/VHOST/USER) take them. "^$" matches no name.
type Permissions struct {
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

// Permissions returns the permissions that a program with these roles needs, and no others.
// Their names are sorted.
//
// The queues that belong to a work queue have other names with other Waits or another Count, so
// the expressions have families of names: orders\.wait\..* for all waits of orders, of whatever
// schedule. Other Waits or another Count need no other permissions, but for the first Waits of a
// work queue without any. A queue named orders.eu is in none of these families. Where Waits are
// taken away and messages are left in them by EngineCarry, set WorkQueue.Engine to EngineCarry
// until they have come back: only then may the consumer read these waits.
//
// A consumer needs the more for the engine [EngineNack], because it looks at its queues and
// puts back missing parts. With less it goes on by EngineRepublish, which is the better
// engine for a program that may do little: set WorkQueue.Engine. The plan that [DeclarePlan]
// returns has the engines in force on the broker. Where they, or the waits, are others than the
// specification alone says, such as after an upgrade from 3.x, the consumer needs to look as
// well: otherwise its messages may come back late, and unconfirmed.
func (p Plan) Permissions(roles ...Role) Permissions { return p.grants(false, roles).permissions() }

// grants returns the permissions of these roles: of families of names, or of exact names.
func (p Plan) grants(exact bool, roles []Role) *grants {
	g := &grants{plan: p, exact: exact}
	for _, role := range roles {
		switch role {
		case RoleDeclare:
			g.declareAll()
		case RoleConsume:
			g.consume()
		case RolePublish:
			g.publish()
		}
	}
	return g
}

func (g *grants) permissions() Permissions {
	return Permissions{g.configure.expression(), g.write.expression(), g.read.expression()}
}

// And returns the permissions of a program that needs both, such as one that consumes by one plan
// and publishes by another one. Both are permissions that [Plan.Permissions] or And returned.
func (p Permissions) And(other Permissions) Permissions {
	both := func(a, b string) string {
		all := namesOf(a)
		maps.Copy(all, namesOf(b))
		return all.expression()
	}
	return Permissions{both(p.Configure, other.Configure), both(p.Write, other.Write), both(p.Read, other.Read)}
}

// families are regular expressions of names.
type families map[string]bool

// expression returns one that matches the names of all.
func (f families) expression() string {
	all := slices.Sorted(maps.Keys(f))
	all = slices.DeleteFunc(all, func(one string) bool {
		for whole := range f {
			if prefix, ok := strings.CutSuffix(whole, ".*"); ok && one != whole && strings.HasPrefix(one, prefix) {
				return true
			}
		}
		return false
	})
	switch len(all) {
	case 0:
		return "^$"
	case 1:
		return "^" + all[0] + "$"
	default:
		return "^(" + strings.Join(all, "|") + ")$"
	}
}

// namesOf returns the families of an expression.
func namesOf(expression string) families {
	f := families{}
	inner := strings.TrimSuffix(strings.TrimPrefix(expression, "^"), "$")
	if strings.HasPrefix(inner, "(") { // one of a name is quoted
		inner = inner[1 : len(inner)-1]
	}
	begin := 0
	for i := 0; i <= len(inner); i++ {
		switch {
		case i == len(inner) || inner[i] == '|':
			if i > begin {
				f[inner[begin:i]] = true
			}
			begin = i + 1
		case inner[i] == '\\':
			i++
		}
	}
	return f
}

// defaultExchange is the name by which permissions call the exchange without a name.
const defaultExchange = "amq.default"

// grants are permissions in the making.
type grants struct {
	plan                   Plan
	exact                  bool // families are names, and not quoted
	configure, write, read families
}

func (g *grants) add(to *families, names ...string) {
	for _, name := range names {
		if *to == nil {
			*to = families{}
		}
		if g.exact {
			(*to)[name] = true
			continue
		}
		(*to)[g.plan.family(name)] = true
	}
}

// family returns the regular expression of a name, and of the names that are in its place where the
// schedule or the number of shards is another one.
func (p Plan) family(name string) string {
	waitsOf, _, isWait := route.WaitOf(name)
	owner, ofWiring := wiringOf(name)
	for _, e := range p.Engines {
		switch family := p.ownerFamily(e); {
		case name == e.Queue:
			return family
		case isWait && waitsOf == e.Queue:
			return family + `\.wait\..*`
		case ofWiring && owner == e.Queue:
			return family + `\.rehop\..*`
		}
	}
	var prefixes []string
	for _, lanes := range p.lanes {
		prefixes = append(prefixes, lanes+lanesSuffix+".")
	}
	for _, s := range p.shards {
		prefixes = append(prefixes, route.MembersQueues(s.Name), route.SeatQueues(s.Name))
	}
	for _, d := range p.delays {
		prefixes = append(prefixes, levels.Of(d.Levels.Grain).Prefix())
	}
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return regexp.QuoteMeta(prefix) + ".*"
		}
	}
	return regexp.QuoteMeta(name)
}

// ownerFamily is family for a work queue.
func (p Plan) ownerFamily(e PlannedEngine) string {
	if slices.ContainsFunc(p.shards, func(s Shards) bool { return s.Name == e.work.shards }) {
		return regexp.QuoteMeta(e.work.shards) + `\.[0-9][0-9]`
	}
	return regexp.QuoteMeta(e.Queue)
}

// declare grants the declaration of some parts and bindings. The broker asks for configure on a
// part. It asks for read on a new part that leads messages to an exchange, and for write on that
// exchange. A binding takes read on its exchange, and write on its destination.
func (g *grants) declare(part func(name string) bool, binding func(plannedBinding) bool) {
	declare := func(name string, to any) {
		if !part(name) {
			return
		}
		g.add(&g.configure, name)
		if to, leads := to.(string); leads {
			g.add(&g.read, name)
			g.add(&g.write, to)
		}
	}
	for _, e := range g.plan.exchanges {
		declare(e.Name, e.Args["alternate-exchange"])
	}
	for _, q := range g.plan.queues {
		declare(q.Name, q.Args["x-dead-letter-exchange"])
	}
	for _, b := range g.plan.bindings {
		if binding(b) {
			g.add(&g.read, b.Exchange)
			g.add(&g.write, b.destination().name)
		}
	}
}

func (g *grants) declareAll() {
	g.declare(func(string) bool { return true }, func(plannedBinding) bool { return true })
}

// declareDelays grants the declaration of the exact delays without what they lead to.
func (g *grants) declareDelays() {
	g.declare(levels.Is, func(b plannedBinding) bool { return levels.Is(b.Exchange) && levels.Is(b.destination().name) })
}

func (g *grants) consume() {
	for _, e := range g.plan.Engines {
		g.add(&g.read, e.Queue)
		g.add(&g.write, defaultExchange)
		if back := e.work.returnExchange(); g.exact {
			g.add(&g.write, back)
		} else {
			g.write[g.plan.ownerFamily(e)+regexp.QuoteMeta(strings.TrimPrefix(back, e.Queue))] = true // and no other exchange
		}
		if e.looks(g.plan.Version) {
			g.look(e)
		}
		if e.Engine == EngineCarry {
			g.add(&g.read, e.Waits...)
			g.add(&g.read, route.WaitQueue(e.Queue, 1)) // of a schedule that had waits
		}
		if slices.ContainsFunc(g.plan.delays, func(d plannedDelays) bool { return d.Confirmed }) {
			g.declareDelays()
			g.add(&g.write, e.Queue)
		}
	}
	for _, s := range g.plan.shards {
		if s.SingleActiveConsumer && s.Count > 1 {
			queues := []string{fmt.Sprint(route.MembersQueues(s.Name), s.Count), fmt.Sprint(route.SeatQueues(s.Name), s.Count, ".", 0)}
			g.add(&g.configure, queues...)
			g.add(&g.read, queues...)
		}
	}
	for _, q := range g.plan.letters() {
		g.add(&g.read, q)
		g.add(&g.write, defaultExchange)
	}
}

// looks reports whether a consumer that may not look at its parts would know another engine, or
// other waits, than those that it has.
func (e PlannedEngine) looks(v connection.Version) bool {
	unseen, _, err := engineFor(e.work, v, existing{})
	if len(e.Waits) > 0 && (err != nil || unseen == EngineNack || unseen != e.Engine) {
		return true
	}
	for i, name := range e.Waits {
		if name != route.WaitQueue(e.Queue, i+1) {
			return true
		}
	}
	return false
}

// look grants the looks of a consumer at the parts of its work queue, which are declarations, and
// the declaration of those that are missing.
func (g *grants) look(e PlannedEngine) {
	own := map[string]bool{}
	for _, queue := range append([]string{e.Queue, e.work.DeadLetterQueue().Name}, e.Waits...) {
		own[queue] = true
	}
	between := func(b plannedBinding) bool { return b.Owner == e.Queue && !b.users && !levels.Is(b.Exchange) }
	for _, b := range g.plan.bindings {
		if between(b) {
			own[b.Exchange] = true
		}
	}
	g.declare(func(name string) bool { return own[name] }, between)
	if e.work.ofLanes() {
		g.add(&g.configure, Lanes{Name: e.work.lane.lanes}.Exchange())
	}
}

// letters returns the dead-letter queues that nothing else in the plan leads to.
func (p Plan) letters() (queues []string) {
	for _, q := range p.queues {
		led := func(b plannedBinding) bool { return b.Queue == q.Name && (b.Owner != "" || levels.Is(b.Exchange)) }
		if q.role == letterRole && !slices.ContainsFunc(p.bindings, led) {
			queues = append(queues, q.Name)
		}
	}
	return queues
}

func (g *grants) publish() {
	for _, e := range g.plan.exchanges {
		if e.Owner == "" && !levels.Is(e.Name) {
			g.add(&g.write, e.Name)
		}
	}
	bound := map[string]bool{} // work queues, and lanes as a whole
	for _, b := range g.plan.bindings {
		if b.users {
			g.add(&g.write, b.Exchange)
			bound[b.Owner] = true
		}
	}
	for _, lanes := range g.plan.lanes {
		if !bound[lanes] {
			g.add(&g.write, Lanes{Name: lanes}.Exchange())
		}
	}
	var named []string // work queues that are published to by their names
	for _, e := range g.plan.Engines {
		lanes := e.work.lane.lanes
		if bound[e.Queue] || bound[lanes] {
			continue
		}
		if named = append(named, e.Queue); !slices.Contains(g.plan.lanes, lanes) {
			g.add(&g.write, defaultExchange)
		}
	}
	for _, s := range g.plan.specs {
		if d, ok := s.(Delays); ok {
			g.add(&g.write, d.Queues...)
		}
	}
	for _, d := range g.plan.delays {
		g.declareDelays()
		g.add(&g.write, named...)
		for _, x := range d.Exchanges {
			if x.Refuses("") == "" {
				g.add(&g.configure, x.Name)
			}
		}
	}
}
