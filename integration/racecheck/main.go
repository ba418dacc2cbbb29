// Racecheck runs a command that runs tests with the race detector. If the detector itself
// has failed, racecheck runs the command again:
//
//	racecheck go test -race ./...
//
// Once in some thirty runs of package consumer, whose tests have many thousands of
// goroutines, the detector ends the process with a failed check of its own (seen with Go
// 1.26.8, as "ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346"). On an idle machine it also
// reads memory that it does not have, in three of four runs of package desk, each in another test
// (PC in StackDepotBase::Put of its own C++ code). Neither says anything about the
// tests. go test has the results of the packages that passed in its cache. A test that fails,
// and a race, end racecheck at once.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"

	"github.com/rehop/rehop/integration/command"
)

// tries is how often the command runs at most.
const tries = 3

func main() {
	command.Main("racecheck", func(ctx context.Context, args []string) error { return run(ctx, args, os.Stdout, os.Stderr) })
}

func run(ctx context.Context, args []string, out, err io.Writer) error {
	if len(args) == 0 {
		return errors.New("want a command")
	}
	for try := 1; ; try++ {
		var seen watch
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, io.MultiWriter(out, &seen), io.MultiWriter(err, &seen)
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
		failed := c.Run()
		if failed == nil || !seen.failed() || try == tries || ctx.Err() != nil {
			return failed
		}
		_, _ = fmt.Fprintln(err, "racecheck: the race detector itself has failed, and no test: once more") // nobody reads it otherwise
	}
}

// broken is how a failure of the detector reads: it says so, or the runtime meets a signal outside Go code, and beside the C
// library the detector is the only such code of our tests. A fault in Go code is a panic, or a fatal error, and reads differently.
var broken = [][]byte{[]byte("ThreadSanitizer: CHECK failed"), []byte("SIGSEGV: segmentation violation\nPC=")}

// longest is more than the length of each of these.
const longest = 64

// watch looks for the failure of the detector in all that is written to it.
type watch struct {
	mu    sync.Mutex
	last  []byte // of the text so far
	found bool
}

func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := slices.Concat(w.last, p)
	w.found = w.found || slices.ContainsFunc(broken, func(b []byte) bool { return bytes.Contains(text, b) })
	w.last = bytes.Clone(text[max(0, len(text)-longest):])
	return len(p), nil
}

func (w *watch) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found
}
