package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// The programs of these tests are users with the permissions of topology.Plan.Permissions, and then
// with each name of them taken away in turn.
//
// A run without a name costs as much as one with it, and a plan has up to thirty names. So every column shows
// that the permissions are enough, and fewer show that each name is missed. How a work queue misses it depends
// on the engine, and one column of each engine shows it. Lanes, shards, publishing and several roles at once consist
// of the same grants, and the newest shows it.

// program is a program with some roles.
type program struct {
	rule  string
	plan  []topology.Spec // that the permissions are for
	roles []topology.Role
	there []topology.Spec // that others have declared

	// less are the names that are taken away; nil: all.
	less func(name string) bool

	// run returns when all that its roles say has been done, or with the first error that
	// says that it cannot be.
	run func(u *user) error
}

// user is a program that runs.
type user struct {
	*env
	url  string
	conn *connection.Conn
	cut  func() // its connections

	mu     sync.Mutex
	denied []string // what was logged of permissions
}

// needs runs a program with exactly its permissions, and with each name less that it says.
func (e *env) needs(p program) {
	e.Helper()
	plan, err := topology.NewPlan(e.conn.Server().Version, p.plan...)
	if err != nil {
		e.Fatal(err)
	}
	for _, s := range slices.Concat(p.plan, p.there) {
		if _, shared := s.(topology.Delays); !shared {
			all, err := topology.NewPlan(e.conn.Server().Version, s)
			if err != nil {
				e.Fatal(err)
			}
			e.deleteLater(all)
		}
	}
	all := plan.Permissions(p.roles...)
	e.Logf("%s: %+v", p.rule, all)
	e.startOver(p)
	if u, err := e.runAs(p, all); err != nil || len(u.denied) > 0 {
		e.Fatalf("%s: with %+v: %v, and it logged %q", p.rule, all, err, u.denied)
	}
	for kind, expression := range map[string]*string{"configure": &all.Configure, "write": &all.Write, "read": &all.Read} {
		whole := *expression
		names := alternatives(whole)
		for i, name := range names {
			if p.less != nil && !p.less(name) {
				continue
			}
			*expression = expressionOf(slices.Concat(names[:i], names[i+1:]))
			e.startOver(p)
			u, err := e.runAs(p, all)
			if err != nil {
				u.denied = append(u.denied, err.Error())
			}
			quoted := regexp.MustCompile(`["']` + strings.ReplaceAll(name, ".*", `[^"' ]*`) + `["']`)
			if !slices.ContainsFunc(u.denied, func(text string) bool { return strings.Contains(text, kind) && quoted.MatchString(text) }) {
				e.Errorf("%s: without %s on %s it says %q; want what to grant", p.rule, kind, name, u.denied)
			}
		}
		*expression = whole
	}
}

// eachIn is each name in the columns that an Except leaves, and none in the others.
func (e *env) eachIn(except func(version, queueType string) string) func(name string) bool {
	less := except(e.version, string(e.queue)) == ""
	return func(string) bool { return less }
}

// startOver makes the broker as it is before a program runs. Exact delays are shared with other tests.
func (e *env) startOver(p program) {
	e.Helper()
	if len(p.there) > 0 {
		if err := topology.Declare(e.Context(), e.conn, p.there...); err != nil {
			e.Fatal(err)
		}
	}
	for _, s := range p.plan {
		if _, shared := s.(topology.Delays); shared {
			continue
		}
		if slices.Contains(p.roles, topology.RoleDeclare) {
			e.noError("delete", topology.DeleteAll(e.Context(), e.conn, s))
			continue
		}
		plan, err := topology.NewPlan(e.conn.Server().Version, s)
		e.noError("plan", err)
		ch := e.channel()
		for _, queue := range plan.Queues() {
			_, err := ch.QueuePurge(queue, false)
			e.noError("purge", err)
		}
		e.noError("close", ch.Close())
	}
}

func (e *env) runAs(p program, all topology.Permissions) (*user, error) {
	e.Helper()
	u := &user{env: e}
	proxy := e.startProxy()
	at, err := url.Parse(e.addUser(fmt.Sprint("user", names.Add(1)), all.Configure, all.Write, all.Read))
	if err != nil {
		e.Fatal(err)
	}
	through, err := url.Parse(proxy.url)
	if err != nil {
		e.Fatal(err)
	}
	at.Host = through.Host
	u.cut = proxy.cut
	u.url = at.String()
	u.conn = u.connects()
	defer u.conn.Close()
	return u, p.run(u)
}

