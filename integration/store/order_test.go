package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
)

// road is a way to a broker that can be closed.
type road struct {
	cfg         connection.Config
	close, open func()
	queue       string
	ids         func(n int) []string // of the n messages in the queue, and of what is there twice, in their order
}

// roads leads to the broker in the process and to a real one.
func roads() map[string]func(*testing.T, place) road {
	return map[string]func(*testing.T, place) road{
		"rehoptest": func(t *testing.T, _ place) road {
			b, err := rehoptest.NewBroker(rehoptest.Config{})
			must(t, err)
			t.Cleanup(func() { b.Close() })
			const queue = "ordered"
			conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker/"}, Dial: b.Dial})
			must(t, err)
			defer conn.Close()
			session, err := conn.Session(t.Context(), connection.Consume)
			must(t, err)
			_, err = session.Channel().QueueDeclare(queue, true, false, false, false, nil)
			must(t, err)
			return road{
				cfg:   connection.Config{URLs: []string{"amqp://guest:guest@broker/"}, Dial: b.Dial},
				close: b.Stop, open: b.Start, queue: queue,
				ids: func(int) (ids []string) {
					for _, m := range b.Drain(queue) {
						ids = append(ids, m.MessageId)
					}
					return ids
				},
			}
		},
		"RabbitMQ": func(t *testing.T, p place) road {
			b := theBroker(t, p.dialect)
			url, proxy := b.through(t)
			queue := b.queue(t, nil)
			return road{
				cfg:   connection.Config{URLs: []string{url}},
				close: func() { must(t, proxy.Refuse(true)); proxy.Cut() },
				open:  func() { must(t, proxy.Lift()) },
				queue: queue,
				ids: func(n int) (ids []string) {
					for _, d := range b.take(t, queue, n) {
						ids = append(ids, d.MessageId)
					}
					return ids
				},
			}
		},
	}
}

// through leads to the broker over a proxy.
func (b realBroker) through(t testing.TB) (string, *faultproxy.Proxy) {
	t.Helper()
	u, err := url.Parse(b.AMQPURL())
	must(t, err)
	proxy, err := faultproxy.Start(u.Host)
	must(t, err)
	t.Cleanup(proxy.Close)
	u.Host = proxy.Addr()
	return u.String(), proxy
}

func TestKeepOrder(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		one, other := p.store(t, store.Config{KeepOrder: true}), p.store(t, store.Config{KeepOrder: true})
		for i := range 60 {
			must(t, one.Put(t.Context(), producer.Message{RoutingKey: fmt.Sprint("k-", i%3), ID: fmt.Sprintf("%02d", i)}, errAway))
		}
		var mu sync.Mutex
		tries := map[string]int{}
		broker := &peer{answer: func(_ context.Context, m producer.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if tries[m.ID]++; m.ID[1] == '4' && tries[m.ID] == 1 {
				return connection.ErrSessionLost // holds up those behind it
			}
			return nil
		}}
		forward(t, one, broker, store.ForwardConfig{})
		forward(t, other, broker, store.ForwardConfig{})
		empties(t, one, store.Query{}, patience)
		last := map[string]string{}
		broker.mu.Lock()
		defer broker.mu.Unlock()
		if len(broker.sent) != 60 {
			t.Errorf("%d messages, want 60", len(broker.sent))
		}
		for _, m := range broker.sent {
			if m.ID <= last[m.RoutingKey] {
				t.Errorf("%s came after %s", m.ID, last[m.RoutingKey])
			}
			last[m.RoutingKey] = m.ID
		}
	})
}

// TestKeepOrderWhileLettersCome: two processes share lines to which letters are put all the
// time, so that one finds a new letter while the other one leases those before it.
func TestKeepOrderWhileLettersCome(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		one, other := p.store(t, store.Config{KeepOrder: true}), p.store(t, store.Config{KeepOrder: true})
		broker := &peer{}
		forward(t, one, broker, store.ForwardConfig{})
		forward(t, other, broker, store.ForwardConfig{Poll: 10 * time.Millisecond})
		const lines, each = 8, 100
		var putters sync.WaitGroup
		for line := range lines {
			putters.Go(func() {
				for i := range each {
					if err := one.Put(t.Context(), producer.Message{RoutingKey: fmt.Sprint("k-", line), ID: fmt.Sprintf("%03d", i)}, errAway); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		putters.Wait()
		empties(t, one, store.Query{}, patience)
		last := map[string]string{}
		broker.mu.Lock()
		defer broker.mu.Unlock()
		if len(broker.sent) != lines*each {
			t.Errorf("%d messages, want %d", len(broker.sent), lines*each)
		}
		for _, m := range broker.sent {
			if m.ID <= last[m.RoutingKey] {
				t.Fatalf("%s of %s came after %s", m.ID, m.RoutingKey, last[m.RoutingKey])
			}
			last[m.RoutingKey] = m.ID
		}
	})
}

// TestFreshMessagesStayBehindStoredOnes: one caller publishes through an outage,
// and its messages are in the queue in their order.
func TestFreshMessagesStayBehindStoredOnes(t *testing.T) {
	t.Parallel()
	for name, lead := range roads() {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, p place) { staysBehind(t, p, lead(t, p)) })
		})
	}
}

