//go:build unix

package desk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// inChild runs the test in a process of its own, and reports whether this is that process: the limit on the size of
// files holds for a whole process, and go test writes a file of its own meanwhile.
func inChild(t *testing.T) bool {
	t.Helper()
	const self = "REHOP_TEST_OF_A_FULL_DISK"
	if os.Getenv(self) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), self+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// The letters of a file on a full disk are told, and none is sent, dropped or written twice.
func TestADiskIsFull(t *testing.T) {
	if !inChild(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	for _, action := range []Action{Send, Drop} {
		inBubble(t, versions[0], func(w *fixture) {
			letters := orders(9)
			for i := range letters {
				letters[i].Body = append(bytes.Repeat([]byte("."), 10_000), letters[i].Body...)
			}
			w.dead(letters...)
			live := w.live()
			r := Redrive{ID: "mine", Action: action, All: true, CopyTo: w.journal.DroppedTo("mine")}
			if body := []byte("changed"); action == Send {
				r.Edit, r.To = &Edit{Body: &body}, address("parked")
				w.parked()
			}
			live.gap = func(moment string) {
				if moment == "matched" {
					_ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 35_000, Max: before.Max}) // three letters and a half
				}
			}
			p, err := live.Execute(w.Context(), r, nil)
			must(w.T, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
			if !errors.Is(err, syscall.EFBIG) || errors.Is(err, ErrTarget) || p.State != Failed || p.Done != 3 || p.Failed != 6 {
				if action != Drop || p.Done != 3 || p.Failed != 6 || !strings.Contains(p.Error, "file too large") {
					w.Errorf("%s: %v: %+v, want it failed after 3 letters", action, err, p)
				}
			}
			live.gap = nil
			w.has("orders.dlq", 6)
			if p, err := live.Resume(w.Context(), "mine", By{}, nil); err != nil || p.Done != 9 || p.MaybeDuplicate != 0 {
				w.Errorf("%s: %v: %+v, want 9 done, each once", action, err, p)
			}
			copied := readFile(w.T, r.CopyTo)
			for i := range letters {
				if n := bytes.Count(copied, fmt.Appendf(nil, `order %d"`, i)); n != 1 {
					w.Errorf("%s: the file has letter %d %d times", action, i, n)
				}
			}
			w.has("orders.dlq", 0)
		})
	}
}

// A line of a redrive that a full disk has cut off swallows no later one.
func TestAJournalOnAFullDiskGoesOn(t *testing.T) {
	if !inChild(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	b, err := j.begin(Redrive{ID: "mine", Action: Send, All: true}, nil)
	must(t, err)
	must(t, b.write(entry{Try: []string{"a", "b"}}))
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	full := syscall.Rlimit{Cur: uint64(len(readFile(t, b.file.Name())) + 5), Max: before.Max}
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	err = b.write(entry{Kept: []string{"b"}})
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
	if !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("the disk was not full: %v", err)
	}
	must(t, b.write(entry{Sent: []string{"a"}}))
	must(t, b.end(Progress{State: Failed, Done: 1}))
	past, err := j.history("mine")
	if err != nil || !past.sent["a"] || past.open["a"] || past.progress.State != Failed {
		t.Errorf("%v: %+v, want a sent, and the end", err, past)
	}
}
