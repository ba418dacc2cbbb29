package desk

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// ended writes a redrive down that has ended.
func ended(t testing.TB, j *Journal, id string, p Progress) string {
	t.Helper()
	b, err := j.begin(Redrive{ID: id, Action: Send, Source: "queue q", Created: time.Now()}, nil)
	must(t, err)
	p.Redrive, p.Updated = b.redrive, time.Now()
	must(t, b.end(p))
	return filepath.Join(j.dir, "redrives", id+".jsonl")
}

func idsOf(t testing.TB, j *Journal, n int) (all []string) {
	t.Helper()
	found, err := j.Redrives(n)
	must(t, err)
	for _, p := range found {
		all = append(all, fmt.Sprintf("%s %s %d", p.Redrive.ID, p.State, p.Done))
	}
	return all
}

// The file of a redrive that has ended is read once, and again if somebody has resumed it.
func TestAListReadsNoEndedRedriveAgain(t *testing.T) {
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	if got := idsOf(t, j, 10); got != nil {
		t.Errorf("no journal has %q", got)
	}
	old := ended(t, j, "old", Progress{State: Stopped, Done: 4})
	ended(t, j, "young", Progress{State: Done, Done: 7})
	is := func(n int, want ...string) {
		t.Helper()
		if got := idsOf(t, j, n); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	is(10, "young done 7", "old stopped 4")
	is(1, "young done 7")
	text := readFile(t, old)
	must(t, os.WriteFile(old, bytes.Replace(text, []byte(`"done":4`), []byte(`"done":5`), 1), 0o600))
	is(10, "young done 7", "old stopped 4") // no process writes like this: it shows that the file was not read
	b, err := j.begin(Redrive{ID: "old", Source: "queue q"}, &By{})
	must(t, err)
	is(10, "young done 7", "old running 5")
	p := b.past.progress
	p.State, p.Done = Running, 6
	must(t, b.write(entry{Progress: &p}))
	is(10, "young done 7", "old running 6")
	must(t, b.file.Close())
	must(t, b.release()) // as the end of the process does
	is(10, "young done 7", "old cut off 6")
	ended(t, j, "third", Progress{State: Done})
	is(2, "third done 0", "young done 7")
	must(t, os.WriteFile(filepath.Join(j.dir, "redrives", "begun.jsonl"), nil, 0o600))
	is(2, "third done 0", "young done 7")
	must(t, os.WriteFile(filepath.Join(j.dir, "redrives", "begun.jsonl"), []byte(`{"redrive":{"id":"begun","created":"2999-01-01T00:00:00Z"}}`+"\n"), 0o600))
	is(2, "begun cut off 0", "third done 0")
}

// The short way to the progress of a redrive tells the same as all its steps.
func TestASummaryIsWhatAllStepsSay(t *testing.T) {
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	b, err := j.begin(Redrive{ID: "o-1", Action: Send, Source: "queue q"}, nil)
	must(t, err)
	for _, step := range []entry{
		{Taking: 3}, {Try: []string{"a", "b", "c"}}, {Sent: []string{"a"}}, {Progress: &Progress{State: Running, Matched: 3, Done: 1}}, {Sent: []string{"b"}}, {Left: []string{"c"}},
		{Gone: []string{"a", "b"}}, {Progress: &Progress{State: Failed, Matched: 3, Done: 2, Failed: 1, Error: "c"}}, {Run: &run{Action: resume, Done: 2}}, {Try: []string{"c"}}, {Sent: []string{"c"}},
		{Progress: &Progress{State: Done, Matched: 3, Done: 3}},
	} {
		must(t, b.write(step))
		if p, known := j.summary("o-1"); known {
			h, err := j.history("o-1")
			must(t, err)
			if p.State != Running { // else it tells how far it was lately
				h.progress.MaybeDuplicate = p.MaybeDuplicate
				if fmt.Sprint(p) != fmt.Sprint(h.progress) || p.Redrive.ID != "o-1" {
					t.Errorf("after %+v: %+v, want %+v", step, p, h.progress)
				}
			}
		} else if step.Progress != nil {
			t.Errorf("after %+v nothing is known", step)
		}
	}
	must(t, b.end(Progress{State: Done, Done: 3}))
}

// Prune deletes what nobody can go on with, and says so.
func TestAJournalIsPruned(t *testing.T) {
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	if n, err := j.Prune(time.Now(), By{}); n != 0 || err != nil {
		t.Errorf("no journal: %d, %v", n, err)
	}
	for id, p := range map[string]Progress{
		"done": {State: Done, Done: 4}, "done-too": {State: Done}, "partly": {State: Done, Failed: 1}, "doubt": {State: Done, MaybeSent: 1}, "stopped": {State: Stopped}, "failed": {State: Failed},
	} {
		ended(t, j, id, p)
	}
	b, err := j.begin(Redrive{ID: "running", Action: Send, Source: "queue q"}, nil)
	must(t, err)
	must(t, b.write(entry{Progress: &Progress{State: Running}}))
	idsOf(t, j, 10)
	if n, err := j.Prune(time.Now().Add(-time.Hour), By{Who: "ada"}); n != 0 || err != nil {
		t.Errorf("younger: %d, %v", n, err)
	}
	n, err := j.Prune(time.Now().Add(time.Hour), By{Who: "ada", Why: "space"})
	if n != 2 || err != nil {
		t.Errorf("%d pruned: %v, want 2", n, err)
	}
	must(t, b.end(Progress{State: Failed}))
	var left []string
	found, err := j.Redrives(10)
	must(t, err)
	for _, p := range found {
		left = append(left, p.Redrive.ID)
	}
	slices.Sort(left)
	if want := []string{"doubt", "failed", "partly", "running", "stopped"}; !slices.Equal(left, want) {
		t.Errorf("left: %q, want %q", left, want)
	}
	files, err := os.ReadDir(filepath.Join(j.dir, "redrives"))
	must(t, err)
	for _, f := range files {
		if len(f.Name()) > 3 && f.Name()[:4] == "done" {
			t.Errorf("%s is left", f.Name())
		}
	}
	audit, err := j.Audit(100)
	must(t, err)
	i := slices.IndexFunc(audit, func(r Record) bool { return r.Action == "prune" })
	if i < 0 || audit[i].By.Who != "ada" || audit[i].By.Why != "space" || audit[i].Result != "done" || !bytes.Contains([]byte(audit[i].Which), []byte("2 redrives that ended before")) {
		t.Errorf("audit: %+v", audit)
	}
}
