package desk

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A redrive goes on at the broker that it is about: elsewhere a queue of this name has other letters.
func TestARedriveGoesOnAtItsBroker(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(6)...)
		_, collected := w.collect("orders.dlq", 6)
		w.dead(orders(6)...)
		for _, source := range []Source{w.live(), collected} {
			before, err := source.Execute(w.Context(), Redrive{ID: "mine", Action: Send, All: true, To: address("missing")}, nil)
			if err != nil && before.State != Failed || before.Failed != 6 {
				w.Fatalf("%v: %+v, want 6 failed", err, before)
			}
			file := filepath.Join(w.journal.dir, "redrives", "mine.jsonl")
			here := readFile(w.T, file)
			elsewhere := bytes.ReplaceAll(here, []byte(`cluster \"rehoptest\"`), []byte(`cluster \"staging\"`))
			if bytes.Equal(here, elsewhere) {
				w.Fatalf("the journal names no broker: %s", here)
			}
			must(w.T, os.WriteFile(file, elsewhere, 0o600))
			if p, err := source.Resume(w.Context(), "mine", By{}, nil); err == nil || p.State != "" || !strings.Contains(err.Error(), `redrive mine is about cluster "staging", virtual host "/", and this is cluster "rehoptest", virtual host "/"`) {
				w.Errorf("at another broker: %+v: %v", p, err)
			}
			if after := readFile(w.T, file); !bytes.Equal(after, elsewhere) {
				w.Errorf("the refused resume is in the journal: %s", after[len(elsewhere):])
			}
			must(w.T, os.WriteFile(file, here, 0o600))
			if p, err := source.Resume(w.Context(), "mine", By{}, nil); err != nil && p.State != Failed || p.Failed != 6 {
				w.Errorf("at its own: %v: %+v, want it to try again", err, p)
			}
			b, err := w.journal.begin(Redrive{ID: "other", Source: source.About().Name, Action: Send, All: true}, nil)
			must(w.T, err)
			must(w.T, b.isAt("one"))
			if err := b.isAt("another"); err == nil { // its connection was made again, to another broker
				w.Error("a redrive changes its broker")
			}
			must(w.T, b.isAt("")) // it has no name
			must(w.T, b.end(Progress{}))
			must(w.T, os.RemoveAll(filepath.Join(w.journal.dir, "redrives")))
		}
	})
}
