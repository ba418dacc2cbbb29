package topology_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

func TestDeclaringAgainChangesNothing(t *testing.T) {
	everyVersion(t, func(s *server) {
		for _, kind := range []topology.QueueType{topology.Quorum, topology.Classic} {
			w := orders(func(w *topology.WorkQueue) { w.Name, w.Type = string(kind), kind })
			first := s.declare(topology.Exchange{Name: "shop"}, w)
			queues := s.Queues()
			for range 2 {
				if again := s.declare(topology.Exchange{Name: "shop"}, w); again.String() != first.String() {
					s.Errorf("declared again, the plan is\n%s\nwant\n%s", again, first)
				}
			}
			if again := s.Queues(); !slices.Equal(again, queues) {
				s.Errorf("declared again there are %v, want %v", again, queues)
			}
			for _, q := range topology.PlannedQueues(first) {
				if _, ok := s.Queue(q.Name); !ok {
					s.Errorf("queue %s was not declared", q.Name)
				}
			}
			r := s.resolve(w)
			if topology.Engine(r.Engine) != first.Engines[0].Engine {
				s.Errorf("the route has the engine %s, the plan %s", r.Engine, first.Engines[0].Engine)
			}
		}
	})
}

// A process of each schedule is alive, and both declare in turns.
func TestChangedWaitHasAQueueOfItsOwn(t *testing.T) {
	everyVersion(t, func(s *server) {
		asked := func(w *topology.WorkQueue) {
			w.Bindings = nil
			if s.conn.Server().Version.Major == 3 {
				w.Engine = topology.EngineRepublish // carry names them otherwise
			}
		}
		old := orders(asked, waiting(time.Minute, 2*time.Minute, 3*time.Minute))
		changed := orders(asked, waiting(time.Minute, 3*time.Minute, 3*time.Minute))
		for range 2 {
			if plan := s.declare(old); len(plan.Engines[0].Waits) != 3 || plan.Engines[0].Waits[1] != "orders.wait.2" {
				s.Errorf("the old schedule waits in %v", plan.Engines[0].Waits)
			}
			plan := s.declare(changed)
			if got, want := plan.Engines[0].Waits, []string{"orders.wait.1", "orders.wait.2.3m", "orders.wait.3"}; !slices.Equal(got, want) {
				s.Errorf("the changed schedule waits in %v, want %v", got, want)
			}
			if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, "x-message-ttl 2m0s") || !strings.Contains(notes, `delete_queue orders.wait.2`) {
				s.Errorf("notes %q, want what is different and what to do", plan.Notes)
			}
		}
		r := s.resolve(changed)
		if got, want := r.Waits[1].At, (route.Target{RoutingKey: "orders.wait.2.3m"}); got != want {
			s.Errorf("wait 2 is at %v, want %v", got, want)
		}
		if r.Engine == route.Nack && (r.NackLandsOn("order.paid") != 1 || r.NackLandsOn("orders@1") != 0 || r.NackLandsOn("orders@2") != 3) {
			s.Errorf("nacks land on %d, %d, %d; want 1, no wait of this schedule, 3",
				r.NackLandsOn("order.paid"), r.NackLandsOn("orders@1"), r.NackLandsOn("orders@2"))
		}
		q, _ := s.Queue("orders.wait.2.3m")
		if q.Arguments["x-message-ttl"] != int64(180_000) || q.Arguments["x-dead-letter-routing-key"] != "orders@2" {
			s.Errorf("the queue of the changed wait has %v", q.Arguments)
		}
	})
}

func TestResolveNoticesEveryPartThatAMQPShows(t *testing.T) {
	everyVersion(t, func(s *server) {
		w := orders(func(w *topology.WorkQueue) { w.Bindings = nil })
		s.wantError("nothing declared", resolveError(s, w), "does not exist", `declare work queue "orders" first`)
		s.wantError("no dead-letter queue", resolveError(s, w.DeadLetterQueue()), `queue "orders.dlq" does not exist`)
		plan := s.declare(w)
		for _, q := range topology.PlannedQueues(plan) {
			s.deleteQueue(q.Name)
			s.wantError("without "+q.Name, resolveError(s, w), q.Name, "does not exist")
			s.declare(w)
		}
		for _, e := range topology.PlannedExchanges(plan) {
			s.on(func(ch *amqp.Channel) error { return ch.ExchangeDelete(e.Name, false, false) })
			s.wantError("without "+e.Name, resolveError(s, w), e.Name, "does not exist")
			s.declare(w)
		}
		s.resolve(w)
		s.resolve(w.DeadLetterQueue())
	})
}

func resolveError(s *server, source topology.Source) error {
	_, err := topology.Resolve(s.Context(), s.conn, source)
	return err
}

