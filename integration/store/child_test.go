package store_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// task is what the child does. It tells the id of each message that is stored or
// forwarded.
type task struct {
	Do             string // store, schedule, forward, or stop for ever after a confirm
	URL            string // of the broker
	Dialect        store.Dialect
	Driver, Source string
	Queue          string // of once and once batch
	Gap            string // of once batch
}

// childLease is how long the letters of a dead child wait.
const childLease = 2 * time.Second

// work is what the child does.
func work(job task) error {
	switch job.Do {
	case "once":
		return workOnce(job)
	case "once batch":
		return workOnceBatch(job)
	}
	ctx := context.Background()
	db, err := place{job.Dialect, job.Driver, job.Source}.connect()
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, db, job.Dialect, store.Config{})
	if err != nil {
		return err
	}
	if job.Do == "store" {
		for g := range 16 {
			go func() {
				for i := 0; ; i++ {
					id := fmt.Sprintf("%d-%d", g, i)
					if err := s.Put(ctx, producer.Message{RoutingKey: "k", ID: id, Body: []byte("body")}, errAway); err != nil {
						log.Fatal(err)
					}
					child.Say(id)
				}
			}()
		}
		select {}
	}
	if job.Do == "schedule" {
		for i := range 20 {
			m := producer.Message{RoutingKey: "k", ID: fmt.Sprint("at ", i)}
			if i == 7 {
				m.ID = "far"
			}
			if _, err := s.PutAt(ctx, time.Now().Add(time.Hour), m); err != nil {
				return err
			}
			child.Say(m.ID)
		}
		select {}
	}
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{job.URL}})
	if err != nil {
		return err
	}
	p, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	return runForwarder(ctx, s, p, store.ForwardConfig{Batch: 50, Lease: childLease, Traces: []store.ForwardTrace{{
		Forwarded: func(_ context.Context, f store.Forwarded) {
			child.Say(f.Entry.Message.ID)
			if job.Do == "stop after a confirm" {
				select {}
			}
		},
	}}})
}

// runChild starts a child, kills it when it has told so many ids, and returns all
// that it has told.
func runChild(t *testing.T, job task, ids int) map[string]bool {
	t.Helper()
	told := map[string]bool{}
	p := child.Start(t, job, func(p *child.Process, id string) {
		if told[id] = true; len(told) == ids {
			p.Kill()
		}
	})
	late := time.AfterFunc(60*time.Second, p.Kill)
	defer late.Stop()
	if err := p.Wait(); err != nil || len(told) < ids {
		t.Fatalf("the child has told %d of %d ids: %v", len(told), ids, err)
	}
	return told
}

func (p place) task(do, url string) task {
	return task{Do: do, URL: url, Dialect: p.dialect, Driver: p.driver, Source: p.source}
}

func TestKilledWhileStoring(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		told := runChild(t, p.task("store", ""), 1000)
		s := p.store(t, store.Config{})
		stored := map[string]bool{}
		for q := (store.Query{Limit: 1000}); ; {
			page := find(t, s, q)
			if len(page) == 0 {
				break
			}
			for _, l := range page {
				stored[l.Message.ID] = true
			}
			q.After = page[len(page)-1].Number
		}
		for id := range told {
			if !stored[id] {
				t.Errorf("%s was reported as stored, and is not", id)
			}
		}
		t.Logf("%d reported, %d stored", len(told), len(stored))
	})
}

func TestKilledWhileForwarding(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		b := theBroker(t, p.dialect)
		q := b.queue(t, nil)
		s := p.store(t, store.Config{})
		want := fill(t, s, 1500, producer.Message{RoutingKey: q})
		runChild(t, p.task("forward", b.AMQPURL()), 500)
		forward(t, s, b.producer(t), store.ForwardConfig{})
		empties(t, s, store.Query{}, patience)
		got := b.drain(t, q, len(want))
		twice := 0
		for _, id := range want {
			switch got[id] {
			case 0:
				t.Errorf("%s is lost", id)
			case 1:
			default:
				twice++
			}
		}
		// At most what was confirmed and not deleted: the leases of one process.
		if twice > 8*50 {
			t.Errorf("%d messages arrived twice", twice)
		}
		t.Logf("%d of %d arrived twice", twice, len(want))
	})
}

