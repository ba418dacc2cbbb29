package desk_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// file opens a store of letters in a file.
func file(ctx context.Context, name string) (*store.Store, func() error, error) {
	db, err := sqlite.Open(name)
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(ctx, db, store.SQLite, store.Config{})
	return s, db.Close, err
}

// collected takes the letters of the queue into a store.
func (r *room) collected(n int) (*store.Store, desk.Keeper, string) {
	r.Helper()
	name := filepath.Join(r.TempDir(), "letters.db")
	s, end, err := file(r.Context(), name)
	must(r.T, err)
	r.Cleanup(func() { must(r.T, end()) })
	r.collect(s, n)
	c, err := desk.NewCollected(s, r.conn, desk.CollectedConfig{Journal: r.journal})
	must(r.T, err)
	return s, c, name
}

func (r *room) collect(s *store.Store, n int) {
	r.Helper()
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	one, err := consumer.New(r.conn, topology.DeadLetterQueue{Name: r.queue, Type: r.kind}, s.Collect, consumer.Config{Concurrency: 16})
	must(r.T, err)
	ended := make(chan error, 1)
	go func() { ended <- one.Run(ctx) }()
	poll.Until(r.T, 3*time.Minute, "all letters are collected", func() bool {
		have, err := s.Count(ctx, store.Query{})
		return err == nil && have == n
	})
	stop()
	must(r.T, <-ended)
}

func TestCollectedLettersAreFoundGroupedAndSent(t *testing.T) {
	onEach(t, func(r *room) {
		const n = 1000
		r.fill(r.queue, n)
		_, c, _ := r.collected(n)
		groups, err := c.Groups(r.Context(), desk.Filter{})
		must(r.T, err)
		if len(groups.Groups) != 2 || groups.Groups[0].Count != n/2 || groups.Total != n {
			r.Errorf("groups: %+v", groups)
		}
		seen := 0
		for page := (desk.Page{Limit: 300}); ; {
			list, err := c.List(r.Context(), desk.Filter{Headers: map[string]string{"x-rehop-error": "no stock"}}, page)
			must(r.T, err)
			for _, l := range list.Letters {
				if l.Error != "no stock" || l.Queue != r.work || l.Exchange != "shop" || l.RoutingKey != "order.paid" || l.Attempts != 5 || l.State != "held" {
					r.Fatalf("%+v", l)
				}
			}
			seen += len(list.Letters)
			if page.After = list.Next; page.After == 0 {
				break
			}
		}
		if seen != n/2 {
			r.Errorf("%d letters in pages, want %d", seen, n/2)
		}
		p, err := c.Execute(r.Context(), desk.Redrive{Action: desk.Send, Filter: desk.Filter{Error: "NO STOCK"}}, nil)
		if err != nil || p.Done != n/2 || p.MaybeDuplicate+p.Failed != 0 {
			r.Errorf("%v: %+v", err, p)
		}
		r.has(r.work, n/2)
		for i, d := range r.drain(r.work) {
			h := d.Headers
			if d.MessageId != id(2*i) && i == 0 || h["x-rehop-exchange"] != "shop" || h["x-rehop-routing-key"] != "order.paid" || h["x-rehop-redrives"] != int64(1) ||
				h["x-rehop-redrive-id"] != p.Redrive.ID || h["x-rehop-queue"] != nil || h["x-rehop-error"] != nil || h["x-rehop-replays"] != int64(1) {
				r.Fatalf("sent %d: %s %v", i, d.MessageId, h)
			}
		}
		left, err := c.List(r.Context(), desk.Filter{}, desk.Page{Limit: 1})
		must(r.T, err)
		if left.Matched != n/2 {
			r.Errorf("%d letters are left", left.Matched)
		}
	})
}