// A declaration that has died between its queues and its bindings leaves a wait
// that a nack would miss.
func TestResolveAddsMissingBindings(t *testing.T) {
	s := start(t, "4.3")
	w := orders(func(w *topology.WorkQueue) { w.Bindings = nil })
	s.declare(w)
	s.on(func(ch *amqp.Channel) error {
		return errors.Join(
			ch.QueueUnbind("orders.wait.2", "orders@1", "orders.rehop.delay", nil),
			ch.ExchangeUnbind("orders.rehop.delay", "", "orders.rehop.dlx", false, amqp.Table{"x-match": "all-with-x", "x-last-death-reason": "rejected"}))
	})
	s.resolve(w)
	s.on(func(ch *amqp.Channel) error {
		return ch.Publish("orders.rehop.delay", "orders@1", true, false, amqp.Publishing{})
	})
	if q, _ := s.Queue("orders.wait.2"); len(q.Ready) != 1 {
		s.Errorf("%d messages in the second wait, want the one with the key of the first", len(q.Ready))
	}
}

func TestMissingExchangeOfABinding(t *testing.T) {
	everyVersion(t, func(s *server) {
		err := topology.Declare(s.Context(), s.conn, orders())
		s.wantError("Declare", err, `exchange "shop" does not exist`, `queue "orders" binds to it`, "topology.Exchange{Name")
		if got := s.Queues(); len(got) > 0 {
			s.Errorf("%v were declared nevertheless", got)
		}
	})
}

func TestDelete(t *testing.T) {
	everyVersion(t, func(s *server) {
		shop := topology.Exchange{Name: "shop"}
		old, w := orders(), orders(waiting(time.Minute, 3*time.Minute))
		s.declare(shop, old)
		s.declare(shop, w)
		s.publish("orders.wait.4")
		s.publish("orders")
		before := s.Queues()
		err := topology.Delete(s.Context(), s.conn, shop, w)
		s.wantError("with messages", err, `queue "orders" is in use: it holds 1 messages`, `queue "orders.wait.4" is in use`)
		if !errors.Is(err, topology.ErrInUse) {
			s.Errorf("%v does not wrap ErrInUse", err)
		}
		if got := s.Queues(); !slices.Equal(got, before) {
			s.Errorf("only %v are left although Delete has refused", got)
		}
		s.on(func(ch *amqp.Channel) error {
			for _, q := range []string{"orders", "orders.wait.4"} {
				if _, err := ch.QueuePurge(q, false); err != nil {
					return err
				}
			}
			if _, err := ch.QueueDeclare("other", true, false, false, false, nil); err != nil {
				return err
			}
			return ch.QueueBind("other", "k", "shop", false, nil)
		})
		s.wantError("bound by others", topology.Delete(s.Context(), s.conn, shop, w), `exchange "shop" is in use`)
		s.deleteQueue("other")
		for range 2 { // the second time, nothing is there
			if err := topology.Delete(s.Context(), s.conn, shop, w); err != nil {
				s.Error(err)
			}
		}
		if got := s.Queues(); len(got) != 0 {
			s.Errorf("%v are left", got)
		}
		s.declare(shop, w)
		s.publish("orders")
		if err := topology.DeleteAll(s.Context(), s.conn, shop, w); err != nil {
			s.Error(err)
		}
		if got := s.Queues(); len(got) != 0 {
			s.Errorf("%v are left although all was to be deleted", got)
		}
	})
}

// OnConnect runs while the socket is being made that Declare waits for.
func TestDeclareInOnUpAndBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, "4.3")
		w := orders(func(w *topology.WorkQueue) { w.Bindings = nil })
		conn := s.connect(connection.Config{Lazy: true, OnConnect: func(ctx context.Context, c *connection.Conn) error {
			return topology.Declare(ctx, c, w)
		}})
		declare := func(when string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					if err := topology.Declare(ctx, conn, w); err != nil {
						t.Errorf("%s: %v", when, err)
					}
				})
			}
			wg.Wait()
		}
		declare("after a lazy Open")
		s.Cut("")
		declare("with the socket down")
	})
}

// beforeBinding calls a function before the first request to bind goes out.
type beforeBinding struct {
	net.Conn
	do func()
}

func (c *beforeBinding) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte{0, 50, 0, 20}) { // queue.bind
		c.do()
	}
	return c.Conn.Write(p)
}

// A node of a busy cluster may not find a queue that it has just declared, and
// somebody may delete it.
func TestAPartThatABindingDoesNotFindIsDeclaredAgain(t *testing.T) {
	everyVersion(t, func(s *server) {
		var once sync.Once
		conn, err := connection.Open(s.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"},
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := s.Dial(ctx, network, address)
				return &beforeBinding{c, func() { once.Do(func() { s.DeleteQueue("orders.dlq") }) }}, err
			}})
		if err != nil {
			s.Fatal(err)
		}
		defer conn.Close()
		w := orders(func(w *topology.WorkQueue) { w.Bindings = nil })
		if err := topology.Declare(s.Context(), conn, w, topology.WorkQueue{Name: "returns"}); err != nil {
			s.Fatal(err)
		}
		s.resolve(w)
	})
}

