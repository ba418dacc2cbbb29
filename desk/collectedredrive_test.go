package desk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

// A letter that is on its way while somebody stops the redrive is confirmed, or resuming
// the redrive would send it twice.
func TestAStopAwaitsTheAnswer(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead()
		b, err := w.journal.begin(Redrive{ID: "o-1", Source: "store letters", Action: Send, Created: time.Now()}, nil)
		must(w.T, err)
		publisher := confirm.New(w.conn, confirm.Limits{Messages: replayWindow})
		run, stop := context.WithCancelCause(w.Context())
		sender := resend.Sender{Publisher: &marking{redrive: &collectedRedrive{book: b, redrive: b.redrive, stop: stop, failed: map[int64]bool{}}, publisher: publisher}}
		send := func(id string) []producer.Receipt { // as a Replay does
			return sender.Publish(resend.Numbered(run, []int64{1}), []producer.Message{{RoutingKey: "orders", ID: id}}, func(int) bool { return false }, func(err error) { w.Error(err) })
		}

		send("m-0") // opens the channel
		w.broker.Slow(2 * time.Second)
		time.AfterFunc(time.Second, func() { stop(ErrRedriveStopped) })
		receipts := send("m-1")
		if run.Err() == nil {
			w.Fatal("the answer came before the stop")
		}
		if r := receipts[0]; r.Place != producer.PlaceQueue || r.Err != nil {
			w.Errorf("%+v, want it in the queue", r)
		}

		if r := send("m-2")[0]; r.Place != "" || r.Err == nil {
			w.Errorf("after the stop: %+v, want an error", r)
		}
		w.broker.Slow(0)
		must(w.T, b.end(Progress{Redrive: b.redrive, State: Stopped}))
		must(w.T, publisher.Close())
		w.has("orders", 2)
	})
}

// After a stop the letters of a batch that are not on their way yet stay as they are.
func TestAStopBeginsNoFurtherRound(t *testing.T) {
	for _, by := range []string{"journal", "ctx"} {
		t.Run(by, func(t *testing.T) {
			inBubble(t, "4.3", func(w *fixture) {
				source := deadBills(w, true, slices.Repeat([]string{"bills.00"}, 50))
				ctx, stop := context.WithCancel(w.Context())
				defer stop()
				asked := false
				w.journal.sync = func(f *os.File) error {
					if asked || !bytes.Contains(readFile(w.T, f.Name()), []byte(`"try"`)) {
						return nil
					}
					asked = true
					if by == "ctx" {
						stop()
						return nil
					}
					return w.journal.Stop("mine", By{})
				}
				p, err := source.Execute(ctx, Redrive{ID: "mine", Action: Send, All: true}, nil)
				if !errors.Is(err, ErrRedriveStopped) || p.State != Stopped || p.Done != failuresInARow || p.Failed != 0 {
					w.Errorf("%v: %+v, want the letters of the first round", err, p)
				}
				w.has("bills.00", failuresInARow)
			})
		})
	}
}

// A process dies between the confirm of letters without a message id and the note of it,
// or between the note and their deletion. The next one finds them by their numbers.
func TestLettersWithoutAnIDHaveTheirNumbers(t *testing.T) {
	for _, tt := range []struct {
		rule        string
		lost        string // lines of the journal
		sent, twice int
	}{
		{"confirmed, and not noted", `"sent"`, 6, 3},
		{"noted, and not deleted", "", 3, 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			inBubble(t, "4.3", func(w *fixture) {
				w.dead()
				publisher := confirm.New(w.conn, confirm.Limits{Messages: replayWindow})
				send := func(b *book) int {
					ctx := resend.Numbered(w.Context(), []int64{7, 8, 9})
					m := &marking{redrive: &collectedRedrive{book: b, redrive: b.redrive}, publisher: publisher}
					receipts, err := m.PublishAll(ctx, slices.Repeat([]producer.Message{{RoutingKey: "orders"}}, 3))
					must(w.T, err)
					twice := 0
					for _, r := range receipts {
						if r.Place != producer.PlaceQueue {
							w.Errorf("%+v", r)
						}
						if r.MaybeDuplicate {
							twice++
						}
					}
					must(w.T, errors.Join(b.file.Close(), b.release())) // as the end of the process does
					return twice
				}
				redrive := Redrive{ID: "o-1", Source: "store letters", Action: Send, Created: time.Now()}
				b, err := w.journal.begin(redrive, nil)
				must(w.T, err)
				if n := send(b); n != 0 {
					w.Errorf("%d letters perhaps twice at once", n)
				}
				file := filepath.Join(w.journal.dir, "redrives", "o-1.jsonl")
				var kept []byte
				for line := range bytes.Lines(readFile(w.T, file)) {
					if tt.lost == "" || !bytes.Contains(line, []byte(tt.lost)) {
						kept = append(kept, line...)
					}
				}
				must(w.T, os.WriteFile(file, kept, 0o600))
				b, err = w.journal.begin(redrive, &By{Who: "bob"})
				must(w.T, err)
				if n := send(b); n != tt.twice {
					w.Errorf("%d letters perhaps twice by their receipts, want %d", n, tt.twice)
				}
				p, err := w.journal.Redrive("o-1")
				if err != nil || p.MaybeDuplicate != tt.twice || p.Done != 3 {
					w.Errorf("%v: %+v, want %d perhaps twice", err, p, tt.twice)
				}
				must(w.T, publisher.Close())
				w.has("orders", tt.sent)
			})
		})
	}
}

// A drop deletes the letters of a second together, and one after the other below that.
func TestADropKeepsToItsRate(t *testing.T) {
	dir := t.TempDir()
	db, err := sqlite.Open(filepath.Join(dir, "letters.db"))
	must(t, err)
	defer db.Close()
	letters, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	for _, id := range []string{"m-1", "m-2", "m-3"} {
		must(t, letters.Collect(t.Context(), &consumer.Delivery{ID: id, RoutingKey: "orders"}))
	}
	journal, err := OpenJournal(filepath.Join(dir, "journal"))
	must(t, err)
	collected, err := NewCollected(letters, nil, CollectedConfig{Journal: journal})
	must(t, err)
	pause.For(t.Context(), 2*time.Millisecond) // the store tells milliseconds, and a redrive takes what is older
	first := 0
	began := time.Now()
	p, err := collected.Execute(t.Context(), Redrive{Action: Drop, All: true, Rate: 1.9, CopyTo: filepath.Join(dir, "dropped.jsonl")}, func(p Progress) {
		if first == 0 {
			first = p.Done
		}
	})
	if took := time.Since(began); err != nil || p.Done != 3 || first != 1 || took < time.Second {
		t.Errorf("%+v after %v, %d of them at once: %v; want 3 letters, one after the other", p, took, first, err)
	}
}