// A watch that was cut off is no canary that has passed.
func TestACanaryOfCollectedLettersIsWatchedAgain(t *testing.T) {
	onNewest(t, func(r *room) {
		const n = 10
		r.fill(r.queue, n)
		s, c, _ := r.collected(n)
		stopped := make(chan error, 1)
		go func() {
			_, err := c.Execute(r.Context(), desk.Redrive{ID: "watched", Action: desk.Send, All: true, Canary: time.Hour}, nil)
			stopped <- err
		}()
		r.has(r.work, 1)
		poll.Until(r.T, time.Minute, "the canary is noted", func() bool {
			p, err := r.journal.Redrive("watched")
			return err == nil && p.LastID != ""
		})
		must(r.T, r.journal.Stop("watched", desk.By{Who: "bob"}))
		if err := <-stopped; !errors.Is(err, desk.ErrRedriveStopped) {
			r.Errorf("stopped: %v", err)
		}
		resumed := make(chan error, 1)
		go func() {
			_, err := c.Resume(r.Context(), "watched", desk.By{Who: "ada"}, nil)
			resumed <- err
		}()
		d := r.drain(r.work)[0] // it fails again
		headers := d.Headers
		headers["x-rehop-queue"], headers["x-rehop-cause"], headers["x-rehop-final-attempts"] = r.work, "exhausted", int64(5)
		must(r.T, r.channel().Publish("", r.queue, false, false, amqp.Publishing{MessageId: d.MessageId, Headers: headers, Body: d.Body, DeliveryMode: amqp.Persistent}))
		r.collect(s, n)
		if err := <-resumed; !errors.Is(err, store.ErrCanary) {
			r.Errorf("%v, want that the canary came back", err)
		}
		r.has(r.work, 0)
		p, err := c.Resume(r.Context(), "watched", desk.By{Who: "ada"}, nil)
		if left, errCount := s.Count(r.Context(), store.Query{}); err != nil || errCount != nil || p.Done != n || left != 1 {
			r.Errorf("%v, %v: %+v, %d left; want %d sent, and the canary left", err, errCount, p, left, n)
		}
	})
}

func TestCollectedLettersAreKeptEditedAndDropped(t *testing.T) {
	onEach(t, func(r *room) {
		const n = 20
		r.fill(r.queue, n)
		s, c, _ := r.collected(n)
		by := desk.By{Who: "me", Why: "a test"}
		parked, err := c.Park(r.Context(), desk.Filter{Error: "no stock"}, by)
		if err != nil || parked != n/2 {
			r.Errorf("%d parked: %v", parked, err)
		}
		archived, err := c.Archive(r.Context(), desk.Filter{States: []string{"parked"}}, by)
		if err != nil || archived != n/2 {
			r.Errorf("%d archived: %v", archived, err)
		}
		list, err := c.List(r.Context(), desk.Filter{}, desk.Page{})
		must(r.T, err)
		if list.Matched != n/2 {
			r.Errorf("%d wait for a person", list.Matched)
		}
		first := list.Letters[0]
		body := []byte("mended")
		must(r.T, c.Edit(r.Context(), first.ID, desk.Edit{Body: &body, Set: map[string]string{"tenant": "acme"}}, by))
		original, err := os.ReadFile(filepath.Join(r.folder, "originals.jsonl"))
		must(r.T, err)
		if !bytes.Contains(original, first.Publishing.Body) {
			r.Errorf("the original is not kept: %s", original)
		}
		p, err := c.Execute(r.Context(), desk.Redrive{Action: desk.Send, Filter: desk.Filter{IDs: []string{first.ID}}}, nil)
		if err != nil || p.Done != 1 {
			r.Errorf("%v: %+v", err, p)
		}
		r.has(r.work, 1)
		if d := r.drain(r.work)[0]; string(d.Body) != "mended" || d.Headers["tenant"] != "acme" || d.MessageId != first.Publishing.MessageId {
			r.Errorf("sent: %s %v", d.Body, d.Headers)
		}
		dropped := filepath.Join(r.folder, "dropped.jsonl")
		p, err = c.Execute(r.Context(), desk.Redrive{Action: desk.Drop, All: true, CopyTo: dropped}, nil)
		if err != nil || p.Done != n/2-1 {
			r.Errorf("%v: %+v", err, p)
		}
		if left, err := s.Count(r.Context(), store.Query{States: []store.State{store.Held}}); err != nil || left != 0 {
			r.Errorf("%d held: %v", left, err)
		}
		lines, err := os.Open(dropped)
		must(r.T, err)
		defer lines.Close()
		back, err := desk.Import(r.Context(), r.conn, lines, r.journal, desk.ImportOptions{Queue: r.queue})
		if err != nil || back.Letters != n/2-1 || back.Next != n/2 {
			r.Errorf("%+v: %v", back, err)
		}
		r.has(r.queue, n/2-1)
		audit, err := r.journal.Audit(10)
		must(r.T, err)
		var actions []string
		for _, a := range audit {
			actions = append(actions, fmt.Sprint(a.Action, " ", a.Count))
		}
		if fmt.Sprint(actions) != "[import 9 drop 9 send 1 edit 1 show 1 archive 10 park 10]" {
			r.Errorf("audit: %v", actions)
		}
	})
}