// A declaration at a cluster that is away holds up no other, and ends with ctx.
func TestDeclareEndsWithItsContext(t *testing.T) {
	away, err := rehoptest.NewBroker(rehoptest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_ = away.Close()
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://away"}, Dial: away.Dial, Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- topology.Declare(ctx, conn, orders()) }()
	s := start(t, "4.3")
	s.declare(topology.Exchange{Name: "shop"}, orders())
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Declare: %v, want the end of its ctx", err)
	}
}

func TestWhatIsForgottenIsAnError(t *testing.T) {
	s := start(t, "4.3")
	var none context.Context
	for _, tt := range []struct {
		rule string
		err  error
		want string
	}{
		{"Declare without a conn", topology.Declare(t.Context(), nil, orders()), "conn is nil"},
		{"Declare without a ctx", topology.Declare(none, s.conn, orders()), "ctx is nil"},
		{"Declare of nothing", topology.Declare(t.Context(), s.conn), "nothing to declare"},
		{"Delete without a conn", topology.Delete(t.Context(), nil, orders()), "conn is nil"},
		{"DeleteAll without a ctx", topology.DeleteAll(none, s.conn, orders()), "ctx is nil"},
		{"Resolve without a conn", second(topology.Resolve(t.Context(), nil, orders())), "conn is nil"},
		{"Resolve without a source", second(topology.Resolve(t.Context(), s.conn, nil)), "source is nil"},
		{"Resolve of a faulty route", second(topology.Resolve(t.Context(), s.conn, topology.Route{})), "Route.Queue is empty"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) || rehop.ClassOf(tt.err) != rehop.ClassBug {
			t.Errorf("%s: %v, want %q of class Bug", tt.rule, tt.err, tt.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// However far a declaration has come when its ctx ends, it leaves nothing that
// keeps another one away: as long as its connection lives, that would stay.
func TestADeclareThatIsCutShortKeepsNoOtherAway(t *testing.T) {
	w := orders(func(w *topology.WorkQueue) { w.Bindings = nil })
	changed := w
	changed.Waits = delay.Schedule{time.Minute, 3 * time.Minute}
	for _, tt := range []struct {
		rule   string
		before []topology.Spec
	}{
		{"where nothing exists", nil},
		{"where another wait exists, which refusals tell", []topology.Spec{w}},
	} {
		for _, version := range []string{"3.10", "4.0", "4.3"} {
			for cut := 50 * time.Millisecond; cut < 2*time.Second; cut += 100 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					s := start(t, version)
					other := s.connect(connection.Config{})
					if tt.before != nil {
						s.declare(tt.before...)
					}
					before := s.Queues()
					s.Slow(100 * time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), cut)
					defer cancel()
					_ = topology.Declare(ctx, s.conn, changed)
					synctest.Wait()
					left := s.Queues()
					for _, name := range left {
						if q, _ := s.Queue(name); q.Consumers > 0 {
							t.Errorf("%s, %s, cut after %v: queue %q is consumed", tt.rule, version, cut, name)
						}
					}
					for _, conn := range []*connection.Conn{other, s.conn} {
						ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
						defer cancel()
						plan, err := topology.DeclarePlan(ctx, conn, changed)
						if err != nil {
							t.Errorf("%s, %s, cut after %v: the next Declare, with two seconds: %v", tt.rule, version, cut, err)
							return
						}
						for _, name := range left {
							if !slices.Contains(before, name) && !slices.Contains(plan.Queues(), name) {
								t.Errorf("%s, %s, cut after %v: queue %q is left", tt.rule, version, cut, name)
							}
						}
					}
				})
			}
		}
	}
}

// A broker of 3.x ends the connection for it, which others use.
func TestAnUnknownKindOfExchangeIsDeclaredOnce(t *testing.T) {
	s := start(t, "3.10")
	var connects atomic.Int32
	conn := s.connect(connection.Config{OnConnect: func(context.Context, *connection.Conn) error { connects.Add(1); return nil }})
	before := connects.Load()
	err := topology.Declare(t.Context(), conn, topology.Exchange{Name: "shop", Kind: "x-strange"})
	if err == nil || !strings.Contains(err.Error(), "Exchange.Kind") || rehop.ClassOf(err) != rehop.ClassConfiguration {
		t.Errorf("Declare: %v, of class %v", err, rehop.ClassOf(err))
	}
	if _, err := conn.Session(t.Context(), connection.Consume); err != nil {
		t.Fatal(err)
	}
	if n := connects.Load() - before; n > 1 {
		t.Errorf("the connection was lost %d times, want once", n)
	}
}
