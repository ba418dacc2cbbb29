package desk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

func TestALookChangesNothingButRedelivered(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(40)...)
		before := w.ids("orders.dlq")
		live := w.live()
		for range 30 {
			list, err := live.Peek(w.Context(), 25)
			must(w.T, err)
			if len(list.Letters) != 25 || list.Total != 40 || list.Seen.Seen != 40 {
				w.Fatalf("%d letters of %d, %d seen", len(list.Letters), list.Total, list.Seen.Seen)
			}
		}
		w.has("orders.dlq", 40)
		if after := w.ids("orders.dlq"); after != before {
			w.Errorf("the order was\n%s\nand is\n%s", before, after)
		}
	})
}

func TestALetterSaysWhatFailed(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(4)...)
		live := w.live()
		list, err := live.List(w.Context(), Filter{Error: "NO STOCK"}, Page{Limit: 1})
		must(w.T, err)
		if list.Matched != 2 || len(list.Letters) != 1 || list.Next != 1 || list.Total != 4 {
			w.Fatalf("%+v", list)
		}
		l := list.Letters[0]
		if l.Queue != "orders" || l.Exchange != "shop" || l.RoutingKey != "order.paid" || l.Cause != rehop.CausePermanent || l.Error != "no stock" ||
			l.Attempts != 1 || l.Framework != ofRehop || l.Failed.IsZero() {
			w.Errorf("%+v", l)
		}
		again, err := live.Letter(w.Context(), l.ID)
		must(w.T, err)
		if !reflect.DeepEqual(again, l) {
			w.Errorf("by its id:\n%+v\nwant\n%+v", again, l)
		}
		if _, err := live.Letter(w.Context(), "other"); !errors.Is(err, ErrNoLetter) {
			w.Errorf("a letter that is not there: %v", err)
		}
		groups, err := live.Groups(w.Context(), Filter{})
		must(w.T, err)
		if len(groups.Groups) != 2 || groups.Groups[0].Count != 2 || groups.Groups[0].Example.Error != "no stock" {
			w.Errorf("groups: %+v", groups)
		}
		if life := l.Life(); len(life) < 2 || !strings.Contains(life[0].What, "published") || life[len(life)-1].What != "given up: permanent after 1 attempt" {
			w.Errorf("life: %+v", life)
		}
	})
}

func TestWhatIsSentGoesToTheQueueThatFailed(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(10)...)
		live := w.live()
		p, err := live.Execute(w.Context(), Redrive{Action: Send, Filter: Filter{Error: "no stock"}, By: By{Who: "me"}}, nil)
		must(w.T, err)
		if p.State != Done || p.Done != 5 || p.Matched != 5 || p.Failed+p.Skipped+p.MaybeDuplicate != 0 {
			w.Errorf("%+v", p)
		}
		w.has("orders.dlq", 5)
		if got := w.ids("orders.dlq"); got != "[m-1 m-3 m-5 m-7 m-9]" {
			w.Errorf("left: %s", got)
		}
		w.has("orders", 5)
		w.consume(5, func(d *consumer.Delivery) error {
			if d.Attempt != 1 || d.Exchange != "shop" || d.RoutingKey != "order.paid" || d.History.Redrives != 1 || d.History.RedriveID != p.Redrive.ID || d.Headers["why"] != "no stock" {
				w.Errorf("attempt %d of %s %s, redrives %d by %q", d.Attempt, d.Exchange, d.RoutingKey, d.History.Redrives, d.History.RedriveID)
			}
			return consumer.DeadLetter(errors.New("still no stock"))
		})
		list, err := live.List(w.Context(), Filter{Error: "still"}, Page{Look: true})
		must(w.T, err)
		if list.Matched != 5 || list.Letters[0].Redrives != 1 || list.Letters[0].RedriveID != p.Redrive.ID {
			w.Errorf("failed again: %+v", list)
		}
		audit, err := w.journal.Audit(10)
		must(w.T, err)
		if len(audit) != 2 || audit[0].Action != "look" || audit[1].By.Who != "me" || audit[1].Count != 5 || audit[1].Action != "send" {
			w.Errorf("audit: %+v", audit)
		}
	})
}

