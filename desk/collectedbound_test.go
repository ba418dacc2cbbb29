package desk

import (
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/xdeath"
)

// The letters of a look at a store are those that it had then, and all of them are counted.
func TestALookAtAStoreIsTheBoundOfARedrive(t *testing.T) {
	dir := t.TempDir()
	db, err := sqlite.Open(filepath.Join(dir, "letters.db"))
	must(t, err)
	defer db.Close()
	letters, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	collect := func(prefix string, n int) {
		t.Helper()
		for i := range n {
			d := &consumer.Delivery{ID: fmt.Sprint(prefix, i), RoutingKey: "orders", Queue: "orders.dlq"}
			d.History.Queue, d.History.Failure = "orders", xdeath.Failure{Cause: rehop.CauseExhausted, Error: []string{"no stock", "no such customer"}[i%2]}
			must(t, letters.Collect(t.Context(), d))
		}
		pause.For(t.Context(), 2*time.Millisecond) // the store tells milliseconds
	}
	journal, err := OpenJournal(filepath.Join(dir, "journal"))
	must(t, err)
	collected, err := NewCollected(letters, nil, CollectedConfig{Journal: journal})
	must(t, err)
	for _, tt := range []struct {
		rule        string
		f           Filter
		most, bound int // bound: 0 if nobody counts before all are read
	}{
		{"all", Filter{}, 40, 40},
		{"a condition that the database answers", Filter{Queue: "orders"}, 40, 40},
		{"one that it does not answer", Filter{Error: "STOCK"}, 20, 0},
	} {
		collect("m-"+tt.rule, 40)
		list, err := collected.List(t.Context(), tt.f, Page{Limit: 8, CountAll: true})
		must(t, err)
		if n, exact := list.Most(); n != tt.most || !exact || len(list.Letters) != 8 || list.Next == 0 {
			t.Errorf("%s: %d of %d letters, exactly %t, want 8 of %d", tt.rule, len(list.Letters), n, exact, tt.most)
		}
		collect("late-"+tt.rule, 10)
		highest := 0
		p, err := collected.Execute(t.Context(), Redrive{Action: Drop, Filter: tt.f, All: true, Look: list.At, CopyTo: filepath.Join(dir, "dropped.jsonl")}, func(p Progress) { highest = max(highest, p.Bound) })
		if err != nil || p.Done != tt.most || highest != tt.bound {
			t.Errorf("%s: %v: %+v, of %d, want %d of %d", tt.rule, err, p, highest, tt.most, tt.bound)
		}
		if _, err := collected.Execute(t.Context(), Redrive{Action: Drop, All: true, CopyTo: filepath.Join(dir, "dropped.jsonl")}, nil); err != nil {
			t.Error(err)
		}
	}
}

// Letters that do not wait for a person are in no list and no export, and each of these says so.
func TestLettersInOtherStatesAreNamed(t *testing.T) {
	dir := t.TempDir()
	db, err := sqlite.Open(filepath.Join(dir, "letters.db"))
	must(t, err)
	defer db.Close()
	letters, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	for i := range 6 {
		d := &consumer.Delivery{ID: fmt.Sprint("m-", i), RoutingKey: "orders", Queue: "orders.dlq"}
		d.History.Queue, d.History.Failure = "orders", xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no stock"}
		must(t, letters.Collect(t.Context(), d))
	}
	_, err = letters.Archive(t.Context(), store.Query{Numbers: []int64{1, 2}})
	must(t, err)
	_, err = letters.Release(t.Context(), store.Query{Numbers: []int64{3}})
	must(t, err)
	journal, err := OpenJournal(filepath.Join(dir, "journal"))
	must(t, err)
	collected, err := NewCollected(letters, nil, CollectedConfig{Journal: journal})
	must(t, err)
	for _, tt := range []struct {
		rule, want string
		f          Filter
		written    int
	}{
		{"all", "2 archived, 1 ready", Filter{}, 3},
		{"a condition that the database answers", "1 archived", Filter{MessageIDs: []string{"m-1", "m-4"}}, 1},
		{"one that it does not answer", "perhaps some of 2 archived, perhaps some of 1 ready", Filter{Error: "STOCK"}, 3},
		{"one that fits none of these", "", Filter{MessageIDs: []string{"m-4"}}, 1},
		{"states", "", Filter{States: []string{"held", "archived"}}, 5},
		{"none", "", Filter{IDs: []string{}}, 0},
	} {
		list, err := collected.List(t.Context(), tt.f, Page{})
		must(t, err)
		groups, err := collected.Groups(t.Context(), tt.f)
		must(t, err)
		if list.Aside != tt.want || groups.Aside != tt.want {
			t.Errorf("%s: the list leaves out %q, the groups %q, want %q", tt.rule, list.Aside, groups.Aside, tt.want)
		}
		if n, exact := list.Most(); n != tt.written || !exact {
			t.Errorf("%s: %d letters, exactly %t, want %d: letters that are left out are no bound", tt.rule, n, exact, tt.written)
		}
		n, err := collected.Export(t.Context(), tt.f, 0, io.Discard, By{})
		must(t, err)
		records, err := journal.Audit(1)
		must(t, err)
		want := "done"
		if tt.want != "" {
			want += ", without " + tt.want
		}
		if n != tt.written || records[0].Result != want {
			t.Errorf("%s: %d letters are written, %q, want %d, %q", tt.rule, n, records[0].Result, tt.written, want)
		}
	}
}

func TestWhatIsLeftOutIsSaidAsItIsKnown(t *testing.T) {
	for _, tt := range []struct {
		rule                string
		n                   int
		more, part, unknown bool
		want                string
	}{
		{"none", 0, false, false, false, ""},
		{"none, of conditions that the database answers in part", 0, false, true, false, ""},
		{"all are counted", 12, false, false, false, "12 archived"},
		{"not all are counted", 12, true, false, false, "12+ archived"},
		{"not all need to fit", 12, false, true, false, "perhaps some of 12 archived"},
		{"not all need to fit, and not all are counted", 12, true, true, false, "perhaps some archived"},
		{"none so far", 0, true, false, false, "perhaps some archived"},
		{"nobody has counted", 0, false, false, true, "perhaps some archived"},
	} {
		if got := leftOut(store.Archived, tt.n, tt.more, tt.part, tt.unknown); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.rule, got, tt.want)
		}
	}
}