func (u *user) connects() *connection.Conn {
	u.Helper()
	conn, err := connection.Open(u.Context(), connection.Config{URLs: []string{u.url}, OpenTimeout: patience, Logger: slog.New(u)})
	if err != nil {
		u.Fatal(err)
	}
	return conn
}

// Enabled, Handle, WithAttrs and WithGroup make a user a slog.Handler.
func (u *user) Enabled(context.Context, slog.Level) bool { return true }
func (u *user) WithAttrs([]slog.Attr) slog.Handler       { return u }
func (u *user) WithGroup(string) slog.Handler            { return u }
func (u *user) Handle(ctx context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += "; " + a.Key + ": " + a.Value.String()
		return true
	})
	if r.Level >= slog.LevelWarn && strings.Contains(text, "ACCESS_REFUSED") {
		u.mu.Lock()
		u.denied = append(u.denied, text)
		u.mu.Unlock()
	}
	return u.log().Handler().Handle(ctx, r)
}

// errDenied ends a program that has logged what it lacks.
var errDenied = errors.New("denied")

// await waits until a condition is true, and ends early for a program that cannot go on.
func (u *user) await(what string, done func() bool, ended <-chan error) (err error) {
	u.Helper()
	u.until(what, func() bool {
		select {
		case err = <-ended:
			return true
		default:
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		if len(u.denied) > 0 {
			err = errDenied
			return true
		}
		return done()
	})
	return err
}

// alternatives are the names of an expression.
func alternatives(expression string) []string {
	inner := strings.Trim(expression, "^$()")
	if inner == "" {
		return nil
	}
	return strings.Split(inner, "|")
}

func expressionOf(names []string) string {
	if len(names) == 0 {
		return "^$"
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

var (
	declares  = []topology.Role{topology.RoleDeclare}
	consumes  = []topology.Role{topology.RoleConsume}
	publishes = []topology.Role{topology.RolePublish}
)

// shortly is the schedule of these tests, and permitted their exact delays, whose levels nobody deletes.
var (
	shortly   = delay.Schedule{50 * time.Millisecond, 100 * time.Millisecond}
	permitted = topology.Delays{Grain: lastShared, Max: time.Second}
)

func (e *env) short(what string) topology.WorkQueue { return e.workQueue(what, waits(shortly...)) }

func TestPermissionsToDeclare(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		shop, other := topology.Exchange{Name: e.name("shop")}, topology.Exchange{Name: e.name("other")}
		bound := []topology.Binding{{Exchange: shop.Name, RoutingKey: "#"}}
		work, theirs, delayed := e.short("work"), e.short("theirs"), e.short("delayed")
		work.Bindings = bound
		theirs.Existing = true
		lanes := topology.Lanes{Name: e.name("sms"), Type: e.queue, Waits: shortly[:1], Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}, Bindings: bound}
		shards := topology.Shards{Name: e.name("bills"), Type: e.queue, Count: 2, Waits: shortly[:1]}
		foreign := topology.WorkQueue{Name: theirs.Name, Type: e.queue}
		newest := e.eachIn(matrix.OnlyNewest)
		for _, p := range []program{
			{rule: "an exchange", plan: []topology.Spec{other}},
			{rule: "a work queue with bindings", plan: []topology.Spec{work}, there: []topology.Spec{shop}},
			{rule: "a queue of others", plan: []topology.Spec{theirs}, there: []topology.Spec{foreign}},
			{rule: "lanes with exact delays", plan: []topology.Spec{permitted, shop, lanes}, less: newest},
			{rule: "shards", plan: []topology.Spec{shards}, less: newest},
			{rule: "exact delays to a queue of others", plan: []topology.Spec{topology.Delays{Grain: permitted.Grain, Max: permitted.Max, Queues: []string{delayed.Name}}}, there: []topology.Spec{delayed}, less: newest},
		} {
			p.roles = declares
			p.run = func(u *user) error {
				if err := topology.Declare(u.Context(), u.conn, p.plan...); err != nil {
					return err
				}
				return topology.Declare(u.Context(), u.conn, p.plan...)
			}
			e.needs(p)
		}
	}, "permissions: declaring")
}

