package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/integration/queues"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// Nodes that stop in order, one at a time, as they do at each upgrade, with the
// queues spread over all of them.
func TestOrderly(t *testing.T) {
	if absent() != "" {
		return // TestMain says so
	}
	for _, v := range orderlyVersions() {
		t.Run(v, func(t *testing.T) {
			c := startTrio(t, v)
			c.spreads(t, "rolling", "letters", "waiting")
			c.rolling(t, topology.Classic, topology.Quorum)
			c.stopped(t, orderlyTypes()...)
			if v == version {
				c.stuck(t)
			}
		})
	}
}

// spreads makes the node that declares a queue its leader, for all work queues
// of some names.
func (c *trio) spreads(t *testing.T, names ...string) {
	t.Helper()
	pattern := fmt.Sprintf(`^(%s)\.`, strings.Join(names, "|"))
	if out, err := c.Exec(t.Context(), "rabbitmqctl", "set_policy", "spread", pattern, `{"queue-leader-locator":"client-local"}`); err != nil {
		t.Fatalf("set_policy: %v: %s", err, out)
	}
}

// spread declares a work queue whose parts are led by different nodes: itself by
// the one of number first, its dead-letter queue by the next, its waits by the
// others in turn. Declare finds the queues there as it would have made them.
func (c *trio) spread(t *testing.T, name string, queueType topology.QueueType, first int, waits delay.Schedule) topology.WorkQueue {
	t.Helper()
	w := topology.WorkQueue{Name: name + "." + string(queueType), Type: queueType, Waits: waits}
	version, err := connection.ParseVersion(c.Version())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := topology.NewPlan(version, w)
	if err != nil {
		t.Fatal(err)
	}
	args := planned(plan)
	node := func(i int) *broker.Node { return c.Nodes()[(first+i)%len(c.Nodes())] }
	for i, queue := range queues.Of(w) {
		if _, ok := args[queue]; !ok {
			t.Fatalf("%s is not planned", queue)
		}
		declareOn(t, node(i), queue, args[queue])
	}
	if err := topology.Declare(t.Context(), c.conn, w); err != nil {
		t.Fatal(err)
	}
	leaders := c.leaders(t, c.Node)
	for i, queue := range queues.Of(w) {
		if n := node(i); leaders[queue] != n.Name() {
			t.Fatalf("%s is led by %s, want %s", queue, leaders[queue], n.Name())
		}
	}
	return w
}

