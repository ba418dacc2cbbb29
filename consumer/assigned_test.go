package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// process is one of several that consume the same shards, with a Conn of its own.
type process struct {
	w    *fixture
	to   func(ctx context.Context, network, address string) (net.Conn, error)
	c    *consumer.Consumer
	log  *lines
	stop func() error

	mu      sync.Mutex
	sockets []net.Conn
	dead    bool
	queues  map[string]int // messages that it has handled since the last look
}

// process starts a process.
func (w *fixture) process(s topology.Shards, handle consumer.Handler, change ...func(*consumer.Config)) *process {
	w.Helper()
	return w.processTo(w.broker.Dial, s, handle, change...)
}

// processTo starts a process that dials so.
func (w *fixture) processTo(to func(ctx context.Context, network, address string) (net.Conn, error), s topology.Shards, handle consumer.Handler, change ...func(*consumer.Config)) *process {
	w.Helper()
	p := &process{w: w, to: to, log: &lines{}, queues: map[string]int{}}
	connects := w.connects("process")
	connects.Dial = p.dial
	conn, err := connection.Open(w.Context(), connects)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = conn.Close() })
	cfg := consumer.Config{Concurrency: 8, KeyLimit: 1, Logger: p.log.logger()}
	for _, c := range change {
		c(&cfg)
	}
	p.c, err = consumer.New(conn, s, func(ctx context.Context, d *consumer.Delivery) error {
		p.mu.Lock()
		p.queues[d.Queue]++
		p.mu.Unlock()
		return handle(ctx, d)
	}, cfg)
	if err != nil {
		w.Fatal(err)
	}
	p.stop = running(p.c)
	return p
}

func (p *process) dial(ctx context.Context, network, address string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, errors.New("the process is dead")
	}
	c, err := p.to(ctx, network, address)
	p.sockets = append(p.sockets, c)
	return c, err
}

// kill takes all sockets away, as the end of the process does.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for _, c := range p.sockets {
		_ = c.Close()
	}
}

// handled returns the queues that the process has handled messages of since the last call.
func (p *process) handled() (queues []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for q := range p.queues {
		queues = append(queues, q)
	}
	clear(p.queues)
	slices.Sort(queues)
	return queues
}

// load publishes two messages of each of 64 keys to the shards, again and again, until the returned function is called,
// which returns the ids of each key in their order.
func (w *fixture) load(s topology.Shards, every time.Duration) (end func() map[string][]string) {
	sent, stop, done := map[string][]string{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			for k := range 64 {
				key := fmt.Sprint("k", k)
				for _, id := range []string{fmt.Sprintf("%s-%d", key, 2*n), fmt.Sprintf("%s-%d", key, 2*n+1)} {
					w.publishTo(s.Queue(key), id, key)
					sent[key] = append(sent[key], id)
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(every):
			}
		}
	}()
	return func() map[string][]string {
		close(stop)
		<-done
		return sent
	}
}

// shared checks that each process handles as many shards as any other, and each shard is handled by one.
func (w *fixture) shared(s topology.Shards, all ...*process) {
	w.Helper()
	for _, p := range all {
		p.handled()
	}
	time.Sleep(5 * time.Second)
	by, report := map[string]int{}, ""
	least, most := s.Count, 0
	for i, p := range all {
		queues := p.handled()
		least, most = min(least, len(queues)), max(most, len(queues))
		report += fmt.Sprintf("\n%d: %v", i, queues)
		for _, q := range queues {
			by[q]++
		}
	}
	if most-least > 1 || len(by) != s.Count || slices.ContainsFunc(all, func(p *process) bool { return p.c.Health() != nil }) {
		w.Errorf("%d processes handle%s", len(all), report)
	}
	for q, n := range by {
		if n != 1 {
			w.Errorf("%s is handled by %d processes", q, n)
		}
	}
}