func staysBehind(t *testing.T, p place, r road) {
	ctx := t.Context()
	s := p.store(t, store.Config{KeepOrder: true})
	conn, err := connection.Open(ctx, r.cfg)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{s}, FallbackAfter: 100 * time.Millisecond})
	must(t, err)
	t.Cleanup(func() { publisher.Close() })
	forwarder, err := producer.New(conn, producer.Config{})
	must(t, err)
	t.Cleanup(func() { forwarder.Close() })
	forward(t, s, forwarder, store.ForwardConfig{})
	n, behind := 0, 0
	publish := func() producer.Place {
		receipt, err := publisher.Publish(ctx, producer.Message{RoutingKey: r.queue, ID: strconv.Itoa(n)})
		must(t, err)
		n++
		if errors.Is(receipt.Err, producer.ErrBehind) {
			behind++
		}
		return receipt.Place
	}
	for range 50 {
		publish()
	}
	r.close()
	for range 200 {
		publish()
	}
	r.open()
	// Until the store is empty and they go to the queue again, which they never do
	// where they come faster than what is stored goes.
	var latest time.Time
	poll.Until(t, 2*time.Minute, "messages are confirmed again", func() bool {
		if time.Since(latest) < 100*time.Millisecond {
			return false
		}
		latest = time.Now()
		return publish() == producer.PlaceQueue
	})
	for range 50 {
		publish()
	}
	empties(t, s, store.Query{}, patience)
	last, seen := -1, map[string]bool{}
	for _, id := range r.ids(n) {
		if seen[id] { // one that was cut off may be there twice
			continue
		}
		seen[id] = true
		i, err := strconv.Atoi(id)
		must(t, err)
		if i != last+1 {
			t.Fatalf("%d came after %d", i, last)
		}
		last = i
	}
	if last != n-1 || behind == 0 {
		t.Errorf("%d of %d messages arrived; %d were stored behind others", last+1, n, behind)
	}
}

// TestWhatAnEarlierProcessLeftIsAhead: a store that is opened knows what waits.
func TestWhatAnEarlierProcessLeftIsAhead(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		ctx := t.Context()
		left := p.store(t, store.Config{KeepOrder: true})
		for i := range 3 {
			must(t, left.Put(ctx, producer.Message{RoutingKey: "k", ID: fmt.Sprint(i)}, errAway))
		}
		_, err := left.PutAt(ctx, time.Now().Add(time.Hour), producer.Message{RoutingKey: "later"})
		must(t, err)
		must(t, left.Put(ctx, producer.Message{RoutingKey: "held"}, producer.ErrReturned))
		s := p.store(t, store.Config{KeepOrder: true})
		behind := func(key string, want bool) {
			t.Helper()
			if stored, err := s.PutBehind(ctx, producer.Message{RoutingKey: key, ID: "fresh " + key}); stored != want || err != nil {
				t.Errorf("behind %s: %v, %v; want %v", key, stored, err, want)
			}
		}
		behind("k", true)
		behind("later", false)
		behind("held", false)
		behind("other", false)
		broker := &peer{}
		stop := forward(t, s, broker, store.ForwardConfig{})
		empties(t, s, store.Query{RoutingKey: "k"}, patience)
		stop()
		if got := broker.ids(); len(got) != 4 || got[3] != "fresh k" {
			t.Errorf("forwarded %q", got)
		}
		behind("k", false)
		if stored, err := p.store(t, store.Config{}).PutBehind(ctx, producer.Message{RoutingKey: "k"}); stored || err != nil {
			t.Errorf("without KeepOrder: %v, %v", stored, err)
		}
	})
}

// TestBehindALockedDatabase: a message that may not overtake others and cannot be
// stored is not sent.
func TestBehindALockedDatabase(t *testing.T) {
	p := newPlace(t, store.SQLite)
	s := p.store(t, store.Config{KeepOrder: true, Timeout: 3 * time.Second})
	must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "first"}, errAway))
	unlock := lock(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if stored, err := s.PutBehind(ctx, producer.Message{RoutingKey: "k", ID: "second"}); err == nil || stored {
		t.Errorf("%v, %v; want an error", stored, err)
	}
	unlock()
	poll.Until(t, patience, "stored behind", func() bool {
		stored, err := s.PutBehind(ctx, producer.Message{RoutingKey: "k", ID: "second"})
		return stored && err == nil
	})
}

