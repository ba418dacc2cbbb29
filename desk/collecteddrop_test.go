//go:build unix

package desk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

func (k killedTask) collected() (*storeSource, *store.Store, func() error, error) {
	db, err := sqlite.Open(k.Store)
	if err != nil {
		return nil, nil, nil, err
	}
	letters, err := store.Open(context.Background(), db, store.SQLite, store.Config{})
	if err != nil {
		return nil, nil, nil, err
	}
	journal, err := OpenJournal(k.Journal)
	if err != nil {
		return nil, nil, nil, err
	}
	keeper, err := NewCollected(letters, nil, CollectedConfig{Journal: journal})
	if err != nil {
		return nil, nil, nil, err
	}
	return keeper.(*storeSource), letters, db.Close, nil
}

func (k killedTask) drop() Redrive {
	return Redrive{ID: "killed", Action: Drop, All: true, Rate: 3, Limit: k.Limit, CopyTo: filepath.Join(k.Journal, "dropped.jsonl")}
}

// A drop that goes on deletes no more letters than its limit, whenever its process has died, and
// each that is deleted is in its file.
func TestADropThatGoesOnKeepsToItsLimit(t *testing.T) {
	for _, moment := range []string{"tried", "deleted"} {
		for _, nth := range []int{1, 2} { // it deletes three, and then two
			t.Run(fmt.Sprintf("%s %d", moment, nth), func(t *testing.T) {
				t.Parallel()
				const n, limit = 9, 5
				dir := t.TempDir()
				k := killedTask{Journal: filepath.Join(dir, "journal"), Moment: moment, Nth: nth, Limit: limit, Store: filepath.Join(dir, "letters.db")}
				source, letters, end, err := k.collected()
				must(t, err)
				defer end()
				for i := range n {
					must(t, letters.Collect(t.Context(), &consumer.Delivery{ID: fmt.Sprint("m-", i), RoutingKey: "orders"}))
				}
				pause.For(t.Context(), 2*time.Millisecond) // the store tells milliseconds, and a redrive takes what is older
				die(t, k)
				p, err := source.Resume(t.Context(), "killed", By{}, nil)
				if err != nil || p.Done != limit || p.Matched != limit || p.Skipped+p.Failed != 0 {
					t.Errorf("%v: %+v, want %d done", err, p, limit)
				}
				if again, err := source.cfg.Journal.Redrive("killed"); err != nil || again.Done != limit {
					t.Errorf("in the journal: %v: %+v", err, again)
				}
				left, _, err := letters.Find(t.Context(), store.Query{})
				if err != nil || len(left) != n-limit {
					t.Errorf("%d letters are left: %v, want %d", len(left), err, n-limit)
				}
				copied := map[string]bool{}
				for line := range bytes.Lines(readFile(t, k.drop().CopyTo)) {
					m, err := unmarshalLetter(line)
					must(t, err)
					copied[m.MessageId] = true
				}
				for _, l := range left {
					delete(copied, l.Message.ID) // a letter that was copied, and not deleted
				}
				if len(copied) != limit {
					t.Errorf("%d of the deleted letters are in the file, want %d", len(copied), limit)
				}
			})
		}
	}
}

// A drop that is stopped between the letters of a page, or whose store fails there, counts each letter
// that is deleted once.
func TestADropThatIsCutOffWithinAPageCountsEachLetterOnce(t *testing.T) {
	for _, rule := range []string{"the store fails", "it is stopped"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			const n, limit, gone = 500, 450, 200 // the store deletes a hundred at a time
			dir := t.TempDir()
			k := killedTask{Journal: filepath.Join(dir, "journal"), Store: filepath.Join(dir, "letters.db")}
			source, letters, end, err := k.collected()
			must(t, err)
			defer end()
			db, err := sqlite.Open(k.Store)
			must(t, err)
			defer db.Close()
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					if err := letters.Collect(t.Context(), &consumer.Delivery{ID: fmt.Sprint("m-", i), RoutingKey: "orders"}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			pause.For(t.Context(), 2*time.Millisecond) // the store tells milliseconds, and a redrive takes what is older
			_, err = db.ExecContext(t.Context(), "CREATE TRIGGER full BEFORE DELETE ON rehop_letters WHEN OLD.seq = 250 BEGIN SELECT RAISE(ABORT, 'disk full'); END")
			must(t, err)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			want := Failed
			if rule == "it is stopped" {
				want = Stopped
				source.gap = func(moment string) {
					if moment == "deleted" {
						stop()
					}
				}
			}
			p, err := source.Execute(ctx, Redrive{ID: "mine", Action: Drop, All: true, Limit: limit, CopyTo: filepath.Join(dir, "dropped.jsonl")}, nil)
			if err == nil || p.State != want || p.Done != gone || p.Matched != gone || p.Skipped+p.Failed != 0 {
				t.Errorf("%v: %+v, want %s with %d done", err, p, want, gone)
			}
			_, err = db.ExecContext(t.Context(), "DROP TRIGGER full")
			must(t, err)
			source.gap = nil
			p, err = source.Resume(t.Context(), "mine", By{}, nil)
			if err != nil || p.Done != limit || p.Matched != limit || p.Skipped+p.Failed != 0 {
				t.Errorf("%v: %+v, want %d done", err, p, limit)
			}
			if left, err := letters.Count(t.Context(), store.Query{}); err != nil || left != n-limit {
				t.Errorf("%d letters are left: %v, want %d", left, err, n-limit)
			}
		})
	}
}

// A drop whose stop is asked for deletes no letter of the next page.
func TestADropIsStoppedBetweenItsPages(t *testing.T) {
	t.Parallel()
	const n = scanPage + 1
	dir := t.TempDir()
	k := killedTask{Journal: filepath.Join(dir, "journal"), Store: filepath.Join(dir, "letters.db")}
	source, letters, end, err := k.collected()
	must(t, err)
	defer end()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := letters.Collect(t.Context(), &consumer.Delivery{ID: fmt.Sprint("m-", i), RoutingKey: "orders"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	pause.For(t.Context(), 2*time.Millisecond) // the store tells milliseconds, and a redrive takes what is older
	source.gap = func(moment string) {
		if moment == "deleted" {
			must(t, source.cfg.Journal.Stop("mine", By{}))
		}
	}
	p, err := source.Execute(t.Context(), Redrive{ID: "mine", Action: Drop, All: true, CopyTo: filepath.Join(dir, "dropped.jsonl")}, nil)
	if !errors.Is(err, ErrRedriveStopped) || p.State != Stopped || p.Done != scanPage {
		t.Errorf("%v: %+v, want it stopped after %d", err, p, scanPage)
	}
	if left, err := letters.Count(t.Context(), store.Query{}); err != nil || left != 1 {
		t.Errorf("%d letters are left: %v, want 1", left, err)
	}
}
