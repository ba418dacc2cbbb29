package desk

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Somebody who wants to go on with a redrive that another process has is told which one, and since when.
// From then on the redrive is running, also before the process has come to its broker.
func TestARedriveThatAnotherProcessHasSaysWho(t *testing.T) {
	dir := t.TempDir()
	mine, err := OpenJournal(dir)
	must(t, err)
	other, err := OpenJournal(dir)
	must(t, err)
	host, err := os.Hostname()
	must(t, err)
	ended(t, other, "o-2", Progress{State: Done, Done: 4})
	ended(t, other, "o-1", Progress{State: Stopped, Done: 4})
	state := func(want State) {
		t.Helper()
		p, err := mine.Redrive("o-1")
		if list, unlisted := mine.Redrives(1); err != nil || unlisted != nil || p.State != want || list[0].State != want || p.Done != 4 {
			t.Errorf("%v %v: %+v, in the list %+v, want it %s", err, unlisted, p, list, want)
		}
	}
	refused := func(want ...string) {
		t.Helper()
		_, err := reopen(t.Context(), mine, About{Name: "queue q"}, nil, "o-1", By{})
		for _, text := range append(want, "another process works on it", "stop it and resume it when it has ended") {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want %q", err, text)
			}
		}
	}
	state(Stopped)
	p, err := other.Redrive("o-1")
	must(t, err)
	waits := errors.New("it waits for the broker")
	who := fmt.Sprintf("ben, in process %d on %s, since ", os.Getpid(), host)
	_, err = other.take(p.Redrive, By{Who: "ben"}, func(*book) error {
		state(Running)
		refused(who)
		must(t, os.WriteFile(other.lockFile("o-1"), nil, 0o600)) // a process that has only just taken it
		refused()
		return waits
	})
	if !errors.Is(err, waits) {
		t.Error(err)
	}
	state(Stopped)
	b, err := reopen(t.Context(), other, About{Name: "queue q"}, nil, "o-1", By{Who: "ben"})
	must(t, err)
	state(Running)
	refused(who)
	must(t, b.end(Progress{Redrive: p.Redrive, State: Stopped, Done: 4}))
	state(Stopped)
	if _, err := reopen(t.Context(), mine, About{Name: "queue q"}, nil, "o-2", By{}); err == nil || !strings.Contains(err.Error(), "o-2 is done") {
		t.Errorf("a redrive that is done: %v", err)
	}
}
