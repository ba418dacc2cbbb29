package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

// like is a letter of which a queue may have several that nothing tells apart.
func like(id string) amqp.Publishing {
	return amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Headers: amqp.Table{
		"x-rehop-queue": "orders", "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(3),
	}}
}

// A process has sent a letter, its queue has let go of the letter, and the process dies. A
// like of the letter was behind it, and somebody has looked at the queue since.
func TestTheLikeOfALetterThatWasSentStays(t *testing.T) {
	for _, tt := range []struct {
		answer             Answer
		left, sent, doubts int
	}{
		{"", 1, 0, 1},
		{Again, 0, 1, 0},
		{Delete, 0, 0, 0},
	} {
		for _, id := range []string{"m-0", ""} {
			t.Run(fmt.Sprintf("id %q, answer %q", id, tt.answer), func(t *testing.T) {
				onEach(t, func(w *fixture) {
					w.dead()
					must(w.T, w.channel().Publish("", "orders.dlq", false, false, like(id)))
					w.has("orders.dlq", 1)
					list, err := w.live().Peek(w.Context(), 1)
					must(w.T, err)
					key := list.Letters[0].digest()
					b, err := w.journal.begin(Redrive{ID: "o-1", Source: "queue orders.dlq", Action: Send, All: true}, nil)
					must(w.T, err)
					must(w.T, errors.Join(b.write(entry{Try: []string{key}}), b.write(entry{Sent: []string{key}}), b.file.Close(), b.release())) // as the end of the process does
					p, err := w.live().Resume(w.Context(), "o-1", By{}, nil)
					if name := strconv.Quote(cmp.Or(id, list.Letters[0].ID)); err != nil || p.State != Done || p.Done != 1 || p.MaybeSent != 1 || !p.Resumable() || !strings.Contains(p.Note, name) {
						w.Errorf("%v: %+v, want 1 in doubt, and a note of %s", err, p, name)
					}
					if tt.answer != "" { // and somebody stops it before it comes to the letter
						stopping := w.live()
						stopping.gap = func(moment string) {
							if moment == "counted" {
								must(w.T, w.journal.Stop("o-1", By{}))
							}
						}
						p, err = stopping.Resume(w.Context(), "o-1", By{MaybeSent: tt.answer}, nil)
						if !errors.Is(err, ErrRedriveStopped) || p.Deleted != 0 || p.Done != 1 {
							w.Errorf("%v: %+v, want it stopped before the letter is deleted or sent", err, p)
						}
						w.has("orders.dlq", 1)
					}
					p, err = w.live().Resume(w.Context(), "o-1", By{Who: "ada", MaybeSent: tt.answer}, nil)
					if err != nil || p.Done != 1+tt.sent || p.MaybeDuplicate != tt.sent || p.MaybeSent != tt.doubts || p.Resumable() != (tt.doubts > 0) {
						w.Errorf("%v: %+v, want %d more sent and %d in doubt", err, p, tt.sent, tt.doubts)
					}
					w.has("orders.dlq", tt.left)
					w.has("orders", tt.sent)
					deleted := 0
					if tt.answer == Delete {
						deleted = 1
					}
					audit, err := w.journal.Audit(1)
					if err != nil || p.Deleted != deleted || audit[0].Count != tt.sent+deleted || deleted == 1 && !strings.Contains(audit[0].Result, "1 deleted as sent before") {
						w.Errorf("%v: %+v, and %+v in the audit, want %d deleted", err, p, audit, deleted)
					}
				})
			})
		}
	}
}

