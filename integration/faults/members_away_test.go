package faults

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// lines is a log in memory.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

// The queue that counts the processes which share shards loses its leader. The broker says then that it has no
// consumers. No process leaves a shard because of it.
func TestTheCountOfProcessesIsAway(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := pool.Of(t, version)
			conn := open(t, n, connection.Config{})
			s := topology.Shards{Name: "away." + n.Column, Count: 4, SingleActiveConsumer: true}
			plan, err := topology.DeclarePlan(t.Context(), conn, s)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { deleteAll(t, conn, plan) })
			out, err := producer.New(conn, producer.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			var mu sync.Mutex
			sent := 0
			by := map[string]int{} // process, by message
			send := func() {
				var all []producer.Message
				for _, w := range s.WorkQueues() {
					all = append(all, producer.Message{RoutingKey: w.Name, ID: fmt.Sprintf("%s/%d", w.Name, sent)})
				}
				if _, err := out.PublishAll(t.Context(), all); err != nil {
					t.Fatal(err)
				}
				sent++
			}
			handled := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(by)
			}
			// even reports whether each process has handled two of the latest messages, when all are handled.
			even := func() bool {
				send()
				poll.Until(t, time.Minute, "all are handled", func() bool { return handled() == s.Count*sent })
				mu.Lock()
				defer mu.Unlock()
				first := 0
				for _, w := range s.WorkQueues() {
					if by[fmt.Sprintf("%s/%d", w.Name, sent-1)] == 0 {
						first++
					}
				}
				return first == s.Count/2
			}
			logs := make([]lines, 2)
			for i := range logs {
				c, err := consumer.New(open(t, n, connection.Config{}), s, func(_ context.Context, d *consumer.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					by[d.ID] = i
					return nil
				}, consumer.Config{KeyLimit: 1, Logger: slog.New(slog.NewTextHandler(&logs[i], nil))})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { ended <- c.Run(ctx) }()
				t.Cleanup(func() {
					cancel()
					if err := <-ended; err != nil {
						t.Error(err)
					}
				})
			}
			leader := func(what string) {
				server := fmt.Sprintf(`{list_to_atom("%%2F_%s.members.%d"), node()}`, s.Name, s.Count)
				if _, err := n.Exec(t.Context(), "rabbitmqctl", "eval", fmt.Sprintf("ra:%s_server(quorum_queues, %s).", what, server)); err != nil {
					t.Fatal(err)
				}
			}
			poll.Until(t, time.Minute, "the shards are shared", even)
			leader("stop")
			for i := range logs {
				poll.Until(t, time.Minute, "a process sees it", func() bool {
					send()
					return logs[i].has("how many processes consume the shards is not known")
				})
			}
			poll.Until(t, time.Minute, "all are handled", func() bool { return handled() == s.Count*sent })
			leader("restart")
			poll.Until(t, 2*time.Minute, "the shards are shared again", even)
		})
	}
}
