package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/topology"
)

// What Consumer.Health says, and that the question behind it harms nobody. What
// it says of a node that is cut off is in package cluster.

// asked is how long a consumer without deliveries is watched: without answers it
// would be unhealthy after 15 s, and at this time it has asked twice.
const asked = 23 * time.Second

// quick is how soon a broker answers whose consumers have to be healthy. A consumer without an
// answer is unhealthy after 15 s.
const quick = 2 * time.Second

// staysHealthy waits for the consumers to consume, and then watches them. A consumer is rightly
// unhealthy while the broker is so slow that a question of the test waits for its answer too;
// then they are watched again.
func (e *env) staysHealthy(of map[string]*running) {
	e.Helper()
	for range 10 {
		unhealthy, slowest := e.watchHealth(of)
		if unhealthy == "" {
			return
		}
		if slowest < quick {
			e.Fatal(unhealthy)
		}
		e.Logf("%s, while the broker let the test wait for %v", unhealthy, slowest)
	}
	e.Fatal("the broker is too slow to tell anything")
}

// watchHealth returns which consumer is unhealthy, if one is, and how long the broker has let
// the test wait for an answer.
func (e *env) watchHealth(of map[string]*running) (unhealthy string, slowest time.Duration) {
	e.Helper()
	for name, r := range of {
		e.until(name+" is healthy", func() bool { return r.Health() == nil })
	}
	asks, answers, over := make(chan struct{}, 1), make(chan error, 1), make(chan struct{})
	ch := e.channel()
	defer func() {
		close(asks)
		<-over // a close beside a question would take its answer
		_ = ch.Close()
	}()
	go func() {
		defer close(over)
		for range asks {
			answers <- ch.ExchangeDeclarePassive("amq.direct", "direct", true, false, false, false, nil)
		}
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var waiting time.Time // the question that has no answer
	for end := time.After(asked); ; {
		if waiting.IsZero() {
			waiting = time.Now()
			asks <- struct{}{}
		}
		select {
		case err := <-answers:
			e.noError("ask the broker", err)
			slowest, waiting = max(slowest, time.Since(waiting)), time.Time{}
			<-tick.C
		case <-tick.C:
		case <-end:
			return "", slowest
		}
		for name, r := range of {
			if err := r.Health(); err != nil {
				if !waiting.IsZero() {
					slowest = max(slowest, time.Since(waiting))
				}
				return fmt.Sprintf("%s is said not to consume: %v", name, err), slowest
			}
		}
	}
}

func TestHealthOfRun(t *testing.T) {
	onNewest(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		e.send(w.Name, 1)
		p := e.startProxy()
		began, release := make(chan struct{}), make(chan struct{})
		c, err := consumer.New(e.connect(p.url), w, func(context.Context, *consumer.Delivery) error {
			close(began)
			<-release
			return nil
		}, consumer.Config{})
		if err != nil {
			e.Fatal(err)
		}
		is := func(when, want string) {
			e.Helper()
			if err := c.Health(); err == nil || !strings.Contains(err.Error(), want) {
				e.Errorf("%s: Health = %v, want %q", when, err, want)
			}
		}
		is("before Run", "not running")
		run := func() (stop func() error) {
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			return sync.OnceValue(func() error { cancel(); return <-ended })
		}
		stop := run()
		<-began
		e.until("it consumes", func() bool { return c.Health() == nil }) // its handler may begin a little before it says so
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		e.until("it stops", func() bool { return c.Health() != nil })
		is("while a handler is waited for", "stopping")
		close(release)
		e.noError("Run", <-stopped)
		is("after Run", "not running")
		e.noError("close the way to the broker", p.listener.Close())
		p.cut()
		stop = run()
		e.until("Run has begun", func() bool { return !strings.Contains(fmt.Sprint(c.Health()), "not running") })
		is("without a broker", "has not begun to consume")
		e.noError("Run", stop())
	}, "health: not running, starting, stopping")
}