// Each look and each letter that somebody gets has one record, and what is answered from a look
// has none.
func TestLooksAndShownLettersAreInTheAudit(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(6)...)
		l := w.live()
		ctx := WithBy(w.Context(), By{Who: "ada", Why: "a complaint"})
		list, err := l.List(ctx, Filter{}, Page{})
		must(w.T, err)
		_, err = l.List(ctx, Filter{}, Page{})
		must(w.T, err)
		_, err = l.Groups(ctx, Filter{})
		must(w.T, err)
		_, err = l.Letter(ctx, list.Letters[3].ID)
		must(w.T, err)
		_, err = l.Letter(ctx, "none")
		if !errors.Is(err, ErrNoLetter) {
			w.Error(err)
		}
		_, err = l.Peek(w.Context(), 2)
		must(w.T, err)
		audit, err := w.journal.Audit(10)
		must(w.T, err)
		var got []string
		for _, r := range audit {
			got = append(got, fmt.Sprintf("%s by %q: %d %s %s %s", r.Action, r.By.Who, r.Count, r.Source, r.Which, r.Result))
		}
		if want := []string{
			`look by "": 6 queue orders.dlq  done`, fmt.Sprintf(`show by "ada": 1 queue orders.dlq id=%q done`, list.Letters[3].ID), `look by "ada": 6 queue orders.dlq  done`,
		}; !slices.Equal(got, want) {
			w.Errorf("audit: %q, want %q", got, want)
		}
	})
}

func TestExportsAreInTheAudit(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead(orders(4)...)
		me := By{Who: "me", Why: "a look"}
		n, err := w.live().Export(w.Context(), Filter{Error: "no stock"}, 0, io.Discard, me)
		if err != nil || n != 2 {
			w.Errorf("%d: %v", n, err)
		}
		r, end := io.Pipe()
		must(w.T, r.CloseWithError(errors.New("the disk is full")))
		if _, err := w.live().Export(w.Context(), Filter{}, 0, end, me); err == nil {
			w.Error("an export into nothing has no error")
		}
		audit, err := w.journal.Audit(10)
		must(w.T, err)
		if len(audit) != 2 || audit[0].By != me || audit[0].Count != 0 || !strings.Contains(audit[0].Result, "disk is full") ||
			audit[1].By != me || audit[1].Count != 2 || audit[1].Action != "export" || audit[1].Result != "done" {
			w.Errorf("audit: %+v", audit)
		}
	})
}

// A letter that is like one that was sent, with the same message id, is another letter.
func TestTheDuplicateOfALetterThatWasSentStays(t *testing.T) {
	onEach(t, func(w *fixture) {
		const n = 3000 // so many that the first has arrived before the last is seen
		w.dead()
		ch := w.channel()
		for i := range n {
			id, why := fmt.Sprint("m-", i), "no such customer"
			switch i {
			case 0:
				why = "no stock"
			case n - 1:
				id = "m-0"
			}
			must(w.T, ch.Publish("", "orders.dlq", false, false, amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Headers: amqp.Table{
				"x-rehop-queue": "orders", "x-rehop-cause": "exhausted", "x-rehop-error": why, "x-rehop-final-attempts": int64(3),
			}}))
		}
		w.has("orders.dlq", n)
		p, err := w.live().Execute(w.Context(), Redrive{Action: Send, Filter: Filter{Error: "no stock"}}, nil)
		if err != nil || p.Done != 1 || p.Matched != 1 {
			w.Errorf("%v: %+v", err, p)
		}
		w.has("orders", 1)
		w.has("orders.dlq", n-1)
	})
}

// A letter that the filter does not select was not sent by the redrive, whatever a process
// that died has noted of its duplicate.
func TestTheDuplicateOfALetterThatACrashedRedriveSentStays(t *testing.T) {
	l := Letter{Error: "no such customer", Publishing: amqp.Publishing{MessageId: "m-0"}}
	r := &liveRedrive{
		redrive: Redrive{Action: Send, Filter: Filter{Error: "no stock"}}, alike: map[string]int{}, keys: map[string]keys{}, answer: Delete,
		book: &book{past: past{sent: map[string]bool{l.digest(): true}, gone: map[string]bool{}}},
		hand: &hand{session: nil}, // an ack panics
	}
	must(t, r.judge(l, 1))
	if len(r.acked)+len(r.pending) > 0 {
		t.Errorf("acked %v, to be sent %v", r.acked, r.pending)
	}
}

