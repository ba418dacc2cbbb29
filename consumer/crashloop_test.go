package consumer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// crashLoop has processes that begin to consume, and die when they handle a guilty message.
type crashLoop struct {
	*fixture
	source topology.Source // nil: the work queue
	slow   time.Duration   // that handlers take; 0: 50 ms
	rest   time.Duration   // that a process lives which does not die; 0: 30 min

	mu   sync.Mutex
	done map[string][]string // ids by key, in the order in which their handlers have returned
	runs int
	away time.Time // until then the service of the key "away" is away

	kills int           // so many processes are killed
	life  time.Duration // of such a process, if it does not die before

	late   int // the process, from 1, whose end the broker sees only when the next one has begun; 0: none
	ending sync.WaitGroup
}

func (l *crashLoop) handle(ctx context.Context, d *consumer.Delivery) error {
	if d.OrderKey == "away" && time.Now().Before(l.away) {
		return consumer.Hold(errAway)
	}
	if err := slowly(cmp.Or(l.slow, 50*time.Millisecond))(ctx, d); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[d.OrderKey] = append(l.done[d.OrderKey], d.ID)
	return nil
}

// process runs one process, until it dies or everything is done. It reports whether it has died.
func (l *crashLoop) process(cfg consumer.Config) (died bool) {
	l.mu.Lock()
	l.runs++
	run := l.runs
	l.mu.Unlock()
	name := fmt.Sprintf("process %d", run)
	conn, err := connection.Open(l.Context(), l.connects(name))
	if err != nil {
		l.Error(err)
		return false
	}
	dying := make(chan struct{}, max(1, cfg.Concurrency))
	source := l.source
	if source == nil {
		source = l.orders
	}
	c, err := consumer.New(conn, source, func(ctx context.Context, d *consumer.Delivery) error {
		if d.Type != "guilty" {
			return l.handle(ctx, d)
		}
		dying <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}, cfg)
	if err != nil {
		_ = conn.Close()
		l.Error(err)
		return false
	}
	stop := running(c)
	end := func() {
		_ = stop()
		_ = conn.Close()
		// Cut does not wait until the broker has put back what the process had, and a process that begins
		// before gets later messages first. Time goes on only when the broker has nothing left to do.
		time.Sleep(time.Millisecond)
	}
	die := func() {
		l.broker.Cut(name + " ") // process 1, and not process 10
		end()
	}
	life := cmp.Or(l.rest, 30*time.Minute)
	if run <= l.kills {
		life = l.life
	}
	select {
	case <-dying:
		time.Sleep(10 * time.Millisecond)
		if run != l.late {
			die()
			return true
		}
		l.ending.Go(func() {
			time.Sleep(5 * time.Millisecond)
			die()
		})
		return true
	case <-time.After(life):
		if run <= l.kills {
			die()
			return true
		}
		end()
		return false
	}
}

// In order, a message that kills its process again and again takes no other message along.
func TestACrashLoopInOrderSparesItsNeighbours(t *testing.T) {
	for _, tt := range []struct {
		rule     string
		guilty   []int
		single   int // processes of a queue with a single active consumer; 0: it has none
		versions []string
	}{ // each version counts in its own way, which many guilty messages show; where they are is the consumer's own
		{"one guilty message", []int{20}, 0, versions[:1]},
		{"the first message of all", []int{0}, 0, versions[1:2]},
		{"three of one key", []int{20, 25, 30}, 0, versions[2:]},
		{"nine guilty messages", []int{3, 4, 5, 20, 22, 41, 43, 45, 57}, 0, versions},
		{"a single active consumer", []int{20}, 1, versions[1:]},
		{"a single active consumer of three processes", []int{20, 41}, 3, versions},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			loops := func(w *fixture) {
				if tt.single > 0 {
					w.orders = topology.WorkQueue{Name: "single", Waits: w.orders.Waits, SingleActiveConsumer: true}
					w.declare(w.orders)
				}
				l := &crashLoop{fixture: w, done: map[string][]string{}}
				const all = 120
				var letters []string
				want := map[string][]string{}
				for n := range all {
					key := fmt.Sprint(n % 5)
					guilty := slices.Contains(tt.guilty, n)
					if guilty {
						letters = append(letters, id(n))
					} else {
						want[key] = append(want[key], id(n))
					}
					w.publish(1, keyed(key), func(m *rehoptest.Message) {
						if guilty {
							m.Type = "guilty"
						}
					})
				}
				var processes sync.WaitGroup
				for range max(1, tt.single) {
					processes.Go(func() {
						for l.process(consumer.Config{Concurrency: 8, KeyLimit: 1}) {
						}
					})
				}
				processes.Wait()
				slices.Sort(letters)
				w.has(w.orders.Name)
				w.has(w.orders.DeadLetterQueue().Name, letters...)
				for key, ids := range want {
					if got := slices.Compact(l.done[key]); !slices.Equal(got, ids) {
						w.Errorf("key %s: handled %v, want %v", key, got, ids)
					}
				}
			}
			for _, version := range sampled(t, tt.versions) {
				on(t, version, topology.Quorum, loops)
			}
		})
	}
}