func TestPermissionsToPublish(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		shop := topology.Exchange{Name: e.name("shop")}
		work, named := e.short("work"), e.short("named")
		work.Bindings = []topology.Binding{{Exchange: shop.Name, RoutingKey: "#"}}
		lanes := topology.Lanes{Name: e.name("sms"), Type: e.queue, Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}}
		letters := topology.DeadLetterQueue{Name: e.name("letters"), Exchange: e.name("letters.in")}
		shards := topology.Shards{Name: e.name("bills"), Type: e.queue, Count: 2, Waits: shortly[:1]}
		to := func(messages ...producer.Message) func(u *user) error {
			return func(u *user) error {
				p, err := producer.New(u.conn, producer.Config{})
				if err != nil {
					return err
				}
				defer p.Close()
				for _, m := range messages {
					if receipt, err := p.Publish(u.Context(), m); err != nil {
						return err
					} else if receipt.Cause != "" {
						return fmt.Errorf("%+v", receipt)
					}
				}
				return nil
			}
		}
		withDelays := func(run func(u *user) error, specs ...topology.Spec) func(u *user) error {
			return func(u *user) error {
				if err := topology.Declare(u.Context(), u.conn, specs...); err != nil {
					return err
				}
				return run(u)
			}
		}
		far := 500 * time.Millisecond
		toNamed := permitted
		toNamed.Queues = []string{named.Name}
		for _, p := range []program{
			{rule: "to an exchange", plan: []topology.Spec{shop}, there: []topology.Spec{shop, work}, run: to(producer.Message{Exchange: shop.Name})},
			{rule: "to the exchange of bindings", plan: []topology.Spec{work}, there: []topology.Spec{shop, work}, run: to(producer.Message{Exchange: shop.Name})},
			{rule: "to a queue by its name", plan: []topology.Spec{named}, there: []topology.Spec{named}, run: to(producer.Message{RoutingKey: named.Name})},
			{rule: "to shards", plan: []topology.Spec{shards}, there: []topology.Spec{shards}, run: to(producer.Message{RoutingKey: shards.Queue("a")}, producer.Message{RoutingKey: shards.Queue("b")})},
			{rule: "to lanes", plan: []topology.Spec{lanes}, there: []topology.Spec{lanes}, run: to(producer.Message{Exchange: lanes.Exchange(), Priority: 9}, producer.Message{Exchange: lanes.Exchange()})},
			{rule: "to the exchange of a fallback", plan: []topology.Spec{letters}, there: []topology.Spec{letters}, run: to(producer.Message{Exchange: letters.Exchange})},
			{rule: "to an exchange with a Delay", plan: []topology.Spec{permitted, shop}, there: []topology.Spec{permitted, shop, work},
				run: withDelays(to(producer.Message{Exchange: shop.Name, Delay: far}, producer.Message{Exchange: shop.Name}), permitted, shop)},
			{rule: "to a queue with a Delay", plan: []topology.Spec{permitted, named}, there: []topology.Spec{permitted, named},
				run: withDelays(to(producer.Message{RoutingKey: named.Name, Delay: far}, producer.Message{RoutingKey: named.Name}), toNamed)},
		} {
			p.roles, p.less = publishes, e.eachIn(matrix.OnlyNewest)
			e.needs(p)
		}
		// Of a publish to a queue by its name the broker asks for write on amq.default, and for nothing on
		// the queue: so the permission is for every queue, and none on the queue is enough.
		e.declare(named)
		for _, may := range []struct {
			write string
			want  bool
		}{{`^amq\.default$`, true}, {"^" + quoted(named.Name) + "$", false}, {"^(amq.gen.*|" + quoted(named.Name) + ")$", false}} {
			u := &user{env: e, conn: e.connectAs("publisher", "^$", may.write, "^$")}
			if err := to(producer.Message{RoutingKey: named.Name})(u); (err == nil) != may.want {
				e.Errorf("with write on %s: %v, want it to be published: %v", may.write, err, may.want)
			}
		}
	}, "permissions: publishing")
}