func TestProcessesShareShards(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		s := w.shards(8, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		o := newOrdered()
		sent := w.load(s, 1400*time.Millisecond)
		var all []*process
		var each []*ordered // what the handlers of one process have seen
		start := func() {
			own := newOrdered()
			each = append(each, own)
			all = append(all, w.process(s, func(_ context.Context, d *consumer.Delivery) error {
				o.handle(d.OrderKey, d.ID, 0)
				own.handle(d.OrderKey, d.ID, 110*time.Millisecond)
				return nil
			}))
		}
		for range 4 {
			start()
			time.Sleep(30 * time.Second)
			w.shared(s, all...)
		}
		for range 2 {
			start()
		}
		time.Sleep(40 * time.Second)
		w.shared(s, all...)
		w.stopped(all[0].stop)
		time.Sleep(40 * time.Second)
		w.shared(s, all[1:]...)
		all[5].kill()
		time.Sleep(40 * time.Second)
		w.shared(s, all[1:5]...)
		all[1].kill()
		_ = all[1].stop()
		want := sent()
		time.Sleep(time.Minute)
		for _, p := range all {
			_ = p.stop()
		}
		for key, ids := range want {
			if got := firsts(o.got[key]); !slices.Equal(got, ids) {
				w.Errorf("%s in the order %v, want %v", key, few(got), few(ids))
			}
			for i, own := range each {
				if own.most[key] > 1 {
					w.Errorf("process %d has handled %d messages of %s at a time", i, own.most[key], key)
				}
			}
		}
	})
}

// share returns what /ops/ shows of the shards: the first letter of the share of each, and "-" for none that is shown.
func (p *process) share() (shares string) {
	p.w.Helper()
	_, body := call(operator(p.w.T, p.c), "GET", "/", "", "Accept", "application/json")
	var got struct {
		Consumers []struct{ Queues []struct{ Share string } }
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		p.w.Fatalf("%v: %s", err, body)
	}
	for _, q := range got.Consumers[0].Queues {
		shares += (q.Share + "-")[:1]
	}
	return shares
}

// A handler that has the time of a stop when its shard goes to another process is told so when that time is over.
func TestAHandlerIsToldThatItsShardGoesToAnotherProcess(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := topology.Shards{Name: "bills", Count: 2, Type: w.orders.Type, SingleActiveConsumer: true}
		w.declare(s)
		var mu sync.Mutex
		var causes []error
		until := func(ctx context.Context, _ *consumer.Delivery) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			causes = append(causes, context.Cause(ctx))
			return ctx.Err()
		}
		first := w.process(s, until, func(c *consumer.Config) { c.DrainTimeout = time.Second })
		time.Sleep(time.Minute)
		for k := range 16 {
			w.publishTo(s.Queue(fmt.Sprint("k", k)), fmt.Sprint("m", k), fmt.Sprint("k", k))
		}
		second := w.process(s, succeed)
		time.Sleep(3 * time.Minute)
		mu.Lock()
		if len(causes) == 0 {
			w.Error("no shard went to the other process while a handler ran")
		}
		for _, cause := range causes {
			if !errors.Is(cause, connection.ErrSessionLost) || !strings.Contains(cause.Error(), "another process is to handle the shard") {
				w.Errorf("the cause is %v, want that the shard goes to another process", cause)
			}
		}
		mu.Unlock()
		w.stopped(second.stop)
		w.stopped(first.stop)
	})
}

// A handler that does not heed its ctx keeps its shard: the process that takes it would handle the message a second time.
func TestAShardIsHandedOverWhenItsHandlersHaveReturned(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := topology.Shards{Name: "bills", Count: 2, Type: w.orders.Type, SingleActiveConsumer: true}
		w.declare(s)
		handled := &atomic.Int64{}
		deaf := func(context.Context, *consumer.Delivery) error {
			time.Sleep(40 * time.Second)
			handled.Add(1)
			return nil
		}
		first := w.process(s, deaf, func(c *consumer.Config) { c.DrainTimeout = time.Second })
		time.Sleep(time.Minute)
		const all = 16
		for k := range all {
			w.publishTo(s.Queue(fmt.Sprint("k", k)), fmt.Sprint("m", k), fmt.Sprint("k", k))
		}
		others := &atomic.Int64{}
		second := w.process(s, func(context.Context, *consumer.Delivery) error { handled.Add(1); others.Add(1); return nil })
		time.Sleep(10 * time.Minute)
		for k := range all {
			w.publishTo(s.Queue(fmt.Sprint("k", k)), fmt.Sprint("n", k), fmt.Sprint("k", k))
		}
		time.Sleep(10 * time.Minute)
		if handled.Load() != 2*all {
			w.Errorf("%d messages were handled, want each of %d once", handled.Load(), 2*all)
		}
		if others.Load() == 0 {
			w.Error("no shard went to the other process")
		}
		w.stopped(second.stop)
		w.stopped(first.stop)
	})
}

