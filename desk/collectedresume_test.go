package desk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/xdeath"
)

// stored makes n letters and collects them.
func (w *fixture) stored(n int) (*store.Store, Keeper) {
	w.Helper()
	for i := range n {
		w.letter(fmt.Sprint("m-", i), "")
	}
	return w.collect("orders.dlq", n)
}

// A process has died before it deleted the letters that it had sent. They are no part of the
// redrive twice.
func TestTheBoundOfARedriveThatGoesOnIsThatOfItsBeginning(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead()
		_, source := w.stored(20)
		_, undeleted := w.stored(20) // has the same letters
		time.Sleep(time.Second)
		ctx, stop := context.WithCancel(w.Context())
		defer stop()
		before, err := source.Execute(ctx, Redrive{ID: "mine", Action: Send, All: true, Rate: 10}, func(p Progress) {
			if p.Done >= 5 {
				stop()
			}
		})
		if !errors.Is(err, ErrRedriveStopped) || before.Done == 20 || before.Bound != 20 {
			w.Fatalf("%v: %+v, want it stopped in between", err, before)
		}
		file := filepath.Join(w.journal.dir, "redrives", "mine.jsonl")
		var kept []byte
		for line := range bytes.Lines(readFile(w.T, file)) {
			if !bytes.Contains(line, []byte(`"gone"`)) && !bytes.Contains(line, []byte(`"progress"`)) {
				kept = append(kept, line...)
			}
		}
		must(w.T, os.WriteFile(file, kept, 0o600))
		most := 0
		p, err := undeleted.Resume(w.Context(), "mine", By{}, func(p Progress) { most = max(most, p.Bound) })
		if err != nil || p.Done != 20 || p.Bound != 20 || most != 20 {
			w.Errorf("%v: %+v, of up to %d, want all 20", err, p, most)
		}
		w.has("orders", 20)
	})
}

// A condition that the database does not answer selects no letter that came after the redrive.
func TestLettersThatAreCollectedLaterAreNotSelected(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead()
		s, source := w.stored(0)
		collect := func(id string) {
			d := &consumer.Delivery{ID: id, RoutingKey: "orders", Queue: "orders.dlq"}
			d.History.Queue, d.History.Failure = "orders", xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no stock"}
			must(w.T, s.Collect(w.Context(), d))
			time.Sleep(time.Second)
		}
		collect("m-0")
		began := time.Now()
		collect("late")
		for before, want := range map[time.Time]int{{}: 2, began: 1} {
			q, err := source.(*storeSource).narrow(w.Context(), Filter{Error: "stock"}, before)
			if err != nil || len(q.Numbers) != want {
				w.Errorf("before %v: %v: %d letters, want %d", before, err, len(q.Numbers), want)
			}
		}
	})
}

// A letter that a process has tried counts for the limit of its redrive, also if nobody knows
// whether it arrived and somebody has deleted it since.
func TestALetterThatMayHaveArrivedCountsForTheLimit(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead()
		s, source := w.stored(20)
		time.Sleep(time.Second)
		b, err := w.journal.begin(Redrive{ID: "mine", Source: source.About().Name, Action: Send, All: true, Limit: 10, Created: time.Now()}, nil)
		must(w.T, err)
		letters, _, err := s.Find(w.Context(), store.Query{})
		must(w.T, err)
		var keys []string
		for _, one := range letters[:4] {
			m, err := resend.Edited(resend.Message(one.Message, one.Queue), one.Queue, nil, nil)
			must(w.T, err)
			keys = append(keys, identityOf(m, one.Number))
		}
		must(w.T, errors.Join(b.write(entry{Try: keys}), b.write(entry{Sent: keys[:2]}), b.file.Close(), b.release())) // as the end of the process does
		_, err = s.Delete(w.Context(), store.Query{Numbers: []int64{letters[0].Number, letters[3].Number}})
		must(w.T, err)
		p, err := source.Resume(w.Context(), "mine", By{}, nil)
		if err != nil || p.Done != 9 {
			w.Errorf("%v: %+v, want 9 done: 2 sent before, 1 that is tried again, and 6 others, since 1 may have arrived", err, p)
		}
		w.has("orders", 7)
		if left, err := s.Count(w.Context(), store.Query{}); err != nil || left != 10 {
			w.Errorf("%d letters are left: %v, want 10", left, err)
		}
	})
}

// A store looks for no more than 10,000 numbers at once. A redrive of more letters, whose condition the
// database does not answer, can be resumed all the same.
func TestARedriveOfManyLettersOfAStoreGoesOn(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead()
		s, source := w.stored(0)
		const n = maxNumbers + 50
		var all sync.WaitGroup
		for first := range 50 {
			all.Go(func() {
				for i := first; i < n; i += 50 {
					d := &consumer.Delivery{ID: fmt.Sprint("m-", i), RoutingKey: "orders", Queue: "orders.dlq"}
					d.History.Queue, d.History.Failure = "orders", xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no stock"}
					if err := s.Collect(w.Context(), d); err != nil {
						w.Error(err)
					}
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		b, err := w.journal.begin(Redrive{ID: "mine", Source: source.About().Name, Action: Send, Filter: Filter{Error: "STOCK"}, Limit: 3, Created: time.Now()}, nil)
		must(w.T, err)
		last, _, err := s.Find(w.Context(), store.Query{After: n - 1})
		must(w.T, err)
		m, err := resend.Edited(resend.Message(last[0].Message, last[0].Queue), last[0].Queue, nil, nil)
		must(w.T, err)
		must(w.T, errors.Join(b.write(entry{Try: []string{identityOf(m, last[0].Number)}}), b.file.Close(), b.release())) // as the end of the process does
		p, err := source.Resume(w.Context(), "mine", By{}, nil)
		if err != nil || p.Done != 3 || p.Bound != 3 {
			w.Errorf("%v: %+v, want 3 done: the one that is tried again, and 2 others", err, p)
		}
		w.has("orders", 3)
	})
}