// consumer returns what a consumer does of a source with these work queues.
func (e *env) consumer(source topology.Source, queues ...topology.WorkQueue) func(u *user) error {
	return func(u *user) error {
		first := queues[0]
		j := newJournal(fail)
		ids := map[string]string{}
		for _, w := range queues {
			ids[w.Name] = u.send(w.Name, 1)[0]
		}
		stop, ended := u.start(u.conn, source, j)
		defer stop()
		if err := u.await("all are dead letters", func() bool {
			for _, id := range ids {
				if !j.reached(id, consumer.DispositionDeadLetter) {
					return false
				}
			}
			return true
		}, ended); err != nil {
			return err
		}
		for _, w := range queues {
			u.checkAttempts(j, w, ids[w.Name], len(w.Waits)+1)
		}
		if u.resolve(u.conn, first).Engine == string(topology.EngineNack) {
			if err := u.restore(queues, ended); err != nil {
				return err
			}
		}
		stop()
		for _, w := range queues {
			if err := u.snooze(w); err != nil {
				return err
			}
		}
		return nil
	}
}

// start consumes until stop, or until the channel has an error.
func (u *user) start(conn *connection.Conn, source topology.Source, j *journal) (stop func(), ended chan error) {
	c, err := consumer.New(conn, source, j.handle, consumer.Config{Logger: slog.New(u), Concurrency: 10, Traces: []consumer.Trace{j.trace()}})
	if err != nil {
		u.Fatal(err)
	}
	ctx, cancel := context.WithCancel(u.Context())
	ended, over := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(over)
		if err := c.Run(ctx); err != nil {
			ended <- err
		}
	}()
	return func() { cancel(); <-over }, ended
}

// restore has a consumer put back all parts but the work queues, which somebody has deleted.
func (u *user) restore(list []topology.WorkQueue, ended <-chan error) error {
	var queues, exchanges []string
	for _, w := range list {
		plan := u.mustPlan(w)
		queues, exchanges = append(queues, plan.Queues()[1:]...), append(exchanges, plan.Exchanges()...)
	}
	ch := u.channel()
	defer ch.Close()
	for _, q := range queues {
		_, err := ch.QueueDelete(q, false, false, false)
		u.noError("delete", err)
	}
	for _, x := range exchanges {
		u.noError("delete", ch.ExchangeDelete(x, false, false))
	}
	u.cut()
	return u.await("the missing parts are back", func() bool {
		look := u.channel() // the question after a part that is gone closes it
		defer look.Close()
		for _, q := range queues {
			if _, err := look.QueueDeclarePassive(q, true, false, false, false, nil); err != nil {
				return false
			}
		}
		for _, x := range exchanges {
			if look.ExchangeDeclarePassive(x, "topic", true, false, false, false, nil) != nil {
				return false
			}
		}
		return true
	}, ended)
}

// snooze is the next version of a service, without waits: a message that is put off goes to the
// end of its queue.
func (u *user) snooze(w topology.WorkQueue) error {
	w.Waits = nil
	j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
		if d.History.Snoozes == 0 {
			return consumer.Snooze(10*time.Millisecond, "not yet")
		}
		return nil
	})
	id := u.send(w.Name, 1)[0]
	conn := u.connects() // without exact delays
	defer conn.Close()
	stop, ended := u.start(conn, w, j)
	defer stop()
	return u.await("it is done", func() bool { return j.reached(id, consumer.DispositionDone) }, ended)
}

func TestPermissionsToConsume(t *testing.T) {
	everywhere(t, func(e *env) {
		work, republished, letters := e.short("work"), e.short("republished"), topology.DeadLetterQueue{Name: e.name("letters"), Type: e.queue}
		republished.Engine = topology.EngineRepublish
		theirs := e.short("theirs")
		theirs.Existing = true
		if err := topology.Declare(e.Context(), e.conn, topology.WorkQueue{Name: theirs.Name, Type: e.queue}); err != nil {
			e.Fatal(err)
		}
		for _, w := range []topology.WorkQueue{work, republished, theirs} {
			e.needs(program{rule: "consume " + w.Name, plan: []topology.Spec{w}, roles: consumes, there: []topology.Spec{w}, less: e.eachIn(matrix.OncePerEngine), run: e.consumer(w, w)})
		}
		e.needs(program{rule: "consume dead letters", plan: []topology.Spec{letters}, roles: consumes, there: []topology.Spec{letters}, less: e.eachIn(matrix.OncePerEngine), run: func(u *user) error {
			j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
				if d.History.Snoozes == 0 {
					return consumer.Snooze(10*time.Millisecond, "not yet")
				}
				return nil
			})
			id := u.send(letters.Name, 1)[0]
			stop, ended := u.start(u.conn, letters, j)
			defer stop()
			return u.await("it is done", func() bool { return j.reached(id, consumer.DispositionDone) }, ended)
		}})
	}, "permissions: consuming")
}