// A letter is another one if any header differs that is the same at each delivery.
func TestADigestIsOfTheWholeLetter(t *testing.T) {
	with := func(add amqp.Table) string {
		p := amqp.Publishing{MessageId: "m-0", UserId: "shop", Body: []byte("{}"), Headers: amqp.Table{"x-rehop-error": "no stock", "at": time.Unix(1_700_000_000, 0)}}
		for name, value := range add {
			p.Headers[name] = value
		}
		l := Letter{Publishing: p}
		digest := l.digest()
		if header.Relay(&l.Publishing, "desk"); l.digest() != digest {
			t.Errorf("%v: another letter, since its user is in a header", add)
		}
		if len(l.Publishing.Headers) != len(p.Headers) || l.Publishing.Headers["x-rehop-user-id"] != "shop" {
			t.Errorf("%v: the headers are %v", add, l.Publishing.Headers)
		}
		return digest
	}
	first := with(nil)
	if with(amqp.Table{"x-delivery-count": int64(3), "x-acquired-count": int64(2)}) != first {
		t.Error("another letter, since it was delivered again")
	}
	for _, other := range []amqp.Table{{"x-rehop-error": "no such customer"}, {"at": time.Unix(1_700_000_001, 0)}, {"x-death": []any{amqp.Table{"count": int64(2)}}}} {
		if with(other) == first {
			t.Errorf("%v: the same letter", other)
		}
	}
}

func TestAGroupBeganWithItsFirstFailure(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	at := func(first, last int) Letter {
		return Letter{Fingerprint: "f", FirstFailed: base.Add(time.Duration(first) * time.Hour), Failed: base.Add(time.Duration(last) * time.Hour)}
	}
	g := groupsOf([]Letter{at(1, 1), at(0, 2)}, Filter{})[0]
	if !g.First.Equal(base.Add(time.Hour)) || !g.Last.Equal(base.Add(2*time.Hour)) {
		t.Errorf("first %v, last %v", g.First, g.Last)
	}
}

func TestAnEmptyFilterIsNoRedrive(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead(orders(2)...)
		if _, err := w.live().Execute(w.Context(), Redrive{Action: Send}, nil); err == nil {
			w.Error("a redrive without a filter was taken")
		}
		for _, f := range []Filter{{IDs: []string{}}, {MessageIDs: []string{}}} {
			p, err := w.live().Execute(w.Context(), Redrive{Action: Send, Filter: f}, nil)
			if err != nil || p.Done != 0 {
				w.Errorf("an empty list selected %d letters: %v", p.Done, err)
			}
		}
		w.has("orders.dlq", 2)
	})
}

func TestLettersStayWhereTheTargetTakesNone(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(30)...)
		before := w.ids("orders.dlq")
		live := w.live()
		p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true, To: &topology.Address{RoutingKey: "missing"}}, nil)
		if !errors.Is(err, ErrTarget) || p.Done != 0 || p.State != Failed {
			w.Errorf("%v: %+v", err, p)
		}
		w.has("orders.dlq", 30)
		if after := w.ids("orders.dlq"); after != before {
			w.Errorf("the order was\n%s\nand is\n%s", before, after)
		}
		ch := w.channel()
		_, err = ch.QueueDeclare("missing", true, false, false, false, amqp.Table{"x-queue-type": "classic", "x-max-length": int64(4), "x-overflow": "reject-publish"})
		must(w.T, err)
		p, err = live.Resume(w.Context(), p.Redrive.ID, By{}, nil)
		if !errors.Is(err, ErrTarget) || p.Done != 4 {
			w.Errorf("a full queue: %v: %+v", err, p)
		}
		w.has("orders.dlq", 26)
		_, err = ch.QueueDelete("missing", false, false, false)
		must(w.T, err)
		_, err = ch.QueueDeclare("missing", true, false, false, false, amqp.Table{"x-queue-type": "classic"})
		must(w.T, err)
		p, err = live.Resume(w.Context(), p.Redrive.ID, By{}, nil)
		if err != nil || p.Done != 30 || p.State != Done {
			w.Errorf("resumed: %v: %+v", err, p)
		}
		w.has("orders.dlq", 0)
		w.has("missing", 26)
	})
}

func (w *fixture) channel() *amqp.Channel {
	conn, err := amqp.DialConfig("amqp://guest:guest@broker", amqp.Config{Dial: dialer(w)})
	must(w.T, err)
	w.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	must(w.T, err)
	return ch
}

// A rate below 1 is a letter in more than a second.
func TestLettersKeepToASlowRate(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead(orders(4)...)
		began := time.Now()
		p, err := w.live().Execute(w.Context(), Redrive{Action: Send, All: true, Rate: 0.4}, nil)
		if took := time.Since(began); err != nil || p.Done != 4 || took < 6*time.Second || took > 30*time.Second {
			w.Errorf("%+v after %v: %v, want 4 letters, each 2.5 s after the one before", p, took, err)
		}
	})
}