// Of two equal letters one was sent. The other one is in doubt for it, and is not missed too: neither while it stays, nor
// once it is sent again.
func TestALetterInDoubtIsNotMissed(t *testing.T) {
	for _, tt := range []struct {
		rule         string
		answer       Answer
		refuse       bool // the work queue refuses
		done, failed int
		missed       bool
	}{
		{"it stays", "", false, 1, 0, false},
		{"it is sent again", Again, false, 2, 0, false},
		{"it is sent again in vain", Again, true, 1, 1, false},
		{"it is deleted as the letter that was sent: the other one is missed", Delete, false, 1, 0, true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onEach(t, func(w *fixture) {
				w.dead()
				must(w.T, w.channel().Publish("", "orders.dlq", false, false, like("m-0")))
				w.has("orders.dlq", 1)
				list, err := w.live().Peek(w.Context(), 1)
				must(w.T, err)
				key := list.Letters[0].digest()
				b, err := w.journal.begin(Redrive{ID: "o-1", Source: "queue orders.dlq", Action: Send, All: true}, nil)
				must(w.T, err)
				must(w.T, errors.Join(b.write(entry{Seen: []string{key, key}, Try: []string{key}}), b.write(entry{Sent: []string{key}}), b.file.Close(), b.release()))
				w.broker.Refuse("orders", tt.refuse)
				p, err := w.live().Resume(w.Context(), "o-1", By{Who: "ada", MaybeSent: tt.answer}, nil)
				if err != nil || p.Done != tt.done || p.Failed != tt.failed || strings.Contains(p.Note, "did not come") != tt.missed {
					w.Errorf("%v: %+v, want %d sent, %d failed and, that one did not come, %v", err, p, tt.done, tt.failed, tt.missed)
				}
			})
		})
	}
}

func TestADecisionThatIsNoneIsRefused(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead(orders(1)...)
		if _, err := w.live().Execute(w.Context(), Redrive{Action: Send, All: true, By: By{MaybeSent: Again}}, nil); err == nil || !strings.Contains(err.Error(), "By.MaybeSent") {
			w.Errorf("a redrive that has begun nothing: %v", err)
		}
		_, err := w.live().Execute(w.Context(), Redrive{ID: "o-1", Action: Send, All: true, To: address("nowhere")}, nil)
		must(w.T, err)
		if _, err := w.live().Resume(w.Context(), "o-1", By{MaybeSent: "perhaps"}, nil); err == nil || !strings.Contains(err.Error(), `"perhaps"`) {
			w.Errorf("another word: %v", err)
		}
	})
}

// mortal is a process with a redrive that dies, or whose connection is lost, between two steps.
type mortal struct {
	journal *Journal
	live    *Live
	conn    *connection.Conn
	deaf    atomic.Bool // what it writes to the broker is lost
	died    atomic.Bool
	mu      sync.Mutex
	sockets []net.Conn
	synced  map[string]int64
}

// deafConn loses what is written to it.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

// Write is that of net.Conn.
func (d deafConn) Write(p []byte) (int, error) {
	if d.deaf.Load() {
		return len(p), nil
	}
	return d.Conn.Write(p)
}

func newMortal(w *fixture, dir string) *mortal {
	m := &mortal{synced: map[string]int64{}}
	var err error
	m.conn, err = connection.Open(w.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Logger: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if m.died.Load() {
				return nil, errors.New("the process is dead")
			}
			c, err := w.broker.Dial(ctx, network, address)
			if err == nil {
				m.mu.Lock()
				m.sockets = append(m.sockets, c)
				m.mu.Unlock()
			}
			return deafConn{c, &m.deaf}, err
		}})
	must(w.T, err)
	m.journal, err = OpenJournal(dir)
	must(w.T, err)
	m.journal.sync = func(f *os.File) error {
		info, err := f.Stat()
		if err == nil {
			m.synced[f.Name()] = info.Size()
		}
		return err
	}
	m.live, err = NewLive(m.conn, "orders.dlq", LiveConfig{Journal: m.journal})
	must(w.T, err)
	return m
}

