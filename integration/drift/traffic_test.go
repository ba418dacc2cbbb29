package drift

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// traffic is messages on their way through a virtual host: of each three one succeeds, one fails once and waits, and one
// fails for good. It keeps an account by id.
type traffic struct {
	*vhost
	publisher *producer.Producer

	mu        sync.Mutex
	confirmed map[string]string // kinds, by id
	tried     map[string]int    // attempts
	done      map[string]int
	letters   map[string]int

	numbered              atomic.Int64
	publishing, consuming []func() // end them
}

const (
	good = "good"
	slow = "slow"
	bad  = "bad"
)

var errBroken = errors.New("broken")

func newTraffic(v *vhost) *traffic {
	v.Helper()
	p, err := producer.New(v.conn, producer.Config{})
	if err != nil {
		v.Fatal(err)
	}
	t := &traffic{vhost: v, publisher: p, confirmed: map[string]string{}, tried: map[string]int{}, done: map[string]int{}, letters: map[string]int{}}
	v.Cleanup(func() { t.stopPublishing(); t.stopConsuming(); _ = p.Close() })
	return t
}

// publish publishes until stopPublishing, and returns when some messages are confirmed. A message that is refused is none of the account.
func (t *traffic) publish(exchange string, keys ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.publishing = append(t.publishing, func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			kind := []string{good, slow, bad}[i%3]
			id := fmt.Sprint(kind, " ", t.numbered.Add(1))
			// Not with ctx: a message that arrives, and is not known to, would count for another one in emptied.
			if _, err := t.publisher.Publish(context.WithoutCancel(ctx), producer.Message{Exchange: exchange, RoutingKey: keys[i/3%len(keys)], Type: kind, ID: id}); err == nil {
				t.mu.Lock()
				t.confirmed[id] = kind
				t.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.more()
}

// badTries returns how often each message was attempted that fails for good.
func (t *traffic) badTries() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	tries := maps.Clone(t.tried)
	maps.DeleteFunc(tries, func(id string, _ int) bool { return t.confirmed[id] != bad })
	return tries
}

// more waits until some more messages are confirmed.
func (t *traffic) more() {
	t.Helper()
	n := len(t.known())
	poll.Until(t, time.Minute, "more messages are confirmed", func() bool { return len(t.known()) >= n+30 })
}

func (t *traffic) known() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.confirmed)
}

func (t *traffic) stopPublishing() { end(&t.publishing) }

func (t *traffic) stopConsuming() { end(&t.consuming) }

func end(all *[]func()) {
	for _, one := range *all {
		one()
	}
	*all = nil
}

// consume consumes until stopConsuming.
func (t *traffic) consume(source topology.Source) {
	t.Helper()
	c, err := consumer.New(t.conn, source, func(_ context.Context, d *consumer.Delivery) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.tried[d.ID]++
		if d.Type == bad || d.Type == slow && d.Attempt == 1 {
			return errBroken
		}
		t.done[d.ID]++
		return nil
	}, consumer.Config{Concurrency: 4})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.consuming = append(t.consuming, func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the consumer: %v", err)
		}
	})
}

// on calls the broker on a channel of its own.
func (t *traffic) on(call func(ch *amqp.Channel) error) error {
	session, err := t.conn.Session(t.Context(), connection.Consume)
	if err != nil {
		return err
	}
	defer session.Close()
	return session.Do(t.Context(), call)
}

// count returns how many messages of a queue nobody has in hand.
func (t *traffic) count(queue string) (n int) {
	t.Helper()
	if err := t.on(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		n = q.Messages
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// emptied waits until nothing is on its way any more: until all that was confirmed has been handled, or is a letter.
func (t *traffic) emptied(dlqs ...string) {
	t.Helper()
	poll.Until(t, 2*time.Minute, "the queue and its waits are empty", func() bool {
		letters := 0
		for _, q := range dlqs {
			letters += t.count(q)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		return len(t.done)+len(t.letters)+letters >= len(t.confirmed)
	})
}

// take takes the letters of a queue.
func (t *traffic) take(queue string) {
	t.Helper()
	if err := t.on(func(ch *amqp.Channel) error {
		for {
			m, ok, err := ch.Get(queue, false)
			if err != nil || !ok {
				return err
			}
			t.mu.Lock()
			t.letters[m.MessageId]++
			t.mu.Unlock()
			if err := m.Ack(false); err != nil {
				return err
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// finish checks that every message that was confirmed has an end: it was handled, or is a letter in one of the queues.
// It returns how many there were, and how many are letters that had attempts left.
func (t *traffic) finish(letters ...string) (all, early int) {
	t.Helper()
	t.stopPublishing()
	sent := t.known()
	missing := func() (ids []string) {
		t.mu.Lock()
		defer t.mu.Unlock()
		for id := range sent {
			if t.done[id] == 0 && t.letters[id] == 0 {
				ids = append(ids, id)
			}
		}
		return ids
	}
	tick, late := time.NewTicker(50*time.Millisecond), time.After(2*time.Minute)
	defer tick.Stop()
	for waiting := true; waiting && len(missing()) > 0; {
		for _, q := range letters {
			t.take(q)
		}
		select {
		case <-tick.C:
		case <-late:
			waiting = false
		}
	}
	t.stopConsuming()
	if lost := missing(); len(lost) > 0 {
		slices.Sort(lost)
		queues, err := t.node.Exec(t.Context(), "rabbitmqctl", "list_queues", "-q", "-p", t.name, "name", "messages", "messages_ready", "messages_unacknowledged")
		t.Errorf("%d of %d messages are lost: %q\n%s %v", len(lost), len(sent), lost, queues, err)
	}
	for id, kind := range sent {
		if t.done[id]+t.letters[id] > 1 {
			t.Errorf("message %q was handled %d times, and is %d letters", id, t.done[id], t.letters[id])
		}
		if kind != bad && t.letters[id] > 0 {
			early++
		}
	}
	return len(sent), early
}
