package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// A node is killed, cut off, and each one restarted, while two processes share shards. Each key keeps
// its order, and no message is lost or becomes a letter. How long each shard stood still is
// printed.
func TestShardsThroughFaults(t *testing.T) {
	if absent() != "" {
		return // TestMain says so
	}
	table.Cell(t, ruleShards, version, "quorum")
	c := startTrio(t, version)
	s := startKeyed(t, c, ruleShards)
	s.flow(t, "at first")
	<-time.After(nodes.YoungQueue)

	n := c.leader(t, c.Node, s.shards.WorkQueues()[0].Name)
	s.measure(t, "killed "+n.Name(), func() {
		nodes.Must(t, "kill", n.Kill)
		s.flow(t, "without a killed node")
	})
	nodes.Must(t, "start", n.Start)
	nodes.AwaitMajority(t, n)
	s.flow(t, "with all nodes")

	n = c.leader(t, c.Node, s.shards.WorkQueues()[1].Name)
	s.measure(t, "cut off "+n.Name(), func() {
		c.isolate(t, n)
		<-time.After(cutFor) // how long the fault lasts
		nodes.Must(t, "heal", c.Heal)
		s.flow(t, "after a cut")
	})
	for _, n := range c.Nodes() {
		s.measure(t, "restarted "+n.Name(), func() {
			nodes.Must(t, "stop", n.Stop)
			nodes.Must(t, "start", n.Start)
			nodes.AwaitMajority(t, n)
			s.flow(t, "after a restart")
		})
	}
	s.end(t)
}

// keyed is a service whose messages have keys. Each message of a key is published after the one before
// it is confirmed.
type keyed struct {
	rule      string
	shards    topology.Shards
	conns     []*connection.Conn
	cancel    context.CancelFunc
	consumers sync.WaitGroup
	finish    context.CancelFunc // no further Publish begins
	abort     context.CancelFunc // and no call of it goes on
	callers   sync.WaitGroup

	mu        sync.Mutex
	published map[string]uint64 // the number of the latest message of each key that was confirmed
	done      map[string]uint64 // and that was handled
	tried     map[string]uint64 // the latest that has failed
	at        map[string][]time.Time
	again     int // deliveries of messages that were handled
	faults    []error
}

const (
	keyedShards = 6
	keyedKeys   = 48
	// everyFails of the messages of a key fails once.
	everyFails = 10
)