// Two processes give each other what they had in hand when they died. So messages of few deaths come among
// suspects again and again, and handlers take longer than a process lives.
func TestACrashLoopOfTwoProcessesSparesTheOthers(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		const all, guilty = 100, 70
		l := &crashLoop{fixture: w, done: map[string][]string{}, slow: 7 * time.Second, rest: 10 * time.Minute}
		var want []string
		for n := range all {
			w.publish(1, func(m *rehoptest.Message) {
				if n == guilty {
					m.Type = "guilty"
				}
			})
			if n != guilty {
				want = append(want, id(n))
			}
		}
		var processes sync.WaitGroup
		for _, prefetch := range []int{0, 36} {
			processes.Go(func() {
				for l.process(consumer.Config{Concurrency: 20, Prefetch: prefetch}) {
				}
			})
		}
		processes.Wait()
		w.has(w.orders.DeadLetterQueue().Name, id(guilty))
		slices.Sort(want)
		if done := slices.Compact(slices.Sorted(slices.Values(l.done[""]))); !slices.Equal(done, want) {
			w.Errorf("handled %v, want %v", done, want)
		}
	})
}

// A message that kills its process again and again takes no message of another shard or lane along, although
// their handlers take longer than the process lives.
func TestACrashLoopSparesOtherQueues(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		guilty []int // numbers of messages; message n is in queue n % 4
		cfg    consumer.Config
		lanes  bool
		single bool
	}{
		{"one guilty message in the first shard", []int{0}, consumer.Config{Concurrency: 8}, false, false},
		{"one in the last shard", []int{7}, consumer.Config{Concurrency: 8}, false, false},
		{"one for each of two shards", []int{1, 6}, consumer.Config{Concurrency: 8}, false, false},
		{"one for each shard", []int{0, 1, 2, 3}, consumer.Config{Concurrency: 8}, false, false},
		{"in order", []int{5}, consumer.Config{Concurrency: 8, KeyLimit: 1}, false, false},
		{"in order, one for each of two shards", []int{4, 1}, consumer.Config{Concurrency: 8, KeyLimit: 1}, false, false},
		{"in order, with a prefetch of 1", []int{5}, consumer.Config{Concurrency: 1, Prefetch: 1, KeyLimit: 1}, false, false},
		{"a single active consumer of each shard", []int{5}, consumer.Config{Concurrency: 8, KeyLimit: 1, RetryInPlace: true}, false, true},
		{"the highest lane", []int{0}, consumer.Config{Concurrency: 8}, true, false},
		{"the lowest lane", []int{3}, consumer.Config{Concurrency: 8}, true, false},
		{"two lanes in order", []int{1, 2}, consumer.Config{Concurrency: 8, KeyLimit: 1}, true, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onQuorumQueues(t, func(w *fixture) {
				const all, queues = 24, 4
				w.orders.Waits = delay.Schedule{time.Second}
				l := &crashLoop{fixture: w, done: map[string][]string{}, slow: time.Second, rest: 5 * time.Minute}
				var queueOf func(n int) string
				if tt.lanes {
					lanes := topology.Lanes{Name: "sms", Waits: w.orders.Waits, OneDeadLetterQueue: true,
						Lanes: []topology.Lane{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}}
					w.declare(lanes)
					l.source = lanes
					queueOf = func(n int) string { return "sms." + string(rune('a'+n%queues)) }
				} else {
					s := w.shards(queues, func(s *topology.Shards) { s.SingleActiveConsumer = tt.single })
					l.source = s
					queueOf = func(n int) string { return fmt.Sprintf("bills.%02d", n%queues) }
				}
				var letters, want []string
				for n := range all {
					guilty := slices.Contains(tt.guilty, n)
					m := rehoptest.Message{RoutingKey: queueOf(n), Publishing: amqp.Publishing{MessageId: id(n), DeliveryMode: amqp.Persistent,
						Headers: amqp.Table{header.OrderKey: fmt.Sprint(n % (2 * queues))}}}
					if guilty {
						m.Type = "guilty"
						letters = append(letters, id(n))
					} else {
						want = append(want, id(n))
					}
					if queues, err := w.broker.Publish(m); err != nil || queues != 1 {
						w.Fatalf("publish: %d queues, %v", queues, err)
					}
				}
				for l.process(tt.cfg) {
				}
				slices.Sort(letters)
				dlq := "bills.dlq"
				if tt.lanes {
					dlq = "sms.dlq"
				}
				w.has(dlq, letters...)
				var done []string
				for _, ids := range l.done {
					done = append(done, ids...)
				}
				slices.Sort(done)
				slices.Sort(want)
				if !slices.Equal(slices.Compact(done), want) {
					w.Errorf("handled %v, want %v", done, want)
				}
				if limit := 25 * len(tt.guilty); l.runs > limit {
					w.Errorf("%d processes, want %d at most", l.runs, limit)
				}
			})
		})
	}
}