func TestLettersOfOtherFrameworks(t *testing.T) {
	onEach(t, func(r *room) {
		ch := r.channel()
		for name, headers := range map[string]amqp.Table{
			"spring-amqp": {
				"x-exception-message": "no stock", "x-exception-stacktrace": "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: failed\n\tat shop.Orders.handle(Orders.java:12)\nCaused by: shop.NoStock: no stock\n\tat shop.Stock.take(Stock.java:7)",
				"x-original-exchange": "", "x-original-routingKey": r.work, "tenant": "acme",
			},
			"nservicebus": {
				"NServiceBus.ExceptionInfo.ExceptionType": "Shop.NoStock", "NServiceBus.ExceptionInfo.Message": "no stock", "NServiceBus.ExceptionInfo.StackTrace": "at Shop.Orders.Handle()",
				"NServiceBus.FailedQ": r.work, "NServiceBus.TimeOfFailure": "2026-11-11 02:26:58:000462 Z", "NServiceBus.ProcessingMachine": "web-1", "tenant": "acme",
			},
			"masstransit": {
				"MT-Reason": "fault", "MT-Fault-ExceptionType": "Shop.NoStock", "MT-Fault-Message": "no stock", "MT-Fault-StackTrace": "at Shop.Orders.Consume()",
				"MT-Fault-Timestamp": "2026-11-11T02:26:58.0004620Z", "MT-Fault-InputAddress": "rabbitmq://localhost/" + r.work, "MT-Fault-RetryCount": "2", "tenant": "acme",
			},
			"": {"tenant": "acme"},
		} {
			must(r.T, ch.Publish("", r.queue, false, false, amqp.Publishing{MessageId: "m-" + name, Headers: headers, DeliveryMode: amqp.Persistent, Body: []byte("{}")}))
		}
		r.has(r.queue, 4)
		list, err := r.live().Peek(r.Context(), 10)
		must(r.T, err)
		for _, l := range list.Letters {
			switch {
			case l.Framework == "":
				if l.Cause != "" || l.Error != "" {
					r.Errorf("a letter without a word: %+v", l)
				}
				if _, known := l.Target(); known {
					r.Error("a letter without a word has a target")
				}
			case l.Error != "no stock" || l.Stack == "" || l.ErrorType == "" || l.Cause != "exhausted":
				r.Errorf("%s: %+v", l.Framework, l)
			default:
				if to, known := l.Target(); !known || to.RoutingKey != r.work || to.Exchange != "" {
					r.Errorf("%s: to %+v", l.Framework, to)
				}
			}
		}
		p, err := r.live().Execute(r.Context(), desk.Redrive{Action: desk.Send, All: true}, nil)
		if err != nil || p.Done != 3 || p.Skipped != 1 {
			r.Errorf("%v: %+v", err, p)
		}
		r.has(r.work, 3)
		r.has(r.queue, 1)
		for _, d := range r.drain(r.work) {
			if d.Headers["tenant"] != "acme" || d.Headers["x-rehop-redrives"] != int64(1) {
				r.Errorf("%s: %v", d.MessageId, d.Headers)
			}
			for name := range d.Headers {
				if name != "tenant" && name != "x-delivery-count" && name != "x-rehop-redrives" && name != "x-rehop-redrive-id" {
					r.Errorf("%s was sent with %s", d.MessageId, name)
				}
			}
		}
		p, err = r.live().Execute(r.Context(), desk.Redrive{Action: desk.Send, All: true, To: &topology.Address{RoutingKey: r.work}}, nil)
		if err != nil || p.Done != 1 {
			r.Errorf("with a target: %v: %+v", err, p)
		}
	})
}

