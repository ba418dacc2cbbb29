package desk

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The original of a letter that is sent with a change is in a file before the changed message is published, once, however
// often the redrive tries. It comes back from there as it was.
func TestAnEditKeepsTheOriginal(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(1)...)
		live := w.live()
		all, err := live.Peek(w.Context(), 10)
		must(w.T, err)
		body := []byte("changed")
		edit := Redrive{ID: "mine", Action: Send, All: true, Edit: &Edit{Body: &body}, To: address("missing")}
		p, err := live.Execute(w.Context(), edit, nil)
		if err == nil && p.Failed == 0 || p.Redrive.CopyTo != w.journal.DroppedTo("mine") {
			w.Errorf("%+v: %v", p, err)
		}
		_, err = w.channel().QueueDeclare("missing", true, false, false, false, nil)
		must(w.T, err)
		published := -1
		live.gap = func(moment string) {
			if moment == "tried" {
				published = 0
				if !bytes.Contains(readFile(w.T, w.journal.DroppedTo("mine")), all.Letters[0].Publishing.Body) {
					w.Error("the changed message is published, and its original is not kept")
				}
				if q, _ := w.broker.Queue("missing"); len(q.Ready) > 0 {
					published = len(q.Ready)
				}
			}
		}
		p, err = live.Resume(w.Context(), "mine", By{}, nil)
		must(w.T, err)
		if p.Done != 1 || published != 0 {
			w.Errorf("%+v, after %d messages", p, published)
		}
		w.has("missing", 1)
		w.has("orders.dlq", 0)
		done, err := Import(w.Context(), w.conn, bytes.NewReader(readFile(w.T, p.Redrive.CopyTo)), w.journal, ImportOptions{Queue: "orders.dlq"})
		if err != nil || done.Letters != 1 {
			w.Errorf("%+v: %v", done, err)
		}
		back, err := live.Peek(w.Context(), 10)
		must(w.T, err)
		was, is := all.Letters[0].Publishing, back.Letters[0].Publishing
		for _, headers := range []amqp.Table{was.Headers, is.Headers} {
			delete(headers, "x-delivery-count")
			delete(headers, "x-acquired-count")
		}
		if !reflect.DeepEqual(is, was) {
			w.Errorf("imported\n%+v\nwant\n%+v", is, was)
		}
	})
}

// Without its copy no letter is sent with a change.
func TestAnEditWithoutACopySendsNothing(t *testing.T) {
	inBubble(t, versions[0], func(w *fixture) {
		w.dead(orders(1)...)
		live := w.live()
		body := []byte("changed")
		edit := Redrive{Action: Send, All: true, Edit: &Edit{Body: &body}, CopyTo: w.TempDir()}
		if p, err := live.Execute(w.Context(), edit, nil); err == nil || p.Done != 0 {
			w.Errorf("%+v: %v", p, err)
		}
		w.has("orders", 0)
	})
}

// A copy that somebody has taken away is written again before the next try.
func TestAnOriginalThatIsGoneIsKeptAgain(t *testing.T) {
	inBubble(t, versions[0], func(w *fixture) {
		w.dead(orders(1)...)
		live := w.live()
		all, err := live.Peek(w.Context(), 10)
		must(w.T, err)
		body := []byte("changed")
		edit := Redrive{ID: "mine", Action: Send, All: true, Edit: &Edit{Body: &body}, To: address("missing")}
		if p, err := live.Execute(w.Context(), edit, nil); err == nil && p.Failed == 0 {
			w.Fatalf("%+v", p)
		}
		must(w.T, os.Remove(w.journal.DroppedTo("mine")))
		_, err = w.channel().QueueDeclare("missing", true, false, false, false, nil)
		must(w.T, err)
		p, err := live.Resume(w.Context(), "mine", By{}, nil)
		must(w.T, err)
		if copied := readFile(w.T, p.Redrive.CopyTo); p.Done != 1 || !bytes.Contains(copied, all.Letters[0].Publishing.Body) {
			w.Errorf("%+v, and the copy has %q", p, copied)
		}
	})
}

// The copies of a redrive are in one file, whichever folder is that of the process which begins it, and of the one that goes on with it.
func TestACopyIsInOnePlace(t *testing.T) {
	t.Chdir(t.TempDir())
	inBubble(t, versions[0], func(w *fixture) {
		began, err := os.Getwd()
		must(w.T, err)
		w.dead(orders(1)...)
		w.journal, err = OpenJournal("journal")
		must(w.T, err)
		live := w.live()
		body := []byte("changed")
		edit := Redrive{ID: "mine", Action: Send, All: true, Edit: &Edit{Body: &body}, To: address("missing")}
		p, err := live.Execute(w.Context(), edit, nil)
		if err == nil && p.Failed == 0 || p.Redrive.CopyTo != filepath.Join(began, "journal", "dropped", "mine.jsonl") {
			w.Errorf("%+v: %v", p, err)
		}
		drop := Redrive{ID: "drop", Action: Drop, Filter: Filter{Error: "none"}, CopyTo: "dropped.jsonl"}
		if p, err := live.Execute(w.Context(), drop, nil); err != nil || p.Redrive.CopyTo != filepath.Join(began, "dropped.jsonl") {
			w.Errorf("%+v: %v", p, err)
		}
	})
}

// A redrive with an edit whose journal names no file for the originals keeps them all the same.
func TestAnEditThatNamesNoFileGoesOn(t *testing.T) {
	inBubble(t, versions[0], func(w *fixture) {
		w.dead(orders(1)...)
		live := w.live()
		body := []byte("changed")
		edit := Redrive{ID: "mine", Action: Send, All: true, Edit: &Edit{Body: &body}, To: address("missing")}
		if p, err := live.Execute(w.Context(), edit, nil); err == nil && p.Failed == 0 {
			w.Fatalf("%+v", p)
		}
		must(w.T, os.Remove(w.journal.DroppedTo("mine")))
		file := filepath.Join(w.journal.dir, "redrives", "mine.jsonl")
		old := regexp.MustCompile(`,"copy_to":"[^"]*"`).ReplaceAll(readFile(w.T, file), nil)
		must(w.T, os.WriteFile(file, old, 0o600))
		_, err := w.channel().QueueDeclare("missing", true, false, false, false, nil)
		must(w.T, err)
		p, err := live.Resume(w.Context(), "mine", By{}, nil)
		must(w.T, err)
		if p.Done != 1 || p.Redrive.CopyTo != w.journal.DroppedTo("mine") || !bytes.Contains(readFile(w.T, p.Redrive.CopyTo), []byte("order 0")) {
			w.Errorf("%+v", p)
		}
	})
}