// A process that is killed soon after its start handles few of the messages that it has fetched. Each such life counts for
// those that it has in hand: without order for one of each queue, and in order for all that it has fetched at its start.
func TestACrashLoopOfShortLives(t *testing.T) {
	const slow, guilty = 300 * time.Millisecond, 20
	for i, tt := range []struct {
		rule   string
		cfg    consumer.Config
		life   time.Duration
		shards bool
		most   int // innocent messages that become letters
	}{
		{"without order", consumer.Config{Concurrency: 16}, 2*slow + slow/2, false, 0},
		{"without order, with one worker", consumer.Config{}, 2*slow + slow/2, false, 0},
		{"without order, in less than a handler takes", consumer.Config{}, slow / 2, false, 3},
		{"shares of keys", consumer.Config{Concurrency: 16, KeyLimit: 4}, 2*slow + slow/2, false, 0},
		{"shards, in a second and two handlers", consumer.Config{Concurrency: 16}, durations.SuspectsMeet + 2*slow + slow/2, true, 0},
		{"in order, a quarter of the prefetch in each life", consumer.Config{Concurrency: 2, Prefetch: 8, KeyLimit: 1}, 2*slow + slow/2, false, 0},
		{"in order, a quarter of the default prefetch of 51", consumer.Config{KeyLimit: 1}, 13*slow + slow/2, false, 0},
		{"in order, one message in each life", consumer.Config{KeyLimit: 1}, slow + slow/2, false, 2 * (51 - 9)}, // a letter takes 21 lives
	} {
		t.Run(tt.rule, func(t *testing.T) {
			on(t, versions[i%len(versions)], topology.Quorum, func(w *fixture) {
				l := &crashLoop{fixture: w, done: map[string][]string{}, slow: slow, kills: 60, life: tt.life}
				queue, dlq := func(int) string { return "orders" }, "orders.dlq"
				if tt.shards {
					l.source = w.shards(4)
					queue, dlq = func(n int) string { return fmt.Sprintf("bills.%02d", n%4) }, "bills.dlq"
				}
				for n := range 600 {
					w.publish(1, keyed(fmt.Sprint(n%20)), func(m *rehoptest.Message) {
						m.RoutingKey = queue(n)
						if n == guilty {
							m.Type = "guilty"
						}
					})
				}
				for l.process(tt.cfg) {
				}
				letters, handled := w.in(dlq), 0
				for _, ids := range l.done {
					slices.Sort(ids) // a kill before the ack has a message handled twice
					handled += len(slices.Compact(ids))
				}
				innocent := slices.DeleteFunc(slices.Clone(letters), func(s string) bool { return s == id(guilty) })
				if len(innocent) > tt.most || len(innocent) == len(letters) {
					w.Errorf("%d innocent messages are letters among %d, want %d at most and the guilty one", len(innocent), len(letters), tt.most)
				}
				if handled+len(letters) < 600 || l.runs <= l.kills {
					w.Errorf("%d messages are handled and %d are letters after %d processes, want all 600 after more than %d", handled, len(letters), l.runs, l.kills)
				}
			})
		})
	}
}