// A lost session has no shard to keep: the broker has given it to the other process.
func TestAHandlerThatDoesNotReturnKeepsNoShardOfALostSession(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := topology.Shards{Name: "bills", Count: 2, Type: w.orders.Type, SingleActiveConsumer: true}
		w.declare(s)
		release, handled := make(chan struct{}), &atomic.Int64{}
		count := func(context.Context, *consumer.Delivery) error { handled.Add(1); return nil }
		first := w.process(s, func(ctx context.Context, d *consumer.Delivery) error {
			if d.ID == "deaf" {
				<-release
			}
			return count(ctx, d)
		}, func(c *consumer.Config) { c.DrainTimeout = time.Second })
		time.Sleep(time.Minute)
		queues := []string{"bills.00", "bills.01"}
		for _, q := range queues {
			w.publishTo(q, "deaf", "a")
		}
		second := w.process(s, count)
		time.Sleep(5 * time.Minute)
		if handled.Load() != 0 {
			w.Errorf("%d messages were handled, want none while the handlers have not returned", handled.Load())
		}
		w.broker.Cut("process")
		time.Sleep(5 * time.Minute)
		w.stopped(second.stop)
		time.Sleep(5 * time.Minute)
		before := handled.Load()
		for _, q := range queues {
			w.publishTo(q, "later", "b")
		}
		time.Sleep(time.Minute)
		if got := handled.Load() - before; got != 2 {
			w.Errorf("%d messages were handled by the process that is left, want 2", got)
		}
		close(release)
		w.stopped(first.stop)
	})
}

// Operators see which shards a process is to handle, and which it is second in line for.
func TestOperatorsSeeTheShareOfAProcess(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := w.shards(4, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		var all []*process
		shows := func(when string, want ...string) {
			w.Helper()
			for i, p := range all {
				if got := p.share(); got != want[i] {
					w.Errorf("%s process %d shows %s, want %s", when, i, got, want[i])
				}
			}
		}
		start := func() {
			all = append(all, w.process(s, func(context.Context, *consumer.Delivery) error { return nil }))
			time.Sleep(time.Minute)
		}
		start()
		shows("alone,", "oooo")
		start()
		shows("of two,", "ooss", "ssoo")
		start()
		shows("of three,", "osss", "snoo", "nonn")
		if _, text := call(operator(w.T, all[1].c), "GET", "/", ""); !strings.Contains(text, "queue bills.03: 0 in hand, 0 with handlers, share: owner\n") {
			w.Errorf("the text is %q", text)
		}
		w.stopped(all[2].stop)
		w.stopped(all[1].stop)
		time.Sleep(2 * time.Minute)
		shows("when two have gone,", "oooo", "----", "----")
		w.stopped(all[0].stop)
	})
}

// firsts returns the ids in the order in which they came for the first time: what a process that was
// killed had in hand comes again.
func firsts(ids []string) (first []string) {
	seen := map[string]bool{}
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			first = append(first, id)
		}
	}
	return first
}

func TestMoreProcessesThanShards(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := w.shards(2, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		sent := w.load(s, 3*time.Second)
		var all []*process
		for range 5 {
			all = append(all, w.process(s, func(context.Context, *consumer.Delivery) error { return nil }))
		}
		time.Sleep(40 * time.Second)
		w.shared(s, all...)
		for range 4 {
			time.Sleep(7 * time.Second) // messages come every three
			i := slices.IndexFunc(all, func(p *process) bool { return len(p.handled()) > 0 })
			all[i].kill()
			_ = all[i].stop()
			all = slices.Delete(all, i, i+1)
			time.Sleep(4 * time.Minute) // processes that go away again and again are given time
			w.shared(s, all...)
		}
		sent()
	})
}

// A process that may not look consumes all shards, and says so once.
func TestAProcessThatSeesNoOthersConsumesAllShards(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := w.shards(3, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		w.raw(func(ch *amqp.Channel) error { // another queue has the name
			_, err := ch.QueueDeclare("bills.members.3", true, false, false, false, nil)
			return err
		})
		sent := w.load(s, 3*time.Second)
		p := w.process(s, func(context.Context, *consumer.Delivery) error { return nil })
		time.Sleep(10 * time.Minute)
		w.shared(s, p)
		if found := p.log.with("level=WARN", "bills.members.3", "consumes all of them"); len(found) != 1 {
			w.Errorf("it says %q, want one warning", found)
		}
		if got := p.share(); got != "uuu" {
			w.Errorf("it shows %s", got)
		}
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("bills.members.3", false, false, false)
			return err
		})
		time.Sleep(3 * time.Minute)
		second := w.process(s, func(context.Context, *consumer.Delivery) error { return nil })
		time.Sleep(time.Minute)
		w.shared(s, p, second)
		sent()
		w.stopped(p.stop)
		w.stopped(second.stop)
	})
}