// TestALineKnowsWhatComesBack: fresh messages stay behind a letter that comes back to its
// line, or comes to another one, when the line has long been empty.
func TestALineKnowsWhatComesBack(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		for name, back := range map[string]func(s *store.Store, number int64) error{
			"released": func(s *store.Store, number int64) error {
				_, err := s.Release(t.Context(), store.Query{Numbers: []int64{number}})
				return err
			},
			"edited": func(s *store.Store, number int64) error {
				_, err := p.store(t, store.Config{}).Release(t.Context(), store.Query{Numbers: []int64{number}}) // which s knows nothing of
				return errors.Join(err, s.Edit(t.Context(), number, func(m *producer.Message) error { m.RoutingKey = "k2"; return nil }))
			},
		} {
			s := p.store(t, store.Config{KeepOrder: true})
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "first"}, errAway))
			number := find(t, s, store.Query{})[0].Number
			_, err := s.Park(t.Context(), store.Query{All: true})
			must(t, err)
			for _, key := range []string{"k", "k2"} {
				if stored, err := s.PutBehind(t.Context(), producer.Message{RoutingKey: key, ID: "before"}); stored || err != nil {
					t.Errorf("%s: behind a parked letter: %v, %v", name, stored, err)
				}
			}
			must(t, back(s, number))
			key := find(t, s, store.Query{})[0].Message.RoutingKey
			if stored, err := s.PutBehind(t.Context(), producer.Message{RoutingKey: key, ID: "fresh"}); !stored || err != nil {
				t.Errorf("%s: a fresh message overtakes the letter: %v, %v", name, stored, err)
			}
			_, err = s.Delete(t.Context(), store.Query{All: true})
			must(t, err)
		}
	})
}

// TestALineKnowsALetterWhoseCallerLeft: a call whose ctx ends while the file is locked may
// change a letter yet, and fresh messages stay behind the letter then.
func TestALineKnowsALetterWhoseCallerLeft(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, s *store.Store) error{
		"put": func(ctx context.Context, s *store.Store) error {
			return s.Put(ctx, producer.Message{RoutingKey: "k", ID: "left"}, errAway)
		},
		"released": func(ctx context.Context, s *store.Store) error {
			_, err := s.Release(ctx, store.Query{MessageIDs: []string{"parked"}})
			return err
		},
		"edited": func(ctx context.Context, s *store.Store) error {
			number := find(t, s, store.Query{MessageIDs: []string{"other"}})[0].Number
			return s.Edit(ctx, number, func(m *producer.Message) error { m.RoutingKey = "k"; return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, store.SQLite)
			s := p.store(t, store.Config{KeepOrder: true})
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "parked"}, errAway))
			_, err := s.Park(t.Context(), store.Query{All: true})
			must(t, err)
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "other", ID: "other"}, errAway))
			behind := func(want bool) {
				t.Helper()
				if stored, err := s.PutBehind(t.Context(), producer.Message{RoutingKey: "k", ID: "fresh"}); stored != want || err != nil {
					t.Errorf("behind: %v, %v; want %v", stored, err, want)
				}
			}
			behind(false)
			empty := func() bool {
				return len(find(t, s, store.Query{States: []store.State{store.Ready}, RoutingKey: "k"})) == 0
			}
			// A call whose ctx ends before it has begun to write changes nothing, and the
			// next one has more time.
			for limit := time.Second; empty(); limit *= 2 {
				if limit > 4*time.Second { // SQLite gives up after 5 s
					t.Fatal("no call has changed a letter after its caller left")
				}
				unlock := lock(t, p)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				err := call(ctx, s)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("%v, want the end of ctx", err)
				}
				behind(false)
				unlock()
				// The file has one writer, which commits this behind the call.
				must(t, s.Put(t.Context(), producer.Message{RoutingKey: "last", ID: "last"}, errAway))
			}
			behind(true)
		})
	}
}

// TestALetterThatComesAgainHasTheLineOfItsLastPut: a line has the letters whose last call
// gave them a place in it.
func TestALetterThatComesAgainHasTheLineOfItsLastPut(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{KeepOrder: true})
		m := producer.Message{RoutingKey: "held", ID: "held at first"}
		must(t, s.Put(t.Context(), m, producer.ErrReturned))
		must(t, s.Put(t.Context(), m, errAway))
		if stored, err := s.PutBehind(t.Context(), producer.Message{RoutingKey: "held", ID: "behind"}); !stored || err != nil {
			t.Errorf("a fresh message overtakes a letter that was held before: %v, %v", stored, err)
		}
		_, err := s.Delete(t.Context(), store.Query{All: true})
		must(t, err)

		m = producer.Message{RoutingKey: "dated", ID: "dated later"}
		must(t, s.Put(t.Context(), m, errAway))
		_, err = s.PutAt(t.Context(), time.Now().Add(time.Hour), m)
		must(t, err)
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "dated", ID: "at once"}, errAway))
		broker := &peer{}
		forward(t, s, broker, store.ForwardConfig{})
		poll.Until(t, patience, "a letter is forwarded that has no date", func() bool { return len(broker.ids()) == 1 })
	})
}
