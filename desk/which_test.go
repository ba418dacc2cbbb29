package desk

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

// A redrive of letters that were selected names them as lists do: by the ids of their messages, as far as
// those are known.
func TestARedriveNamesTheMessagesOfItsLetters(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(4)...)
		live := w.live()
		list, err := live.List(w.Context(), Filter{}, Page{})
		must(w.T, err)
		ids := []string{list.Letters[1].ID, list.Letters[0].ID}
		want := ""
		for _, l := range []Letter{list.Letters[1], list.Letters[0]} {
			want += "letter=\"" + l.Publishing.MessageId + "\" "
		}
		want = strings.TrimSpace(want) + ", at most 2"
		p, err := live.Execute(w.Context(), Redrive{ID: "mine", Action: Send, Filter: Filter{IDs: ids}, Limit: 2}, nil)
		if err != nil || p.Done != 2 || p.Redrive.Which() != want {
			w.Errorf("%v: %d sent, of %s; want %s", err, p.Done, p.Redrive.Which(), want)
		}
		audit, err := w.journal.Audit(1)
		if err != nil || audit[0].Which != want {
			w.Errorf("audit: %v, %+v", err, audit)
		}
		gone := Redrive{ID: "gone", Action: Send, Filter: Filter{IDs: ids[:1]}, MessageIDs: []string{"forged"}}
		if p, err = live.Execute(w.Context(), gone, nil); err != nil || p.Redrive.Which() != `id="`+ids[0]+`"` {
			w.Errorf("%v: a letter that is not there is %s", err, p.Redrive.Which())
		}
	})
}

func TestARedriveOfAStoreNamesTheMessagesOfItsLetters(t *testing.T) {
	dir := t.TempDir()
	db, err := sqlite.Open(filepath.Join(dir, "letters.db"))
	must(t, err)
	defer db.Close()
	letters, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	long := strings.Repeat("m", 60) + "-1"
	must(t, letters.Collect(t.Context(), &consumer.Delivery{ID: long, RoutingKey: "orders"}))
	journal, err := OpenJournal(filepath.Join(dir, "journal"))
	must(t, err)
	collected, err := NewCollected(letters, nil, CollectedConfig{Journal: journal})
	must(t, err)
	pause.For(t.Context(), 2*time.Millisecond) // the store tells milliseconds, and a redrive takes what is older
	p, err := collected.Execute(t.Context(), Redrive{Action: Drop, Filter: Filter{IDs: []string{"1"}}, CopyTo: filepath.Join(dir, "dropped.jsonl")}, nil)
	if want := `letter="` + strings.Repeat("m", 20) + "…" + strings.Repeat("m", 18) + `-1"`; err != nil || p.Done != 1 || p.Redrive.Which() != want {
		t.Errorf("%v: %d, %s, want %s", err, p.Done, p.Redrive.Which(), want)
	}
}