// Two Consumers of one Conn, whose exclusive queues belong to the same process, are two processes.
func TestConsumersOfOneConnShareShards(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := w.shards(4, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		var mu sync.Mutex
		by := map[string]map[string]bool{}
		start := func(name string) func() error {
			_, stop := w.startOn(s, func(_ context.Context, d *consumer.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				if by[name] == nil {
					by[name] = map[string]bool{}
				}
				by[name][d.Queue] = true
				return nil
			}, consumer.Config{})
			return stop
		}
		first, second := start("first"), start("second")
		sent := w.load(s, 3*time.Second)
		time.Sleep(time.Minute)
		mu.Lock()
		clear(by)
		mu.Unlock()
		time.Sleep(10 * time.Second)
		sent()
		synctest.Wait()
		if len(by["first"]) != 2 || len(by["second"]) != 2 {
			w.Errorf("handled by %v, want two shards each", by)
		}
		w.stopped(first)
		w.stopped(second)
	})
}

// What the broker holds of a group goes with its processes.
func TestAGroupLeavesNothing(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := w.shards(4, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		p := w.process(s, func(context.Context, *consumer.Delivery) error { return nil })
		time.Sleep(time.Minute)
		if _, there := w.broker.Queue("bills.seat.4.0"); !there {
			w.Error("no seat is taken")
		}
		w.stopped(p.stop)
		synctest.Wait()
		if _, there := w.broker.Queue("bills.seat.4.0"); there {
			w.Error("the seat is still taken")
		}
		time.Sleep(11 * time.Minute)
		if _, there := w.broker.Queue("bills.members.4"); there {
			w.Error("the queue that counts the processes is still there")
		}
	})
}

// Somebody deletes the queues by which processes know each other.
func TestTheQueuesOfAGroupAreDeleted(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := w.shards(4, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		sent := w.load(s, 3*time.Second)
		handle := func(context.Context, *consumer.Delivery) error { return nil }
		all := []*process{w.process(s, handle), w.process(s, handle)}
		time.Sleep(time.Minute)
		for _, queue := range []string{"bills.members.4", "bills.seat.4.0", "bills.seat.4.1"} {
			w.broker.DeleteQueue(queue)
			time.Sleep(2 * time.Minute)
			w.shared(s, all...)
		}
		all = append(all, w.process(s, handle))
		time.Sleep(2 * time.Minute)
		w.shared(s, all...)
		sent()
		for _, p := range all {
			w.stopped(p.stop)
		}
	})
}

// A process that has run for long is given a shard that cannot be consumed. It goes on with the others.
func TestAShardThatCannotBeConsumedEndsNoOther(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := w.shards(4, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		handle := func(context.Context, *consumer.Delivery) error { return nil }
		all := []*process{w.process(s, handle)}
		for range 2 {
			time.Sleep(time.Minute)
			all = append(all, w.process(s, handle))
		}
		time.Sleep(10 * time.Minute)
		w.broker.DeleteQueue("bills.00")
		w.raw(func(ch *amqp.Channel) error { // classic, and not what was declared
			_, err := ch.QueueDeclare("bills.00", true, false, false, false, nil)
			return err
		})
		time.Sleep(10 * time.Minute)
		all[0].kill() // its owner
		time.Sleep(10 * time.Minute)
		for i, p := range all[1:] {
			if status, err := health(p.c); status == "unhealthy" {
				w.Errorf("process %d: %v", i+1, err)
			}
			w.stopped(p.stop)
		}
		_ = all[0].stop()
	})
}

// A process dies again and again. Neither the messages that it had nor those that others handed over become letters.
func TestAProcessInACrashLoopTakesNoMessagesAlong(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		s := w.shards(2, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		var mu sync.Mutex
		done := map[string]bool{}
		handle := func(ctx context.Context, d *consumer.Delivery) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Second):
			}
			mu.Lock()
			defer mu.Unlock()
			done[d.ID] = true
			return nil
		}
		for n := range 1000 {
			key := fmt.Sprint("k", n)
			w.publishTo(s.Queue(key), id(n), key)
		}
		ahead := func(c *consumer.Config) { c.Prefetch = 500 }
		steady := w.process(s, handle, ahead)
		time.Sleep(30 * time.Second)
		for range 30 { // more than the delivery limit
			loops := w.process(s, handle, ahead)
			time.Sleep(20 * time.Second)
			loops.kill()
			_ = loops.stop()
			time.Sleep(30 * time.Second)
		}
		w.stopped(steady.stop)
		if len(done) < 500 {
			w.Errorf("%d of 1000 are handled", len(done))
		}
		w.has("bills.dlq")
	})
}