func declareOn(t *testing.T, n *broker.Node, queue string, args amqp.Table) {
	t.Helper()
	conn, err := amqp.Dial(n.AMQPURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDeclare(queue, true, false, false, false, args)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rolling restarts one node after the other under services of all types at once.
func (c *trio) rolling(t *testing.T, types ...topology.QueueType) {
	t.Run(ruleRolling, func(t *testing.T) {
		for _, queueType := range types {
			table.Cell(t, ruleRolling, c.version, string(queueType))
		}
		var all services
		for _, queueType := range types {
			w := c.spread(t, "rolling", queueType, 0, delay.Schedule{time.Second, 300 * time.Millisecond})
			all = append(all, startService(t, c.AMQPURLs(), w, pace*time.Duration(len(types))))
		}
		all.flow(t, "at first")
		for _, n := range c.Nodes() {
			all.measure(t, "restarted "+n.Name(), func() { nodes.Must(t, "stop", n.Stop) }, func() {
				nodes.Must(t, "start", n.Start)
				nodes.AwaitMajority(t, n)
			})
		}
		all.flow(t, "with all nodes back")
		for _, s := range all {
			c.end(t, ruleRolling, s)
		}
	})
}

// lot is a number of messages, and a consumer that has them.
type lot struct {
	*account.Account
	queue topology.WorkQueue
	stop  func() error
	out   *producer.Producer
}

const lotSize = 100

// startLot starts a consumer of w and of its letters by way of the nodes that are
// not n.
func (c *trio) startLot(t *testing.T, w topology.WorkQueue, n *broker.Node, cfg consumer.Config, handler consumer.Handler) *lot {
	t.Helper()
	var urls []string
	for _, other := range c.Nodes() {
		if other != n {
			urls = append(urls, other.AMQPURL())
		}
	}
	conn, err := connection.Open(t.Context(), connection.Config{URLs: urls, Name: "lot"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	out, err := producer.New(conn, producer.Config{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	l := &lot{Account: account.New(w.Name, w.Waits, 0), queue: w, out: out}
	cfg.Traces = []consumer.Trace{l.Trace()}
	s := &service{queue: w, account: l.Account}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.finish = func() {}
	l.stop = s.stop
	t.Cleanup(func() { _ = s.stop() }) // again: the first call has told
	s.consume(t, conn, w, l.Handler("", handler), cfg)
	s.consume(t, conn, w.DeadLetterQueue(), l.Letters, consumer.Config{})
	return l
}

// publish publishes messages of a type, and returns their ids.
func (l *lot) publish(t *testing.T, messageType string, n int) (ids []string) {
	t.Helper()
	for range n {
		id := l.Next()
		if err := l.Account.Publish(t.Context(), l.out, producer.Message{RoutingKey: l.queue.Name, ID: id, Type: messageType}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// end waits for the end of all messages and judges them.
func (l *lot) end(t *testing.T, c *trio, rule string) {
	t.Helper()
	const silence = 90 * time.Second // some of it passed while the node was away
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := l.Rest(ctx, silence, func(ctx context.Context) (int, error) {
		return queues.Ready(ctx, c.conn, queues.Of(l.queue)...)
	}); err != nil {
		t.Error(err)
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	t.Log(l.Account)
	table.Note("%s, %s %s: %s", rule, c.version, l.queue.Type, l.Account)
	judge(t, l.Account)
}

// stopped stops one node for all of this, and starts it again later than each
// needs: the leader of a dead-letter queue, for several times the time that a copy
// is waited for; and the leader of a work queue all of whose messages are in a wait
// on another node, until that has ended.
func (c *trio) stopped(t *testing.T, types ...topology.QueueType) {
	t.Run("one node stopped", func(t *testing.T) {
		const copyTimeout, wait = 3 * time.Second, 15 * time.Second
		n := c.Nodes()[0]
		var dead, waiting []*lot
		for _, queueType := range types {
			table.Cell(t, ruleLetters, c.version, string(queueType))
			table.Cell(t, ruleWaiting, c.version, string(queueType))
			letters := c.spread(t, "letters", queueType, 2, nil)
			if c.leader(t, c.Node, letters.DeadLetterQueue().Name) != n {
				t.Fatalf("%s does not lead the dead-letter queue", n.Name())
			}
			dead = append(dead, c.startLot(t, letters, n, consumer.Config{Concurrency: lotSize, CopyTimeout: copyTimeout}, func(context.Context, *consumer.Delivery) error {
				return errFailed
			}))
			waiting = append(waiting, c.startLot(t, c.spread(t, "waiting", queueType, 0, delay.Schedule{wait}), n, consumer.Config{Concurrency: lotSize}, func(_ context.Context, d *consumer.Delivery) error {
				if d.Attempt == 1 {
					return errFailed
				}
				return nil
			}))
		}

		began := time.Now()
		for _, l := range waiting {
			l.publish(t, "", lotSize)
		}
		poll.Until(t, time.Minute, "all wait", func() bool {
			for _, l := range waiting {
				if counts := l.Counts(); counts.Failures < lotSize || counts.Unsettled > 0 {
					return false
				}
			}
			return true
		})
		waits := time.After(wait + 3*time.Second)
		nodes.Must(t, "stop", n.Stop)
		outlasts := time.After(4 * copyTimeout)
		if took := time.Since(began); took > wait {
			t.Fatalf("the node had stopped %v after the first wait had ended", took-wait)
		}
		for _, l := range dead {
			l.publish(t, "", lotSize)
		}
		<-outlasts // how long the fault lasts
		<-waits
		nodes.Must(t, "start", n.Start)

		for _, l := range dead {
			l.end(t, c, ruleLetters)
		}
		for _, l := range waiting {
			l.end(t, c, ruleWaiting)
		}
	})
}

// stuck leaves the first wait with one member only and stops its node: nothing
// that is to go there is confirmed, for as long as that lasts. All else goes on.
func (c *trio) stuck(t *testing.T) {
	t.Run(ruleStuck, func(t *testing.T) {
		table.Cell(t, ruleStuck, c.version, "quorum")
		const concurrency, few = 50, 20
		w := topology.WorkQueue{Name: "stuck", Type: topology.Quorum, Waits: delay.Schedule{time.Second, 2 * time.Second}}
		plan, err := topology.DeclarePlan(t.Context(), c.conn, w)
		if err != nil {
			t.Fatal(err)
		}
		// Later tests wait for a majority without one node, which a queue with one member never has.
		t.Cleanup(func() {
			nodes.Must(t, "delete", func(ctx context.Context) error { return queues.Delete(ctx, c.conn, plan) })
		})
		n := c.other(c.leader(t, c.Node, w.Name))
		c.keepOnly(t, route.WaitQueue(w.Name, 1), n)
		l := c.startLot(t, w, n, consumer.Config{Concurrency: concurrency, CopyTimeout: 3 * time.Second}, func(_ context.Context, d *consumer.Delivery) error {
			switch {
			case d.Attempt > 1 || d.Type == "":
				return nil
			case d.Type == "stuck":
				return consumer.RetryAfter(time.Millisecond, errFailed)
			case d.Type == "letter":
				return consumer.DeadLetter(errFailed)
			}
			return consumer.RetryAfter(2*time.Second, errFailed)
		})
		nodes.Must(t, "stop", n.Stop)
		began := time.Now()
		l.publish(t, "stuck", few)
		var free []string
		for _, messageType := range []string{"", "letter", "second wait"} {
			free = append(free, l.publish(t, messageType, few)...)
		}
		poll.Until(t, time.Minute, "what does not go to the stuck wait has ended", func() bool {
			for _, id := range free {
				if len(l.Of(id).Ends) == 0 {
					return false
				}
			}
			return true
		})
		text := fmt.Sprintf("%s: %d of %d messages are held, %d others were handled, dead-lettered or came back from another wait within %v",
			ruleStuck, l.Counts().Open, few, len(free), time.Since(began).Round(time.Millisecond))
		t.Log(text)
		table.Note("%s", text)
		if open := l.Counts().Open; open != few {
			t.Errorf("%d messages are open, want the %d that go to the stuck wait", open, few)
		}
		nodes.Must(t, "start", n.Start)
		back := time.Now()
		l.end(t, c, ruleStuck)
		text = fmt.Sprintf("the node is back: all had ended within %v", time.Since(back).Round(time.Millisecond))
		t.Log(text)
		table.Note("  %s", text)
	})
}

// keepOnly takes all members of a quorum queue away but that on n.
func (c *trio) keepOnly(t *testing.T, queue string, n *broker.Node) {
	t.Helper()
	c.lead(t, n, queue)
	for _, other := range c.Nodes() {
		if other == n {
			continue
		}
		if out, err := n.Exec(t.Context(), "rabbitmq-queues", "delete_member", queue, other.Name()); err != nil {
			t.Fatalf("delete_member %s %s: %v: %s", queue, other.Name(), err, out)
		}
	}
}

// planned returns the arguments of each queue of a plan, as its text has them.
func planned(plan topology.Plan) map[string]amqp.Table {
	queues := map[string]amqp.Table{}
	for line := range strings.Lines(plan.String()) {
		words := strings.Fields(line)
		if words[0] != "queue" {
			continue
		}
		args := amqp.Table{}
		for _, word := range words[2:] {
			name, text, _ := strings.Cut(word, "=")
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				args[name] = n
			} else if b, err := strconv.ParseBool(text); err == nil {
				args[name] = b
			} else {
				args[name] = text
			}
		}
		queues[words[1]] = args
	}
	return queues
}