// While messages of one shard are handled of which consumers may have died, the others wait. Health says so, and
// the log; both name the shard.
func TestSuspectsOfOneShardKeepTheOthersWaiting(t *testing.T) {
	for _, tt := range []struct {
		rule           string
		keyLimit, cuts int
	}{
		{"without order one of the eight messages is in hand at a time from the fifth on", 0, 48},
		{"in order all are, until they are suspect", 1, 12},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				s := w.shards(3)
				log := &lines{}
				for n := range 8 {
					w.publishTo("bills.00", id(n), id(n))
				}
				c, stop := w.startOn(s, func(ctx context.Context, d *consumer.Delivery) error {
					if d.Queue == "bills.00" {
						return slowly(40*time.Second)(ctx, d)
					}
					return nil
				}, consumer.Config{Concurrency: 8, KeyLimit: tt.keyLimit, Logger: log.logger()})
				for range tt.cuts {
					time.Sleep(20 * time.Second)
					w.broker.Cut("")
				}
				time.Sleep(10 * time.Second)
				w.publishTo("bills.01", "late", "late")
				time.Sleep(time.Minute)
				if len(w.journal.of("late")) > 0 {
					w.Error("a message of another shard is handled beside a suspect")
				}
				if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), `may have died of messages of queue "bills.00"`) || !strings.Contains(err.Error(), `queue "bills.01"`) {
					w.Errorf("%s: %v", status, err)
				}
				time.Sleep(10 * time.Minute)
				if done := w.journal.count(consumer.DispositionDone); done != 9 {
					w.Errorf("%d messages are done, want 9", done)
				}
				if status, err := health(c); status != "healthy" {
					w.Errorf("%s: %v", status, err)
				}
				if len(log.with("no message of another queue")) == 0 {
					w.Error("the log does not say so")
				}
				w.has("bills.dlq")
				w.stopped(stop)
			})
		})
	}
}

// A suspect whose handler has returned and that stays in hand makes room for one more, and never for two: a crash would
// count against both.
func TestSuspectsThatStayInHandBringOneUntriedAtATime(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		const suspects = 8
		w.orders.Waits = delay.Schedule{5 * time.Minute}
		w.declare(w.orders)
		w.publish(suspects, func(m *rehoptest.Message) { m.Headers = amqp.Table{header.DeliveryCount: int64(10)} })
		var mu sync.Mutex
		tried := map[string]bool{}
		running, most := 0, 0
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			mu.Lock()
			first := !tried[d.ID]
			tried[d.ID] = true
			if first {
				running++
			}
			most = max(most, running)
			mu.Unlock()
			err := slowly(5*time.Second)(ctx, d)
			mu.Lock()
			defer mu.Unlock()
			if first {
				running--
				return errors.New("not now")
			}
			return err
		}, consumer.Config{Concurrency: suspects, RetryInPlace: true})
		time.Sleep(5*suspects*time.Second + time.Second)
		mu.Lock()
		if len(tried) != suspects || running > 0 || most > 1 {
			w.Errorf("%d of %d suspects were handled, %d are at work, and %d were at once; want one at a time", len(tried), suspects, running, most)
		}
		mu.Unlock()
		time.Sleep(2 * time.Hour)
		if done := w.journal.count(consumer.DispositionDone); done != suspects {
			w.Errorf("%d messages are done, want %d", done, suspects)
		}
		w.stopped(stop)
	})
}