// collectedWork is what a child does with a store.
func collectedWork(ctx context.Context, conn *connection.Conn, journal *desk.Journal, t task) (desk.Source, error) {
	s, _, err := file(ctx, t.Store)
	if err != nil {
		return nil, err
	}
	return desk.NewCollected(s, conn, desk.CollectedConfig{Journal: journal})
}

// TestADeskOnAStoreThatIsKilledLosesNothing is TestADeskThatIsKilledLosesNothing with
// collected letters. On classic queues the redrive has a bound, which it does not reach
// before the last process goes on with it: no letter that was sent may stay in the store.
func TestADeskOnAStoreThatIsKilledLosesNothing(t *testing.T) {
	onNewest(t, func(r *room) {
		const n = 3000
		limit := 0
		if r.kind == topology.Classic {
			limit = n - 100
		}
		r.fill(r.queue, n)
		s, c, name := r.collected(n)
		kills := 0
		for begun := false; kills < 5; kills++ {
			running := make(chan struct{}, 1)
			p := child.Start(r.T, task{URL: r.broker.AMQPURL(), Journal: r.folder, Redrive: "killed", Resume: begun, Rate: 1500, Limit: limit, Store: name}, func(_ *child.Process, _ event) {
				select {
				case running <- struct{}{}:
				default:
				}
			})
			select {
			case <-running:
			case <-time.After(30 * time.Second):
				r.Fatal("the child does not begin")
			}
			<-time.After(time.Duration(50+rand.IntN(300)) * time.Millisecond)
			p.Kill()
			must(r.T, p.Wait())
			if !begun {
				_, err := r.journal.Redrive("killed")
				begun = err == nil
			}
		}
		p, err := c.Resume(r.Context(), "killed", desk.By{}, nil) // waits for letters that a killed process has leased
		must(r.T, err)
		r.Logf("%d kills; %s", kills, p)
		got := map[string]int{}
		for _, d := range r.drain(r.work) {
			got[d.MessageId]++
		}
		left, _, err := s.Find(r.Context(), store.Query{Limit: 1000})
		must(r.T, err)
		if want := n - cmp.Or(limit, n); len(left) != want || p.Done != n-want {
			r.Errorf("%d letters are left and %d done, want %d and %d", len(left), p.Done, want, n-want)
		}
		for _, l := range left {
			got[l.Message.ID]++ // a letter that is in both places would be sent again
		}
		r.eachOnce(got, n, p.MaybeDuplicate)
	})
}

// keepWaiting changes collected letters, for which it waits until it is killed: another
// transaction holds the database.
func keepWaiting(ctx context.Context, k desk.Keeper, t task) error {
	db, err := sqlite.Open(t.Store)
	if err != nil {
		return err
	}
	busy, err := db.Begin()
	if err != nil {
		return err
	}
	if _, err := busy.Exec("UPDATE rehop_letters SET state = state"); err != nil {
		return err
	}
	by, f := desk.By{Who: "ada"}, desk.Filter{Error: "no stock"}
	switch t.Do {
	case "park":
		_, err = k.Park(ctx, f, by)
	case "archive":
		_, err = k.Archive(ctx, f, by)
	case "release":
		_, err = k.Release(ctx, f, by)
	case "edit":
		body := []byte("edited")
		err = k.Edit(ctx, "1", desk.Edit{Body: &body}, by)
	}
	return err
}