func startKeyed(t *testing.T, c *trio, rule string) *keyed {
	t.Helper()
	s := &keyed{
		rule:      rule,
		shards:    topology.Shards{Name: "keyed", Count: keyedShards, Waits: delay.Fixed(200*time.Millisecond, 3), SingleActiveConsumer: true},
		published: map[string]uint64{}, done: map[string]uint64{}, tried: map[string]uint64{}, at: map[string][]time.Time{},
	}
	if err := topology.Declare(t.Context(), c.conn, s.shards); err != nil {
		t.Fatal(err)
	}
	consuming, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	publishing, finish := context.WithCancel(context.Background())
	s.finish = finish
	calls, abort := context.WithCancel(context.Background())
	s.abort = abort
	t.Cleanup(s.stop) // again: end has stopped it
	urls := c.AMQPURLs()
	for process := range 2 {
		conn, err := connection.Open(t.Context(), connection.Config{URLs: urls[process:], Name: fmt.Sprintf("keyed %d", process+1)})
		if err != nil {
			t.Fatal(err)
		}
		s.conns = append(s.conns, conn)
		worker, err := consumer.New(conn, s.shards, s.handle, consumer.Config{Concurrency: 16, KeyLimit: 1, RetryInPlace: true})
		if err != nil {
			t.Fatal(err)
		}
		s.consumers.Go(func() { s.fault(worker.Run(consuming)) })
		letters, err := consumer.New(conn, s.shards.WorkQueues()[0].DeadLetterQueue(), func(_ context.Context, d *consumer.Delivery) error {
			s.fault(fmt.Errorf("a letter: message %d of key %q", number(d.Body), d.OrderKey))
			return nil
		}, consumer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		s.consumers.Go(func() { s.fault(letters.Run(consuming)) })
	}
	conn, err := connection.Open(t.Context(), connection.Config{URLs: urls, Name: "keyed, publisher"})
	if err != nil {
		t.Fatal(err)
	}
	s.conns = append(s.conns, conn)
	out, err := producer.New(conn, producer.Config{Timeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var keys sync.WaitGroup
	for k := range keyedKeys {
		keys.Go(func() { s.publish(publishing, calls, out, fmt.Sprint("customer-", k)) })
	}
	s.callers.Go(func() {
		keys.Wait()
		s.fault(out.Close())
	})
	return s
}

func number(body []byte) uint64 { return binary.BigEndian.Uint64(body) }

func (s *keyed) publish(ctx, calls context.Context, out *producer.Producer, key string) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for i := uint64(1); ; i++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		m := producer.Message{RoutingKey: s.shards.Queue(key), OrderKey: key, Body: binary.BigEndian.AppendUint64(nil, i)}
		if _, err := out.Publish(calls, m); err != nil {
			s.fault(fmt.Errorf("message %d of key %q: %w", i, key, err))
			return
		}
		s.mu.Lock()
		s.published[key] = i
		s.mu.Unlock()
	}
}

func (s *keyed) handle(_ context.Context, d *consumer.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, key := number(d.Body), d.OrderKey
	switch last := s.done[key]; {
	case i <= last:
		s.again++
		return nil
	case i > last+1:
		s.faults = append(s.faults, fmt.Errorf("message %d of key %q was handled after message %d", i, key, last))
	case i%everyFails == 0 && s.tried[key] < i:
		s.tried[key] = i
		return errFailed
	}
	s.done[key] = i
	shard := s.shards.Queue(key)
	s.at[shard] = append(s.at[shard], time.Now())
	return nil
}

func (s *keyed) fault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.faults = append(s.faults, err)
	}
}

// flow waits until each shard has handled some more messages.
func (s *keyed) flow(t *testing.T, what string) {
	t.Helper()
	const enough = 30
	want := map[string]int{}
	s.mu.Lock()
	for _, w := range s.shards.WorkQueues() {
		want[w.Name] = len(s.at[w.Name]) + enough
	}
	s.mu.Unlock()
	poll.Until(t, 2*time.Minute, "every shard is handled "+what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for name, n := range want {
			if len(s.at[name]) < n {
				return false
			}
		}
		return true
	})
}

// measure tells how long each shard stood still while something was done.
func (s *keyed) measure(t *testing.T, what string, do func()) {
	t.Helper()
	began := time.Now()
	do()
	s.mu.Lock()
	defer s.mu.Unlock()
	var still []string
	for _, w := range s.shards.WorkQueues() {
		var seen track
		for _, at := range s.at[w.Name] {
			seen = append(seen, event{at: at})
		}
		still = append(still, seen.pause(began, time.Now()).Round(100*time.Millisecond).String())
	}
	text := fmt.Sprintf("%s, shards stood still for %s", what, strings.Join(still, ", "))
	t.Log(text)
	table.Note("%s, %s", s.rule, text)
}

// end lets no message in any more, and accounts for those that were confirmed.
func (s *keyed) end(t *testing.T) {
	t.Helper()
	s.finish()
	s.callers.Wait()
	poll.Until(t, 2*time.Minute, "every message is handled", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for key, last := range s.published {
			if s.done[key] < last {
				return false
			}
		}
		return true
	})
	s.stop()
	total := uint64(0)
	for _, last := range s.published {
		total += last
	}
	table.Note("%s: %d messages of %d keys, none lost, %d delivered again after they were handled", s.rule, total, len(s.published), s.again)
	if err := errors.Join(s.faults...); err != nil {
		t.Error(err)
	}
}

func (s *keyed) stop() {
	s.finish()
	s.abort()
	s.callers.Wait()
	s.cancel()
	s.consumers.Wait()
	for _, conn := range s.conns {
		conn.Close()
	}
}