func TestWhatComesBackIsNotSentAgain(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(40)...)
		live := w.live()
		sent := make(chan Progress, 1)
		go func() {
			p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true, Rate: 2}, nil)
			if err != nil {
				w.Error(err)
			}
			sent <- p
		}()
		w.consume(40, func(*consumer.Delivery) error { return consumer.DeadLetter(errors.New("again")) })
		if p := <-sent; p.Done != 40 {
			w.Errorf("%+v", p)
		}
		w.has("orders.dlq", 40)
		w.has("orders", 0)
	})
}

func TestTheCanaryThatComesBackEndsTheRedrive(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(10)...)
		sent := make(chan error, 1)
		live := w.live()
		go func() {
			_, err := live.Execute(w.Context(), Redrive{ID: "mine", Action: Send, All: true, Canary: time.Minute}, nil)
			sent <- err
		}()
		w.consume(1, func(*consumer.Delivery) error { return consumer.DeadLetter(errors.New("again")) })
		if err := <-sent; !errors.Is(err, store.ErrCanary) {
			w.Errorf("the canary came back: %v", err)
		}
		w.has("orders.dlq", 10)
		p, err := live.Resume(w.Context(), "mine", By{Who: "ada"}, nil)
		if err != nil || p.Done != 10 || p.Note != "" {
			w.Errorf("resumed: %v, %+v; want 10 sent, and no word of other consumers", err, p)
		}
		w.has("orders.dlq", 1)
		w.has("orders", 9)
	})
}

func TestARedriveIsStoppedAndResumed(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(40)...)
		live := w.live()
		ended := make(chan Progress, 1)
		go func() {
			p, err := live.Execute(w.Context(), Redrive{ID: "mine", Action: Send, All: true, Rate: 4, By: By{Who: "ada"}}, nil)
			if !errors.Is(err, ErrRedriveStopped) {
				w.Errorf("stopped: %v", err)
			}
			ended <- p
		}()
		time.Sleep(5 * time.Second)
		audit, err := w.journal.Audit(10)
		must(w.T, err)
		if len(audit) != 1 || audit[0].By.Who != "ada" || audit[0].Count < 10 || !strings.HasPrefix(audit[0].Result, "running: ") {
			w.Errorf("audit of a redrive that runs: %+v", audit)
		}
		must(w.T, w.journal.Stop("mine", By{Who: "bob"}))
		p := <-ended
		if p.State != Stopped || p.Done < 15 || p.Done > 25 {
			w.Errorf("%+v", p)
		}
		w.has("orders.dlq", 40-p.Done)
		before := p.Done
		p, err = live.Resume(w.Context(), "mine", By{Who: "eve", Why: "mended"}, nil)
		if err != nil || p.State != Done || p.Done != 40 || p.MaybeDuplicate != 0 {
			w.Errorf("%v: %+v", err, p)
		}
		w.has("orders.dlq", 0)
		w.has("orders", 40)
		if _, err := live.Resume(w.Context(), "mine", By{}, nil); err == nil {
			w.Error("a redrive that is done was resumed")
		}
		audit, err = w.journal.Audit(10)
		must(w.T, err)
		var got []string
		for _, r := range audit {
			got = append(got, fmt.Sprint(r.By, " ", r.Action, " ", r.Count, " ", r.Result))
		}
		want := []string{
			fmt.Sprintf("{ada  } send %d stopped: %d sent", before, before), "{bob  } stop 0 asked", fmt.Sprintf("{eve mended } resume %d done: %d sent", 40-before, 40-before),
		}
		slices.Sort(got) // who has stopped it may be written behind the end
		if !slices.Equal(got, want) {
			w.Errorf("audit: %q, want %q", got, want)
		}
	})
}

