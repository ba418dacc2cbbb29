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
	until(t, time.Minute, "the consumer of "+w.Name+" is healthy", func() bool { return s.Health() == nil })
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

// cutOff cuts the node off on which an idle consumer stands that has one message
// in its hands, and heals the cut only after the consumer has gone on elsewhere.
func (c *trio) cutOff(t *testing.T, rule string, w topology.WorkQueue, n *broker.Node) {
	t.Run(rule, func(t *testing.T) {
		table.Cell(t, rule, version, queueType)
		s := c.standOn(t, n, w)
		publish := c.publishBeside(t, n)
		t.Cleanup(func() { _ = c.Heal(context.Background()) }) // again, if the test has failed
		early := publish(producer.Message{Key: w.Name})
		until(t, time.Minute, "a message is handled", func() bool { return s.handled(early) == 1 })
		held := publish(producer.Message{Key: w.Name, Type: "held"})
		until(t, time.Minute, "a message is in the handler's hands", func() bool { return s.handled(held) == 1 })

		c.isolate(t, n)
		cut := time.Now()
		var unhealthy error
		until(t, 3*unhealthyWithin, "its consumer is unhealthy", func() bool {
			unhealthy = s.Health()
			return unhealthy != nil
		})
		red := time.Since(cut)
		// Until the broker has noticed the cut it goes on to send to the consumer
		// that stood there, as many as that may have.
		var late []string
		for range 2 * concurrency {
			late = append(late, publish(producer.Message{Key: w.Name}))
		}
		until(t, 3*movedWithin, "it handles messages while its node is cut off", func() bool {
			return slices.ContainsFunc(late, func(id string) bool { return s.handled(id) > 0 })
		})
		moved := time.Since(cut)
		until(t, time.Minute, "it is healthy again", func() bool { return s.Health() == nil })
		if on(s.conn, n) {
			t.Errorf("it consumes from %s, which is cut off", n.Name())
		}
		must(t, "heal", c.Heal)
		// Broker 4.3 waits for a consumer on a node that it cannot reach, by
		// default one minute, before it hands out what that one has.
		until(t, 3*time.Minute, "the message it had in hand comes back", func() bool { return s.handled(held) == 2 })
		for _, id := range late {
			until(t, 3*time.Minute, "the others are handled too", func() bool { return s.handled(id) > 0 })
		}
		text := fmt.Sprintf("unhealthy after %v, handles again after %v, what it had in hand came back after %v",
			red.Round(time.Millisecond), moved.Round(time.Millisecond), time.Since(cut).Round(time.Millisecond))
		t.Log(text)
		t.Log(unhealthy)
		table.Note("%s: %s", rule, text)

		s.mu.Lock()
		defer s.mu.Unlock()
		for _, d := range s.runs[held] {
			if d.Attempt != 1 {
				t.Errorf("the message it had in hand came back as attempt %d, want 1: the cut spends none", d.Attempt)
			}
		}
		if errors.Is(unhealthy, connection.ErrSessionLost) {
			t.Errorf("Health = %v, want it to tell of the silence before the session is given up", unhealthy)
		}
	})
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