// run begins a redrive or goes on with it, and ends as its process does: dead reports
// that it was killed at the nth moment between two steps. Its last acks may not have reached
// the broker.
func (m *mortal) run(w *fixture, by By, loseAcks bool, nth int) (p Progress, err error, dead bool) {
	n := 0
	m.live.gap = func(moment string) {
		if n++; n == nth-1 && moment == "noted" && loseAcks {
			m.deaf.Store(true)
		}
		if n == nth {
			m.died.Store(true)
			m.mu.Lock()
			for _, c := range m.sockets {
				_ = c.Close()
			}
			m.mu.Unlock()
			runtime.Goexit()
		}
	}
	dead = true
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, unknown := m.journal.Redrive("o-1"); unknown != nil {
			p, err = m.live.Execute(w.Context(), Redrive{ID: "o-1", Action: Send, All: true}, nil)
		} else {
			p, err = m.live.Resume(w.Context(), "o-1", by, nil)
		}
		dead = false
	}()
	<-ended
	_ = m.conn.Close()
	if dead {
		must(w.T, os.Remove(filepath.Join(m.journal.dir, "redrives", "o-1.lock"))) // as the end of the process does
	}
	return p, err, dead
}

// powerCut loses what was not synced.
func (m *mortal) powerCut(t *testing.T) {
	for name, size := range m.synced {
		must(t, os.Truncate(name, size))
	}
}

// Letters of which some are alike are sent by processes that die at any moment, some of them with
// the power of their machine, while others look at the queue, and while further letters
// come that are like the first. No letter is lost, and what is there more than once was counted.
func TestNoLetterIsLostWhereverProcessesDie(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dir, others := t.TempDir(), t.TempDir()
			inBubble(t, versions[seed%len(versions)], func(w *fixture) { dieAnywhere(w, rand.New(rand.NewPCG(uint64(seed), 8)), dir, others) })
		})
	}
}

func dieAnywhere(w *fixture, r *rand.Rand, dir, others string) {
	w.dead()
	ch := w.channel()
	published := map[string]int{}
	publish := func(n int) {
		for range n {
			id := ""
			if r.IntN(3) > 0 {
				id = fmt.Sprint("m-", r.IntN(6))
			}
			published[id]++
			must(w.T, ch.Publish("", "orders.dlq", false, false, like(id)))
		}
		synctest.Wait()
	}
	everything := func() (got map[string]int, all int) {
		got = map[string]int{}
		synctest.Wait()
		for _, queue := range []string{"orders.dlq", "orders"} {
			q, _ := w.broker.Queue(queue)
			for _, m := range append(q.Ready, q.Unacked...) {
				got[m.MessageId]++
				all++
			}
		}
		return got, all
	}
	isThere := func(p Progress, may int) {
		got, all := everything()
		n := 0
		for id, want := range published {
			if n += want; got[id] < want {
				w.Errorf("%d of %d letters %q are lost: %s", want-got[id], want, id, p)
			}
		}
		if all > n+may {
			w.Errorf("%d letters are there of %d, %d more may be: %s", all, n, may, p)
		}
	}
	publish(2 + r.IntN(12))
	var p Progress
	var err error
	processes := 0 // each may double a letter once more
	for dead := true; dead; processes++ {
		m := newMortal(w, dir)
		m.live.inFlight = 1 + r.IntN(5)
		nth := 0
		if processes < 6 {
			nth = 1 + r.IntN(25)
		}
		p, err, dead = m.run(w, By{}, r.IntN(2) == 0, nth)
		if dead && r.IntN(2) == 0 {
			m.powerCut(w.T)
		}
		if r.IntN(2) == 0 {
			publish(r.IntN(3))
		}
		if r.IntN(2) == 0 {
			j, err := OpenJournal(others)
			must(w.T, err)
			l, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: j})
			must(w.T, err)
			if _, err = l.Export(w.Context(), Filter{}, 0, io.Discard, By{}); err != nil {
				w.Errorf("a look: %v", err)
			}
		}
	}
	if err != nil {
		w.Errorf("%v: %+v", err, p)
	}
	isThere(p, p.MaybeDuplicate*processes+p.MaybeSent)
	if p.MaybeSent == 0 {
		return
	}
	m := newMortal(w, dir)
	if p, err, _ = m.run(w, By{MaybeSent: Again}, false, 0); err != nil || p.MaybeSent > 0 {
		w.Errorf("again: %v: %+v", err, p)
	}
	isThere(p, p.MaybeDuplicate*(processes+1))
}