// A consumer of a queue of 4.0 and later may do without the permissions of the engine nack. Then it says so.
func TestPermissionsForRepublishAreEnoughToConsume(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.short("work")
		e.declare(w)
		republished := w
		republished.Engine = topology.EngineRepublish
		less := e.mustPlan(republished).Permissions(topology.RoleConsume)
		conn := e.connect(e.addUser("consumer", less.Configure, less.Write, less.Read))
		j := newJournal(fail)
		c := e.consumeOn(conn, w, j, consumer.Config{})
		id := e.send(w.Name, 1)[0]
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		e.checkAttempts(j, w, id, len(w.Waits)+1)
		e.until("it is healthy", func() bool { return c.Health() == nil }) // a confirm that is late degrades it for a moment
	}, "permissions: consuming by republish in place of nack")
}

func TestPermissionsToConsumeLanes(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		lanes := topology.Lanes{Name: e.name("sms"), Type: e.queue, Waits: shortly[:1], Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}}
		e.needs(program{rule: "consume lanes", plan: []topology.Spec{lanes}, roles: consumes, there: []topology.Spec{lanes}, less: e.eachIn(matrix.OnlyNewest), run: e.consumer(lanes, lanes.WorkQueues()...)})
	}, "permissions: consuming lanes and shards")
}

func TestPermissionsToConsumeShards(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		shards := topology.Shards{Name: e.name("bills"), Type: e.queue, Count: 2, Waits: shortly[:1], SingleActiveConsumer: true}
		e.deleteAtEnd([]string{shards.Name + ".members.2"}, nil)
		one := e.consumer(shards, shards.WorkQueues()...)
		e.needs(program{rule: "consume shards", plan: []topology.Spec{shards}, roles: consumes, there: []topology.Spec{shards}, less: e.eachIn(matrix.OnlyNewest), run: func(u *user) error {
			if err := one(u); err != nil {
				return err
			}
			return u.share(shards)
		}})
	}, "permissions: consuming lanes and shards")
}

// share has two processes handle a shard each.
func (u *user) share(s topology.Shards) error {
	var journals []*journal
	for range 2 {
		conn := u.connects()
		defer conn.Close()
		j := newJournal(func(context.Context, *consumer.Delivery) error { return nil })
		stop, _ := u.start(conn, s, j)
		defer stop()
		journals = append(journals, j)
	}
	return u.await("both processes handle messages", func() bool {
		for _, w := range s.WorkQueues() {
			u.send(w.Name, 1)
		}
		return journals[0].done() > 0 && journals[1].done() > 0
	}, nil)
}

func TestPermissionsToRetryAfterExactDelays(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.short("work")
		own := permitted
		own.Queues = []string{w.Name}
		// TestPermissionsToConsume takes the names of the work queue away.
		ofDelays := func(name string) bool { return strings.HasPrefix(name, "rehop") }
		e.needs(program{rule: "retry after exact delays", plan: []topology.Spec{permitted, w}, roles: consumes, there: []topology.Spec{permitted, w}, less: ofDelays, run: func(u *user) error {
			if u.conn.Server().Version.AtLeast(4, 0) {
				if err := topology.Declare(u.Context(), u.conn, own); err != nil {
					return err
				}
			}
			j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
				if d.Attempt == 1 {
					return consumer.RetryAfter(70*time.Millisecond, errBroken)
				}
				return nil
			})
			id := u.send(w.Name, 1)[0]
			stop, ended := u.start(u.conn, w, j)
			defer stop()
			if err := u.await("it is done", func() bool { return j.reached(id, consumer.DispositionDone) }, ended); err != nil {
				return err
			}
			if exact := j.settlements(id)[0].WaitNumber == 0; exact != u.conn.Server().Version.AtLeast(4, 0) {
				return fmt.Errorf("attempt 1 is said to be in %+v", j.settlements(id)[0])
			}
			stop()
			return e.consumer(w, w)(u)
		}})
	}, "permissions: RetryAfter by exact delays")
}