// TestAChangeThatIsKilledIsInTheAudit kills the process of a change.
func TestAChangeThatIsKilledIsInTheAudit(t *testing.T) {
	onNewest(t, func(r *room) {
		r.fill(r.queue, 10)
		_, c, name := r.collected(10)
		for _, do := range []string{"park", "archive", "release", "edit"} {
			p := child.Start(r.T, task{URL: r.broker.AMQPURL(), Journal: r.folder, Store: name, Do: do}, func(*child.Process, event) {})
			last := func() desk.Record {
				audit, err := r.journal.Audit(1)
				must(r.T, err)
				if len(audit) == 0 {
					return desk.Record{}
				}
				return audit[0]
			}
			poll.Until(r.T, 30*time.Second, do+" has begun", func() bool { return last().Action == do })
			if a := last(); !a.Unfinished || a.By.Who != "ada" || a.Result != "running: how many letters are done is not known" {
				r.Errorf("%s that runs: %+v", do, a)
			}
			p.Kill()
			must(r.T, p.Wait())
			if a := last(); !a.Unfinished || a.Count != 0 || a.Result != "cut off: how many letters are done is not known" {
				r.Errorf("%s that was killed: %+v", do, a)
			}
		}
		if n, err := c.Park(r.Context(), desk.Filter{Error: "no stock"}, desk.By{}); err != nil || n != 5 {
			r.Errorf("%d parked after all: %v", n, err)
		}
	})
}

// A bound for the number of letters holds for a redrive as a whole, and its progress
// counts what it did before a stop.
func TestALimitHoldsOverAStop(t *testing.T) {
	onNewest(t, func(r *room) {
		for _, action := range []desk.Action{desk.Send, desk.Drop} {
			r.Run(string(action), func(t *testing.T) {
				const n, limit = 3000, 1500
				r := enter(t, r.broker, r.version, r.kind)
				r.fill(r.queue, n)
				s, c, _ := r.collected(n)
				o := desk.Redrive{ID: "bounded", Action: action, All: true, Limit: limit, Rate: 1000}
				if action == desk.Drop {
					o.CopyTo = filepath.Join(r.TempDir(), "dropped.jsonl")
				}
				ctx, stop := context.WithCancel(r.Context())
				defer stop()
				p, err := c.Execute(ctx, o, func(p desk.Progress) {
					if p.Done >= 400 {
						stop()
					}
				})
				if !errors.Is(err, desk.ErrRedriveStopped) || p.Done < 400 || p.Done >= limit {
					r.Fatalf("%v: %+v, want it stopped before its bound", err, p)
				}
				p, err = c.Resume(r.Context(), "bounded", desk.By{}, nil)
				if err != nil || p.Done != limit {
					r.Errorf("resumed: %v: %+v, want %d done", err, p, limit)
				}
				left, err := s.Count(r.Context(), store.Query{})
				if err != nil || left != n-limit {
					r.Errorf("%d letters are left: %v, want %d", left, err, n-limit)
				}
			})
		}
	})
}

// Letters whose confirm is in the journal, and which a process that died left in the
// store, are deleted and not sent again. They count once.
func TestWhatWasSentBeforeACrashCountsOnce(t *testing.T) {
	onNewest(t, func(r *room) {
		const n = 1000
		for _, tt := range []struct {
			limit    int
			nameless bool // letters that are all alike, without message ids
		}{{}, {limit: 700}, {nameless: true}} {
			limit := tt.limit
			r.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
				r := enter(t, r.broker, r.version, r.kind)
				if tt.nameless {
					r.fillNameless(r.queue, n)
				} else {
					r.fill(r.queue, n)
				}
				_, c, _ := r.collected(n)
				if tt.nameless {
					r.fillNameless(r.queue, n)
				} else {
					numbers := make([]int, n)
					for i := range numbers {
						numbers[i] = n - 1 - i // letters that were sent are behind the ones that were not
					}
					r.fillWith(r.queue, numbers)
				}
				s, other, _ := r.collected(n) // as the store is if nothing was deleted from it
				ctx, stop := context.WithCancel(r.Context())
				defer stop()
				o := desk.Redrive{ID: "crashed", Action: desk.Send, All: true, Rate: 300, Limit: limit}
				p, err := c.Execute(ctx, o, func(p desk.Progress) {
					if p.Done >= 300 {
						stop()
					}
				})
				if !errors.Is(err, desk.ErrRedriveStopped) {
					r.Fatalf("%v: %+v", err, p)
				}
				file := filepath.Join(r.folder, "redrives", "crashed.jsonl")
				text, err := os.ReadFile(file)
				must(t, err)
				var kept []byte
				for line := range bytes.Lines(text) {
					if !bytes.Contains(line, []byte(`"gone"`)) {
						kept = append(kept, line...)
					}
				}
				must(t, os.WriteFile(file, kept, 0o600))
				p, err = other.Resume(r.Context(), "crashed", desk.By{}, nil)
				want := cmp.Or(limit, n)
				if err != nil || p.Done != want {
					r.Errorf("resumed: %v: %+v, want %d done", err, p, want)
				}
				left, err := s.Count(r.Context(), store.Query{})
				if err != nil || left != n-want {
					r.Errorf("%d letters are left: %v, want %d", left, err, n-want)
				}
				r.has(r.work, want)
			})
		}
	})
}

