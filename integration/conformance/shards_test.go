package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// shardRules are those of topology.Shards.
var shardRules = []matrix.Rule{
	{Name: "shards: every attempt in the shard of its key, one dead-letter queue"},
	{Name: "shards: in order by key through retries in place and a hand-over"},
	{Name: "shards: processes share them evenly, in order through those that come and go"},
	{Name: "shards: more may be added, fewer are refused while they hold messages"},
	{Name: "shards: an exact delay ends in the shard that it was for, or stranded when that is gone"},
}

// shards returns shards that are declared and deleted by the test.
func (e *env) shards(count int, change ...func(*topology.Shards)) topology.Shards {
	e.Helper()
	s := topology.Shards{Name: e.name("orders"), Count: count, Type: e.queue, Waits: delay.Schedule{150 * time.Millisecond, 300 * time.Millisecond}}
	for _, c := range change {
		c(&s)
	}
	e.declare(s)
	return s
}

// sendShards publishes n messages in order, with as many keys in turns, and returns the ids of each
// key in their order.
func (e *env) sendShards(s topology.Shards, n, keys int) (ids map[string][]string) {
	e.Helper()
	ids = map[string][]string{}
	messages := make([]producer.Message, n)
	for i := range messages {
		key := fmt.Sprint("customer-", i%keys)
		messages[i] = producer.Message{RoutingKey: s.Queue(key), OrderKey: key, ID: fmt.Sprintf("%s-%03d", e.prefix, i)}
		ids[key] = append(ids[key], messages[i].ID)
	}
	e.publishAll(messages)
	return ids
}

func TestShards(t *testing.T) {
	everywhere(t, func(e *env) {
		const keys = 40
		s := e.shards(4)
		j := newJournal(func(context.Context, *consumer.Delivery) error { return errBroken })
		ids := e.sendShards(s, keys, keys)
		want, letters := map[string]int{}, map[string]bool{}
		for key, of := range ids {
			want[s.Queue(key)]++
			letters[of[0]] = true
		}
		for _, w := range s.WorkQueues() {
			if got := e.count(w.Name); got != want[w.Name] || got == 0 {
				e.Errorf("%d messages are in %s, want %d", got, w.Name, want[w.Name])
			}
		}
		r := e.consume(s, j, consumer.Config{KeyLimit: 1})
		dlq := s.WorkQueues()[0].DeadLetterQueue().Name
		e.until("all are dead letters", func() bool { return e.count(dlq) == keys })
		if err := r.Health(); err != nil {
			e.Errorf("Health: %v", err)
		}
		e.halt(r)
		for key, of := range ids {
			var got []string
			for _, run := range j.of(of[0]) {
				got = append(got, fmt.Sprint(run.Queue, " ", run.Attempt))
			}
			queue := s.Queue(key)
			if all := []string{queue + " 1", queue + " 2", queue + " 3"}; !slices.Equal(got, all) {
				e.Errorf("%s is handled as %q, want %q", key, got, all)
			}
		}
		for _, d := range e.take(dlq, keys) {
			h := e.parse(d)
			if !letters[d.MessageId] || h.FinalAttempts != 3 || h.Queue != s.Queue(h.OrderKey) {
				e.Errorf("letter %q of key %q says it failed %d times in %q, want 3 times in %q", d.MessageId, h.OrderKey, h.FinalAttempts, h.Queue, s.Queue(h.OrderKey))
			}
			delete(letters, d.MessageId)
		}
		for _, w := range s.WorkQueues() {
			e.atRest(w, 0)
		}
	}, "shards: every attempt in the shard of its key, one dead-letter queue")
}