// A process may begin before the broker has seen the end of the one before it. They are two consumers
// then, which keep no order: what the first one had comes behind later messages. A message that kills
// its process takes no other along all the same.
func TestACrashLoopWhoseEndsAreSeenLateSparesItsNeighbours(t *testing.T) {
	for i, late := range []int{1, 2, 9, 10, 11, 14} {
		t.Run(fmt.Sprint("process ", late), func(t *testing.T) {
			lateEnd := func(w *fixture) {
				l := &crashLoop{fixture: w, done: map[string][]string{}, late: late}
				const all, guilty = 120, 20
				for n := range all {
					w.publish(1, keyed(fmt.Sprint(n%5)), func(m *rehoptest.Message) {
						if n == guilty {
							m.Type = "guilty"
						}
					})
				}
				for l.process(consumer.Config{Concurrency: 8, KeyLimit: 1}) {
				}
				l.ending.Wait()
				w.has("orders")
				w.has("orders.dlq", id(guilty))
				handled := map[string]bool{}
				for _, got := range l.done {
					for _, id := range got {
						handled[id] = true
					}
				}
				if len(handled) != all-1 {
					w.Errorf("%d messages are handled, want %d", len(handled), all-1)
				}
				if l.runs <= late {
					w.Errorf("%d processes: none has begun beside the one whose end is seen late", l.runs)
				}
			}
			if late == 10 { // the one that makes its messages suspects
				onQuorumQueues(t, lateEnd)
				return
			}
			on(t, versions[i%len(versions)], topology.Quorum, lateEnd)
		})
	}
}

// Messages that are held while one at a time is in hand go to the end of the queue. They cost no
// other message a return.
func TestACrashLoopInAnOutageOfOneKeySparesItsNeighbours(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		l := &crashLoop{fixture: w, done: map[string][]string{}, away: time.Now().Add(20 * time.Minute)}
		w.publish(12, keyed("away"))
		w.publish(1, keyed("k"), func(m *rehoptest.Message) { m.Type = "guilty" })
		for n := range 40 {
			w.publish(1, keyed(fmt.Sprint(n%5)))
		}
		for l.process(consumer.Config{Concurrency: 8, KeyLimit: 1}) {
		}
		w.has("orders")
		w.has("orders.dlq", id(12))
		for key, got := range l.done {
			if key != "away" && !slices.IsSortedFunc(slices.Compact(got), byNumber) {
				w.Errorf("key %s: handled %v", key, got)
			}
		}
	})
}

// No broker tells a crash from a lost connection: the same is true of one process. Its own returns,
// in an outage of hours before, are no crashes, and no reason to miss one.
func TestAMessageThatCutsTheConnectionOfAConsumerInOrder(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		l := &crashLoop{fixture: w, done: map[string][]string{}, away: time.Now().Add(4 * time.Hour)}
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			if d.Type == "guilty" {
				return w.crashing(0)(ctx, d)
			}
			return l.handle(ctx, d)
		}, consumer.Config{Concurrency: 8, KeyLimit: 1})
		w.begun()
		w.publish(1, keyed("away"))
		time.Sleep(5 * time.Hour)
		for n := range 120 {
			w.publish(1, keyed(fmt.Sprint(n%5)), func(m *rehoptest.Message) {
				if n == 20 {
					m.Type = "guilty"
				}
			})
		}
		time.Sleep(10 * time.Minute)
		w.has("orders")
		w.has("orders.dlq", id(21))
		for key, got := range l.done {
			if !slices.IsSortedFunc(slices.Compact(got), byNumber) {
				w.Errorf("key %s: handled %v", key, got)
			}
		}
		w.stopped(stop)
	})
}

func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