// A redrive takes the letters that are there when it begins, and drops none in another
// form than its copy has.
func TestADropIsOfWhatItHasCopied(t *testing.T) {
	onNewest(t, func(r *room) {
		const n, later = 1200, 50
		r.fill(r.queue, n)
		s, c, _ := r.collected(n)
		letters, _, err := s.Find(r.Context(), store.Query{Limit: n})
		must(r.T, err)
		editing, stop := context.WithCancel(r.Context())
		defer stop()
		edited := make(chan map[string]int)
		go func() {
			counts := map[string]int{}
			for editing.Err() == nil {
				one := letters[rand.IntN(n)]
				if s.Edit(r.Context(), one.Number, func(m *producer.Message) error { m.Body = fmt.Append(nil, counts[m.ID]+1); return nil }) == nil {
					counts[one.Message.ID]++
				}
			}
			edited <- counts
		}()
		added := false
		dropped := filepath.Join(r.TempDir(), "dropped.jsonl")
		p, err := c.Execute(r.Context(), desk.Redrive{Action: desk.Drop, All: true, CopyTo: dropped}, func(desk.Progress) {
			if !added {
				added = true
				have, err := s.Count(r.Context(), store.Query{})
				must(r.T, err)
				ch := r.channel()
				for i := range later {
					must(r.T, ch.Publish("", r.queue, false, false, amqp.Publishing{
						MessageId: fmt.Sprint("later-", i), DeliveryMode: amqp.Persistent, Headers: amqp.Table{"x-rehop-queue": r.work, "x-rehop-cause": "exhausted"},
					}))
				}
				r.collect(s, have+later)
			}
		})
		stop()
		counts := <-edited
		must(r.T, err)
		r.Logf("%d letters edited; %s", len(counts), p)
		text, err := os.ReadFile(dropped)
		must(r.T, err)
		copied := map[string]string{}
		for line := range bytes.Lines(text) {
			var one struct {
				Properties struct {
					ID string `json:"message_id"`
				}
				Body string
			}
			must(r.T, json.Unmarshal(line, &one))
			copied[one.Properties.ID] = one.Body
		}
		left, err := s.Count(r.Context(), store.Query{})
		if err != nil || left != n+later-p.Done || p.Done+p.Skipped != p.Matched {
			r.Errorf("%d letters are left: %v: %+v", left, err, p)
		}
		for _, l := range letters {
			still, _, err := s.Find(r.Context(), store.Query{Numbers: []int64{l.Number}})
			must(r.T, err)
			if k := counts[l.Message.ID]; len(still) == 0 && k > 0 && copied[l.Message.ID] != fmt.Sprint(k) {
				r.Errorf("%s is gone with body %d; its copy has %.20q", l.Message.ID, k, copied[l.Message.ID])
			}
		}
		if late, err := s.Count(r.Context(), store.Query{From: p.Redrive.Created.Add(time.Millisecond)}); err != nil || late != later {
			r.Errorf("%d of %d letters are left that came meanwhile: %v", late, later, err)
		}
	})
}