// A name is a name, and no expression, also on the command line of RabbitMQ.
func TestPermissionsOfAnyName(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.short(`a/b c.*|(é客)$[x]'"\d`)
		plan := e.declare(w)
		p := plan.Permissions(topology.RoleDeclare, topology.RoleConsume, topology.RolePublish)
		at := e.addUser("user", "^$", "^$", "^$")
		u, err := url.Parse(at)
		if err != nil {
			e.Fatal(err)
		}
		if out, err := e.node.Exec(e.Context(), "rabbitmqctl", "set_permissions", "-p", "/", u.User.Username(), p.Configure, p.Write, p.Read); err != nil {
			e.Fatal(out, err)
		}
		conn := e.connect(at)
		for range 2 {
			if err := topology.Declare(e.Context(), conn, w); err != nil {
				e.Fatal(err)
			}
		}
		j := newJournal(fail)
		id := e.send(w.Name, 1)[0]
		c := e.consumeOn(conn, w, j, consumer.Config{})
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		e.until("it is healthy", func() bool { return c.Health() == nil })
		for _, like := range []string{strings.Replace(w.Name, ".*", ".eu", 1), strings.Split(w.Name, "|")[0], w.Name + ".eu", "x" + w.Name} {
			if err := topology.Declare(e.Context(), conn, topology.DeadLetterQueue{Name: like}); err == nil || !strings.Contains(err.Error(), "configure") {
				e.Errorf("declare %q: %v; want what to grant", like, err)
				e.deleteAtEnd([]string{like}, nil)
			}
		}
	}, "permissions: of any name")
}

// The permissions of several roles are those of one program.
func TestPermissionsOfAService(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		shop := topology.Exchange{Name: e.name("shop")}
		work := e.short("work")
		work.Bindings = []topology.Binding{{Exchange: shop.Name, RoutingKey: "#"}}
		e.needs(program{rule: "a service", plan: []topology.Spec{shop, work}, roles: []topology.Role{topology.RoleDeclare, topology.RoleConsume, topology.RolePublish}, less: e.eachIn(matrix.OnlyNewest), run: func(u *user) error {
			for range 2 {
				if err := topology.Declare(u.Context(), u.conn, shop, work); err != nil {
					return err
				}
			}
			p, err := producer.New(u.conn, producer.Config{})
			if err != nil {
				return err
			}
			defer p.Close()
			if _, err := p.Publish(u.Context(), producer.Message{Exchange: shop.Name}); err != nil {
				return err
			}
			return e.consumer(work, work)(u)
		}})
	}, "permissions: a service with all roles")
}

// The waits are without a TTL, and nobody is there who may read them.
func TestNobodyCarries(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(150*time.Millisecond), func(w *topology.WorkQueue) { w.Engine = topology.EngineCarry })
		e.declare(w)
		later := topology.WorkQueue{Name: w.Name, Type: w.Type, Engine: topology.EngineCarry} // without waits
		plan, err := topology.NewPlan(e.conn.Server().Version, later)
		if err != nil {
			e.Fatal(err)
		}
		p := plan.Permissions(topology.RoleConsume)
		if carried := e.resolve(e.connectAs("carrier", p.Configure, p.Write, p.Read), later).Carried; len(carried) != 1 {
			e.Errorf("a consumer by carry, with its permissions, carries %v, want the wait that is left", carried)
		}
		w.Engine = topology.EngineAuto
		if strings.HasPrefix(e.version, "3.") {
			w.Engine = topology.EngineRepublish
		}
		conn := e.connectAs("consumer", "^$", `^amq\.default$`, "^"+quoted(w.Name)+"$")
		j := newJournal(fail)
		e.consumeOn(conn, w, j, consumer.Config{})
		e.publish(producer.Message{RoutingKey: w.Name, ID: "m", Expiration: time.Hour})
		e.until("it is a dead letter", func() bool { return j.reached("m", consumer.DispositionDeadLetter) })
		if got := j.attempts("m"); !slices.Equal(got, []int{1, 2}) {
			e.Errorf("attempts %v, want 1 and 2", got)
		}
		if h := j.of("m")[1].History; h.Archived.Expiration != "3600000" {
			e.Errorf("the archived expiration is %q, want the producer's", h.Archived.Expiration)
		}
	}, "permissions: waits that nobody carries")
}

// connectAs connects as a user of its own with these permissions.
func (e *env) connectAs(what, configure, write, read string) *connection.Conn {
	e.Helper()
	return e.connect(e.addUser(what, configure, write, read))
}

func quoted(name string) string { return strings.ReplaceAll(name, ".", `\.`) }