// A broker that is slow to notice the death of a process gives its letters back late. An
// redrive that goes on waits for them, and does not end as if it had seen them.
func TestLettersThatComeBackLateAreNotForgotten(t *testing.T) {
	for name, late := range map[string]time.Duration{"late": 30 * time.Second, "too late": 2 * backFor} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "4.3", func(w *fixture) {
				w.dead(orders(12)...)
				b, err := w.journal.begin(Redrive{ID: "o-1", Source: "queue orders.dlq", Action: Send, All: true}, nil)
				must(w.T, err)
				must(w.T, errors.Join(b.write(entry{There: 12, Taking: 12}), b.file.Close(), b.release())) // as the end of the process does
				ch := w.channel()                                                                          // still there for the broker
				must(w.T, ch.Qos(9, 0, false))
				_, err = ch.Consume("orders.dlq", "dead", false, false, false, false, nil)
				must(w.T, err)
				time.AfterFunc(late, func() { must(w.T, ch.Close()) })
				p, err := w.live().Resume(w.Context(), "o-1", By{}, nil)
				if name == "late" {
					if err != nil || p.State != Done || p.Done != 12 {
						w.Errorf("%v: %+v", err, p)
					}
					return
				}
				if err == nil || p.State != Failed || p.Done != 3 || !strings.Contains(p.Error, "9 letters in the hands of an earlier process") {
					w.Errorf("%v: %+v", err, p)
				}
				time.Sleep(late)
				p, err = w.live().Resume(w.Context(), "o-1", By{}, nil)
				if err != nil || p.State != Done || p.Done != 12 {
					w.Errorf("after all: %v: %+v", err, p)
				}
				w.has("orders", 12)
			})
		})
	}
}

// A broker may begin to serve a process after its death, when the next one has counted the
// letters already.
func TestLettersThatADeadProcessTakesAreNotForgotten(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead(orders(300)...)
		b, err := w.journal.begin(Redrive{ID: "o-1", Source: "queue orders.dlq", Action: Send, All: true}, nil)
		must(w.T, err)
		must(w.T, errors.Join(b.file.Close(), b.release())) // as the end of the process does
		ch := w.channel()
		must(w.T, ch.Qos(200, 0, false))
		l := w.live()
		l.gap = func(moment string) { // the dead process is before this one
			if moment != "counted" {
				return
			}
			l.gap = nil
			_, err := ch.Consume("orders.dlq", "dead", false, false, false, false, nil)
			must(w.T, err)
			time.AfterFunc(20*time.Second, func() { must(w.T, ch.Close()) })
		}
		p, err := l.Resume(w.Context(), "o-1", By{}, nil)
		if err != nil || p.State != Done || p.Done != 300 {
			w.Errorf("%v: %+v", err, p)
		}
		w.has("orders", 300)
	})
}

// A busy broker pauses between letters that are on their way.
func TestABusyBrokerEndsNoLookAndNoRedrive(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead(orders(40)...)
		w.broker.Slow(4 * time.Second)
		list, err := w.live().Peek(w.Context(), 40)
		if err != nil || len(list.Letters) != 40 {
			w.Errorf("%v: %d letters of %d", err, len(list.Letters), list.Total)
		}
		time.Sleep(time.Minute) // the consumer of the look ends late, too
		p, err := w.live().Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if err != nil || p.Done != 40 || p.Note != "" {
			w.Errorf("%v: %+v", err, p)
		}
		w.broker.Slow(0)
		w.has("orders", 40)
	})
}

func TestDroppedLettersAreInTheFileAndComeBackFromIt(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(10)...)
		live := w.live()
		all, err := live.Peek(w.Context(), 10)
		must(w.T, err)
		file := w.journal.dir + "/dropped.jsonl"
		p, err := live.Execute(w.Context(), Redrive{Action: Drop, Filter: Filter{Error: "no stock"}, CopyTo: file}, nil)
		must(w.T, err)
		if p.Done != 5 {
			w.Errorf("%+v", p)
		}
		w.has("orders.dlq", 5)
		text := readFile(w.T, file)
		done, err := Import(w.Context(), w.conn, bytes.NewReader(text), w.journal, ImportOptions{Queue: "orders.dlq"})
		if err != nil || done != (Imported{Letters: 5, Next: 6}) {
			w.Errorf("%+v: %v", done, err)
		}
		back, err := live.Peek(w.Context(), 10)
		must(w.T, err)
		for i, l := range back.Letters[5:] {
			want := all.Letters[2*i].Publishing
			delete(want.Headers, "x-delivery-count")
			delete(want.Headers, "x-acquired-count")
			delete(l.Publishing.Headers, "x-delivery-count")
			delete(l.Publishing.Headers, "x-acquired-count")
			if !reflect.DeepEqual(l.Publishing, want) {
				w.Errorf("imported\n%+v\nwant\n%+v", l.Publishing, want)
			}
		}
	})
}