func TestHealthyAre(t *testing.T) {
	everywhere(t, func(e *env) {
		idle, busy := e.workQueue("idle"), e.workQueue("busy")
		e.declare(idle, busy)
		single := topology.Route{Queue: e.rawQueue(e.name("single"), amqp.Table{"x-single-active-consumer": true})}
		ids := e.send(busy.Name, 2)
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		working := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			<-release
			return nil
		})
		rest, first, second := newJournal(succeed), newJournal(succeed), newJournal(succeed)
		active := e.consume(single, first, consumer.Config{})
		e.until("the active consumer is there", func() bool { return active.Health() == nil })
		e.staysHealthy(map[string]*running{
			"the idle one":                    e.consume(idle, rest, consumer.Config{}),
			"the one whose handlers are busy": e.consume(busy, working, consumer.Config{Concurrency: 1}),
			"the active one of two":           active,
			"the one that waits its turn":     e.consume(single, second, consumer.Config{}),
		})
		free()
		for _, id := range ids {
			e.until("it is done", func() bool { return working.reached(id, consumer.DispositionDone) })
			if d := working.of(id)[0]; d.Redelivered {
				e.Errorf("message %q was delivered before, while its consumer had no room", id)
			}
		}
		id := e.send(idle.Name, 1)[0]
		e.until("the idle consumer handles it", func() bool { return rest.reached(id, consumer.DispositionDone) })
		for _, id := range e.send(single.Queue, 3) {
			e.until("the active consumer handles it", func() bool { return first.reached(id, consumer.DispositionDone) })
		}
		e.halt(active)
		id = e.send(single.Queue, 1)[0]
		e.until("the other one takes over", func() bool { return second.reached(id, consumer.DispositionDone) })
	}, "health: idle, busy and waiting are healthy")
}

// The question is a consumer for some milliseconds. One that stays for the
// length of the test has all the time to take a message away.
func TestAskingDrawsNoMessage(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		j := newJournal(succeed)
		// One that follows the handlers is replaced now and then, which takes a moment.
		r := e.consume(w, j, consumer.Config{Prefetch: 10})
		e.until("it consumes", func() bool { return r.Health() == nil })
		// After its first message a consumer is replaced by one with more room.
		first := e.send(w.Name, 1)[0]
		e.until("it is done", func() bool { return j.reached(first, consumer.DispositionDone) })
		e.until("it has all its room", func() bool { return j.prefetch.Load() == 10 })
		ch := e.channel()
		defer ch.Close()
		e.noError("qos", ch.Qos(1, 0, false))
		strays, err := ch.Consume(w.Name, e.prefix+"-stray", false, false, false, false, amqp.Table{"x-priority": int32(-1000)})
		if err != nil {
			e.Fatal(err)
		}
		for range 50 {
			id := e.send(w.Name, 1)[0] // there is room for it
			e.until("it is done", func() bool {
				select {
				case <-strays:
					e.Fatal("the consumer of the lowest priority got a message while another had room")
				default:
				}
				return j.reached(id, consumer.DispositionDone) && e.acked(w.Name)
			})
		}
	}, "health: asking draws no message")
}

// acked tells whether a queue of a broker in the process has no message in
// hand: such a broker takes messages faster than acks are gathered. Of any
// other it is always true.
func (e *env) acked(queue string) bool {
	if e.node.process == nil {
		return true
	}
	q, ok := e.node.process.Queue(queue)
	return ok && len(q.Unacked) == 0
}

func TestHealthWantsPermissionToRead(t *testing.T) {
	everywhere(t, func(e *env) {
		route := topology.Route{Queue: e.rawQueue(e.name("foreign"), nil)}
		url := e.addUser("reader", "^$", "^$", "^"+quoted(route.Queue)+"$")
		e.staysHealthy(map[string]*running{"a reader": e.consumeOn(e.connect(url), route, newJournal(succeed), consumer.Config{})})
	}, "health: permission to read is enough")
}

func exceptRabbitmqctl(_, _ string) string {
	if os.Getenv("AMQP_URL") != "" {
		return "AMQP_URL is set: no rabbitmqctl"
	}
	return ""
}

func exceptRabbitmqctlByNack(version, queueType string) string {
	return cmp.Or(matrix.OnlyQuorum4(version, queueType), exceptRabbitmqctl(version, queueType))
}

func exceptRabbitmqctlOncePerEngine(version, queueType string) string {
	return cmp.Or(matrix.OncePerEngine(version, queueType), exceptRabbitmqctl(version, queueType))
}

func TestHealthOfADeletedQueue(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		j := newJournal(succeed)
		r := e.consume(w, j, consumer.Config{})
		e.until("it consumes", func() bool { return r.Health() == nil })
		e.deleteQueue(w.Name)
		e.until("it does not consume", func() bool { return r.Health() != nil })
		e.until("it says that the queue is missing", func() bool {
			err := r.Health()
			var reason *amqp.Error
			return errors.As(err, &reason) && reason.Code == amqp.NotFound && strings.Contains(err.Error(), w.Name)
		})
		if err := r.Health(); errors.Is(err, connection.ErrSessionLost) {
			e.Errorf("Health = %v: the connection is not what is wrong", err)
		}
		e.declare(w)
		e.until("it consumes again", func() bool { return r.Health() == nil })
		id := e.send(w.Name, 1)[0]
		e.until("it handles a message", func() bool { return j.reached(id, consumer.DispositionDone) })
	}, "health: queue deleted and declared again")
}
