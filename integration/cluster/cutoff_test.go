package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// What Consumer.Health promises, from the last delivery on; a test waits three
// times as long.
const (
	unhealthyWithin = 15 * time.Second
	movedWithin     = 30 * time.Second
)

const concurrency = 10

// stands is a consumer on a certain node.
type stands struct {
	*consumer.Consumer
	conn *connection.Conn
	mu   sync.Mutex
	runs map[string][]*consumer.Delivery
}

// standOn starts a consumer of w on a node that is free to go to the others. A
// message of type "held" is in the hands of its handler until its session ends.
func (c *trio) standOn(t *testing.T, n *broker.Node, w topology.WorkQueue) *stands {
	t.Helper()
	s := &stands{conn: c.openOn(t, n), runs: map[string][]*consumer.Delivery{}}
	var err error
	s.Consumer, err = consumer.New(s.conn, w, func(ctx context.Context, d *consumer.Delivery) error {
		s.mu.Lock()
		s.runs[d.ID] = append(s.runs[d.ID], d)
		first := len(s.runs[d.ID]) == 1
		s.mu.Unlock()
		if d.Type == "held" && first {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}, consumer.Config{Concurrency: concurrency})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	poll.Until(t, time.Minute, "the consumer of "+w.Name+" is healthy", func() bool { return s.Health() == nil })
	return s
}

// openOn opens connections until one is made to the wanted node: which it is,
// is left to chance.
func (c *trio) openOn(t *testing.T, n *broker.Node) *connection.Conn {
	t.Helper()
	for try := range 50 {
		conn, err := connection.Open(t.Context(), connection.Config{URLs: c.AMQPURLs(), Name: fmt.Sprintf("stands %d", try)})
		if err != nil {
			t.Fatal(err)
		}
		if on(conn, n) {
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		conn.Close()
	}
	t.Fatalf("of 50 connections none was made to %s", n.Name())
	return nil
}

// on tells whether a connection consumes from a node.
func on(conn *connection.Conn, n *broker.Node) bool {
	return sameHost(conn.State(connection.Consume).URL, n.AMQPURL())
}

func (s *stands) handled(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs[id])
}

// publishBeside publishes by way of the nodes that are not n.
func (c *trio) publishBeside(t *testing.T, n *broker.Node) func(producer.Message) string {
	t.Helper()
	var urls []string
	for _, other := range c.Nodes() {
		if other != n {
			urls = append(urls, other.AMQPURL())
		}
	}
	conn, err := connection.Open(t.Context(), connection.Config{URLs: urls, Name: "beside"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	out, err := producer.New(conn, producer.Config{Timeout: 90 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return func(m producer.Message) string {
		t.Helper()
		receipt, err := out.Publish(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		return receipt.ID
	}
}

// cutCase is an idle consumer on the node that is cut off, and its messages.
type cutCase struct {
	rule  string
	queue topology.WorkQueue

	*stands
	held      string   // is in its hands
	late      []string // published during the cut
	unhealthy error
	red       time.Duration // after the cut, when it was unhealthy
	moved     time.Duration // and when it handled messages again
	back      time.Duration // and when what it had in its hands came back
}

// cutOff cuts a node off on which consumers stand, and heals the cut only after
// they have gone on elsewhere. They share the cut, because the broker takes a
// minute to hand out what they had.
func (c *trio) cutOff(t *testing.T, n *broker.Node, cases ...*cutCase) {
	for _, cc := range cases {
		table.Cell(t, cc.rule, version, "quorum")
		cc.stands = c.standOn(t, n, cc.queue)
	}
	publish := c.publishBeside(t, n)
	t.Cleanup(func() { _ = c.Heal(context.Background()) }) // again, if the test has failed
	for _, cc := range cases {
		early := publish(producer.Message{RoutingKey: cc.queue.Name})
		poll.Until(t, time.Minute, "a message is handled", func() bool { return cc.handled(early) == 1 })
		cc.held = publish(producer.Message{RoutingKey: cc.queue.Name, Type: "held"})
		poll.Until(t, time.Minute, "a message is in the handler's hands", func() bool { return cc.handled(cc.held) == 1 })
	}

	c.isolate(t, n)
	cut := time.Now()
	all := func(limit time.Duration, what string, so func(*cutCase) bool, since func(*cutCase) *time.Duration) {
		t.Helper()
		poll.Until(t, limit, what, func() bool {
			left := 0
			for _, cc := range cases {
				if *since(cc) == 0 && so(cc) {
					*since(cc) = time.Since(cut)
				}
				if *since(cc) == 0 {
					left++
				}
			}
			return left == 0
		})
	}
	all(3*unhealthyWithin, "the consumers are unhealthy", func(cc *cutCase) bool {
		cc.unhealthy = cc.Health()
		return cc.unhealthy != nil
	}, func(cc *cutCase) *time.Duration { return &cc.red })
	// Until the broker has noticed the cut it goes on to send to the consumer
	// that stood there, as many as that may have.
	for _, cc := range cases {
		for range 2 * concurrency {
			cc.late = append(cc.late, publish(producer.Message{RoutingKey: cc.queue.Name}))
		}
	}
	all(3*movedWithin, "they handle messages while the node is cut off", func(cc *cutCase) bool {
		return slices.ContainsFunc(cc.late, func(id string) bool { return cc.handled(id) > 0 })
	}, func(cc *cutCase) *time.Duration { return &cc.moved })
	for _, cc := range cases {
		poll.Until(t, time.Minute, "the consumer of "+cc.queue.Name+" is healthy again", func() bool { return cc.Health() == nil })
		if on(cc.conn, n) {
			t.Errorf("%s is consumed from %s, which is cut off", cc.queue.Name, n.Name())
		}
	}
	nodes.Must(t, "heal", c.Heal)
	// Broker 4.3 waits for a consumer on a node that it cannot reach, by
	// default one minute, before it hands out what that one has.
	all(3*time.Minute, "the messages they had in hand come back", func(cc *cutCase) bool {
		return cc.handled(cc.held) == 2
	}, func(cc *cutCase) *time.Duration { return &cc.back })
	for _, cc := range cases {
		for _, id := range cc.late {
			poll.Until(t, 3*time.Minute, "the others are handled too", func() bool { return cc.handled(id) > 0 })
		}
		cc.report(t)
	}
}

func (cc *cutCase) report(t *testing.T) {
	t.Helper()
	ms := time.Millisecond
	text := fmt.Sprintf("%s: unhealthy after %v, handles again after %v, what it had in hand came back after %v",
		cc.rule, cc.red.Round(ms), cc.moved.Round(ms), cc.back.Round(ms))
	t.Log(text)
	t.Log(cc.unhealthy)
	table.Note("%s", text)
	cc.mu.Lock()
	defer cc.mu.Unlock()
	for _, d := range cc.runs[cc.held] {
		if d.Attempt != 1 {
			t.Errorf("%s: the message it had in hand came back as attempt %d, want 1: the cut spends none", cc.rule, d.Attempt)
		}
	}
	if errors.Is(cc.unhealthy, connection.ErrSessionLost) {
		t.Errorf("%s: Health = %v, want it to tell of the silence before the session is given up", cc.rule, cc.unhealthy)
	}
}

// sameHost compares two addresses without regard to credentials.
func sameHost(a, b string) bool {
	x, err := url.Parse(a)
	if err != nil {
		return false
	}
	y, err := url.Parse(b)
	return err == nil && x.Host == y.Host
}