func TestOrderInShards(t *testing.T) {
	everywhere(t, func(e *env) {
		const messages, keys = 400, 20
		s := e.shards(4, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		var mu sync.Mutex
		failed := map[string]bool{}
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			<-time.After(5 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if strings.HasSuffix(d.ID, "7") && !failed[d.ID] {
				failed[d.ID] = true
				return errBroken
			}
			return nil
		})
		ids := e.sendShards(s, messages, keys)
		cfg := consumer.Config{Concurrency: 8, KeyLimit: 1, RetryInPlace: true}
		first := e.consume(s, j, cfg)
		e.until("some are done", func() bool { return j.done() > messages/8 })
		second := e.consumeOn(e.connect(e.node.AMQPURL()), s, j, cfg)
		e.until("both consume", func() bool { return second.Health() == nil })
		e.halt(first)
		e.until("all are done", func() bool { return j.done() >= messages })
		e.halt(second)
		for key, want := range ids {
			var got []string // each message when it was done
			var last entry
			for _, run := range j.of("") {
				if run.OrderKey != key {
					continue
				}
				if last.ended.After(run.began) {
					e.Errorf("%s of key %s began before %s had ended", run.ID, key, last.ID)
				}
				if last = run; run.err == nil {
					got = append(got, run.ID)
				}
			}
			if !slices.Equal(got, want) {
				e.Errorf("the messages of key %s are done in the order %v, want %v", key, got, want)
			}
		}
		for _, w := range s.WorkQueues() {
			e.atRest(w, 0)
		}
	}, "shards: in order by key through retries in place and a hand-over")
}

func TestProcessesShareShards(t *testing.T) {
	everywhere(t, func(e *env) {
		const keys = 16
		s := e.shards(4, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		e.deleteAtEnd([]string{s.Name + ".members.4"}, nil)
		type process struct {
			*running
			*journal
		}
		var all []process
		start := func() process {
			j := newJournal(func(context.Context, *consumer.Delivery) error {
				<-time.After(time.Millisecond)
				return nil
			})
			p := process{e.consumeOn(e.connect(e.node.AMQPURL()), s, j, consumer.Config{Concurrency: 8, KeyLimit: 1}), j}
			all = append(all, p)
			return p
		}
		sent := map[string][]string{}
		send := func() {
			var messages []producer.Message
			for n := range 2 * keys { // two of each key, which free handlers would handle side by side
				key := fmt.Sprint("customer-", n/2)
				id := fmt.Sprintf("%s-%s-%03d", e.prefix, key, len(sent[key]))
				messages = append(messages, producer.Message{RoutingKey: s.Queue(key), OrderKey: key, ID: id})
				sent[key] = append(sent[key], id)
			}
			e.publishAll(messages)
		}
		// share waits until each of these processes, and nobody else, handles so many shards.
		share := func(each int, of ...process) {
			e.until(fmt.Sprintf("each of %d processes handles %d shards", len(of), each), func() bool {
				seen := make([]int, len(all))
				for i, p := range all {
					seen[i] = len(p.of(""))
				}
				send()
				by := map[string]int{}
				for i, p := range all {
					queues := map[string]bool{}
					for _, run := range p.of("")[seen[i]:] {
						queues[run.Queue] = true
						by[run.Queue]++
					}
					if slices.Contains(of, p) != (len(queues) == each) {
						return false
					}
				}
				return len(by) == s.Count
			})
		}
		first := start()
		share(4, first)
		second := start()
		share(2, first, second)
		third, fourth := start(), start()
		share(1, first, second, third, fourth)
		e.halt(first.running)
		e.halt(third.running)
		share(2, second, fourth)
		e.halt(fourth.running)
		share(4, second)
		e.until("all are done", func() bool {
			n := 0
			for _, p := range all {
				n += p.done()
			}
			return n >= keys*len(sent["customer-0"])
		})
		e.halt(second.running)
		var runs []entry
		for _, p := range all {
			runs = append(runs, p.of("")...)
		}
		slices.SortStableFunc(runs, func(a, b entry) int { return a.began.Compare(b.began) })
		for key, want := range sent {
			var got []string
			var last entry
			for _, run := range runs {
				if run.OrderKey != key {
					continue
				}
				if last.ended.After(run.began) {
					e.Errorf("%s of key %s began before %s had ended", run.ID, key, last.ID)
				}
				last, got = run, append(got, run.ID)
			}
			if !slices.Equal(got, want) {
				e.Errorf("the messages of key %s are handled in the order %v, want %v", key, got, want)
			}
		}
		for _, w := range s.WorkQueues() {
			e.atRest(w, 0)
		}
	}, "shards: processes share them evenly, in order through those that come and go")
}

func TestCountOfShards(t *testing.T) {
	everywhere(t, func(e *env) {
		s := e.shards(2)
		e.declare(s) // again
		more := s
		more.Count = 4
		e.declare(more)
		last := more.WorkQueues()[3].Name
		plan := e.declare(s)
		if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, last) || !strings.Contains(notes, "empty and without a consumer") {
			e.Errorf("a smaller Count, all empty: notes\n%s", notes)
		}
		e.send(last, 1)
		_, err := topology.DeclarePlan(e.Context(), e.conn, s)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("queue %q of a larger Count has messages (1 in %q) and no consumer", last, last)) {
			e.Errorf("a smaller Count with a message: %v, want it refused", err)
		}
		j := newJournal(func(context.Context, *consumer.Delivery) error { return nil })
		r := e.consume(more, j, consumer.Config{})
		e.until("it is done", func() bool { return j.done() == 1 })
		plan = e.declare(s)
		if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, "another process consumes "+fmt.Sprintf("%q", last)) {
			e.Errorf("a smaller Count beside a consumer of the larger one: notes\n%s", notes)
		}
		e.halt(r)
		for _, w := range more.WorkQueues() {
			e.atRest(w, 0)
		}
	}, "shards: more may be added, fewer are refused while they hold messages")
}