func TestKilledBetweenConfirmAndDelete(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		b := theBroker(t, p.dialect)
		q := b.queue(t, nil)
		s := p.store(t, store.Config{})
		fill(t, s, 1, producer.Message{RoutingKey: q})
		runChild(t, p.task("stop after a confirm", b.AMQPURL()), 1)
		if n, _ := s.Count(t.Context(), store.Query{}); n != 1 {
			t.Errorf("%d letters after the kill, want 1", n)
		}
		forward(t, s, b.producer(t), store.ForwardConfig{})
		empties(t, s, store.Query{}, patience)
		if got := b.drain(t, q, 1); len(got) != 1 || got["m-000000"] != 2 {
			t.Errorf("%v, want the message twice, with one id", got)
		}
	})
}

// TestCancelAfterAKillBetweenConfirmAndDelete: the message is in its queue, so Cancel does
// not count it, whoever had its letter between the kill and the call.
func TestCancelAfterAKillBetweenConfirmAndDelete(t *testing.T) {
	first := func(t *testing.T, s *store.Store) store.Entry {
		l := find(t, s, store.Query{})
		if len(l) != 1 {
			t.Fatalf("%d letters, want 1", len(l))
		}
		return l[0]
	}
	park := func(t *testing.T, s *store.Store) {
		poll.Until(t, patience, "the lease ends", func() bool {
			n, err := s.Park(t.Context(), store.Query{MessageIDs: []string{"m"}})
			must(t, err)
			return n == 1
		})
	}
	for _, c := range []struct {
		name    string
		between func(t *testing.T, s *store.Store)
	}{
		{"nobody", func(*testing.T, *store.Store) {}},
		{"another process that published nothing", func(t *testing.T, s *store.Store) {
			stop := forward(t, s, &peer{answer: func(context.Context, producer.Message) error { return errAway }}, store.ForwardConfig{})
			poll.Until(t, patience, "the letter is tried again", func() bool { return first(t, s).TryError != "" })
			stop()
		}},
		{"a Replay that published nothing", func(t *testing.T, s *store.Store) {
			park(t, s)
			_, err := s.Replay(t.Context(), &peer{answer: func(context.Context, producer.Message) error { return errAway }}, store.Query{All: true}, store.ReplayOptions{})
			must(t, err)
			_, err = s.Release(t.Context(), store.Query{All: true})
			must(t, err)
		}},
		{"Park and Release", func(t *testing.T, s *store.Store) {
			park(t, s)
			_, err := s.Release(t.Context(), store.Query{All: true})
			must(t, err)
		}},
		{"Edit", func(t *testing.T, s *store.Store) {
			number := first(t, s).Number
			poll.Until(t, patience, "the lease ends", func() bool {
				return s.Edit(t.Context(), number, func(m *producer.Message) error { m.Body = []byte("edited"); return nil }) == nil
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, p place) {
				b := theBroker(t, p.dialect)
				q := b.queue(t, nil)
				s := p.store(t, store.Config{})
				_, err := s.PutAt(t.Context(), time.Time{}, producer.Message{RoutingKey: q, ID: "m"})
				must(t, err)
				runChild(t, p.task("stop after a confirm", b.AMQPURL()), 1)
				c.between(t, s)
				poll.Until(t, patience, "Cancel deletes the letter", func() bool {
					n, err := s.Cancel(t.Context(), "m")
					must(t, err)
					if n != 0 {
						t.Fatalf("Cancel: %d, want 0: the message is in its queue", n)
					}
					return len(find(t, s, store.Query{})) == 0
				})
				if got := b.drain(t, q, 1); len(got) != 1 || got["m"] != 1 {
					t.Errorf("%v, want the message once", got)
				}
			})
		})
	}
}