// doubtful makes letters like those that a process has sent which died before it knew that the queue had let go of them.
func doubtful(w *fixture, r Redrive, queue string, n int) *Live {
	w.Helper()
	live := deadBills(w, false, nil).(*Live)
	ch := w.channel()
	for i := range n {
		must(w.T, ch.Publish("", "bills.dlq", false, false, amqp.Publishing{MessageId: []string{"", fmt.Sprint("d-", i)}[i%2], Body: fmt.Append(nil, i), DeliveryMode: amqp.Persistent,
			Headers: amqp.Table{"x-rehop-queue": queue, "x-rehop-cause": "exhausted"}}))
	}
	w.has("bills.dlq", n)
	var keys []string
	if n > 0 {
		list, err := live.Peek(w.Context(), n)
		must(w.T, err)
		for _, l := range list.Letters {
			keys = append(keys, l.digest())
		}
	}
	r.Source = live.About().Name
	b, err := w.journal.begin(r, nil)
	must(w.T, err)
	must(w.T, errors.Join(b.write(entry{Try: keys}), b.write(entry{Sent: keys}), b.file.Close(), b.release()))
	return live
}

// A person has letters sent again that may have been sent, and their queue takes none. Those that are not tried stay
// as they were: perhaps sent, and not tried.
func TestLettersThatAreNotSentAgainStayPerhapsSent(t *testing.T) {
	for _, limit := range []int{0, 15, 20} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			inBubble(t, "4.3", func(w *fixture) {
				live := doubtful(w, Redrive{ID: "mine", Action: Send, All: true, Limit: limit}, "bills.07", 15)
				p, err := live.Resume(w.Context(), "mine", By{MaybeSent: Again}, nil)
				tried := failuresInARow
				if limit > 0 {
					tried = min(tried, max(limit-15, 0))
				}
				if (err != nil) != (tried == failuresInARow) || p.Done != 15 || p.Failed != tried || p.MaybeSent != 15-tried || p.MaybeDuplicate != 0 {
					w.Errorf("%v: %+v, want %d tried and the others perhaps sent", err, p, tried)
				}
				past, err := w.journal.history("mine")
				if err != nil || past.undeleted() != 15-tried || past.unanswered() != tried {
					w.Errorf("%v: the journal has %d perhaps sent and %d tried, want %d tried", err, past.undeleted(), past.unanswered(), tried)
				}
				w.has("bills.dlq", 15)
				must(w.T, topology.Declare(w.Context(), w.conn, topology.Shards{Name: "bills", Count: 8}))
				sent := 15
				if limit > 0 {
					sent = max(limit-15, 0)
				}
				if p.State == Done && !p.Resumable() {
					w.Fatalf("%+v cannot be resumed", p)
				}
				p, err = live.Resume(w.Context(), "mine", By{MaybeSent: Again}, nil)
				if err != nil || p.Done != 15+sent || p.Failed != 0 || p.MaybeSent != 15-sent || p.MaybeDuplicate != sent {
					w.Errorf("%v: %+v, want %d sent again", err, p, sent)
				}
				w.has("bills.07", sent)
				w.has("bills.dlq", 15-sent)
			})
		})
	}
}

// Letters that may have been sent, and are not tried again, take no place in the limit besides that of their sending.
func TestLettersThatAreNotSentAgainLeaveTheLimitToOthers(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		live := doubtful(w, Redrive{ID: "mine", Action: Send, All: true, Limit: 30}, "bills.07", 15)
		ch := w.channel()
		for i := range 20 {
			must(w.T, ch.Publish("", "bills.dlq", false, false, amqp.Publishing{MessageId: fmt.Sprint("m-", i), DeliveryMode: amqp.Persistent,
				Headers: amqp.Table{"x-rehop-queue": "bills.00", "x-rehop-cause": "exhausted"}}))
		}
		w.has("bills.dlq", 35)
		p, err := live.Resume(w.Context(), "mine", By{MaybeSent: Again}, nil)
		if !errors.Is(err, ErrTarget) || p.Done != 20 || p.Failed != failuresInARow || p.MaybeSent != 5 {
			w.Errorf("%v: %+v, want 5 more sent, which are 30 with 15 before and 10 refused", err, p)
		}
		w.has("bills.00", 5)
	})
}