// Two publishers delay messages, each with its own Count, and one does not know that the shards beyond the smaller one are gone.
func TestDelaysToShards(t *testing.T) {
	everywhere(t, func(e *env) {
		const keys, after = 24, 500 * time.Millisecond
		own := e.ownDelays(time.Minute)
		more := topology.Shards{Name: e.name("orders"), Count: 4, Type: e.queue, Waits: delay.Schedule{150 * time.Millisecond}}
		fewer := more
		fewer.Count = 2
		e.declare(own, fewer)
		if err := topology.Declare(e.Context(), e.conn, own, more); err != nil {
			e.Fatal(err)
		}
		sent := map[string]string{} // ids and keys
		var messages []producer.Message
		for k := range keys {
			key := fmt.Sprint("customer-", k)
			for _, s := range []topology.Shards{more, fewer} {
				m := producer.Message{RoutingKey: s.Queue(key), OrderKey: key, ID: fmt.Sprintf("%s-%d-%d", e.prefix, s.Count, k), Delay: after}
				sent[m.ID] = key
				messages = append(messages, m)
			}
		}
		another := e.connect(e.node.AMQPURL()) // the producer's own Conn would refuse the messages from then on
		e.noError("delete the shards that go", topology.Delete(e.Context(), another, more.WorkQueues()[2], more.WorkQueues()[3]))
		began := time.Now()
		e.publishAll(messages)

		j := newJournal(func(context.Context, *consumer.Delivery) error { return nil })
		e.consume(fewer, j, consumer.Config{KeyLimit: 1})
		var mu sync.Mutex
		stranded := map[string]bool{}
		e.consume(own.Stranded(), newJournal(func(ctx context.Context, d *consumer.Delivery) error {
			m := producer.FromDelivery(d.AMQP())
			mu.Lock()
			stranded[m.ID] = m.RoutingKey == more.Queue(sent[m.ID])
			mu.Unlock()
			m.RoutingKey = fewer.Queue(m.OrderKey)
			_, err := e.producer.Publish(ctx, m)
			return err
		}), consumer.Config{})
		e.until("all are done", func() bool { return j.done() == len(sent) })
		for id, key := range sent {
			runs, isMore := j.of(id), id == fmt.Sprintf("%s-%d-%s", e.prefix, more.Count, strings.TrimPrefix(key, "customer-"))
			gone := isMore && more.Queue(key) != fewer.Queue(key)
			if len(runs) != 1 || runs[0].Queue != fewer.Queue(key) || runs[0].began.Sub(began) < after || stranded[id] != gone {
				e.Errorf("%s of %s: %d runs, stranded %t, want one in %s, stranded %t", id, key, len(runs), stranded[id], fewer.Queue(key), gone)
			}
		}
	}, "shards: an exact delay ends in the shard that it was for, or stranded when that is gone")
}
