package broker

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// A program that is interrupted, panics or is killed cannot clean up after
// itself, so another one does it: this program once more, as a child that holds
// the other end of a pipe. When the pipe closes, the parent is gone, however it
// went, and the child removes all that carries the parent's run id.
const (
	runLabel  = "com.github.rehop.run" // of containers and networks
	runEnv    = "REHOP_RUN"            // of processes; folders have it in their names
	reaperEnv = "REHOP_REAP_RUN"

	// sweepFor is how long the reaper looks for what was still being made when
	// the parent died.
	sweepFor = 3 * time.Second
)

// runID marks what this process starts.
var runID = rand.Text()

// Here and not in a main function: any program that imports this package,
// every test binary first of all, must be able to be its own reaper.
func init() {
	if run := os.Getenv(reaperEnv); run != "" {
		reap(run)
		os.Exit(0)
	}
}

// lifeline is the parent's end of the pipe. It is never closed or collected; the
// kernel closes it when the process ends.
var lifeline *os.File //nolint:unused // what nothing refers to is collected, and closed

// startReaper starts this process's reaper, once.
var startReaper = sync.OnceValue(func() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("broker: reaper: %w", err)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("broker: reaper: %w", err)
	}
	defer theirs.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), reaperEnv+"="+runID)
	cmd.Dir = os.TempDir()
	cmd.Stdin = theirs // and no outputs: `go test` waits for whoever holds its own
	// A session of its own, so that what ends the parent's group leaves it alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = ours.Close()
		return fmt.Errorf("broker: reaper: %w", err)
	}
	lifeline = ours
	return nil
})

// reap waits for the parent's end and removes what it left.
func reap(run string) {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, os.Stdin) // returns when the parent is gone
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	sweep := func() int { return sweepProcesses(run) }
	if provider, err := connect(ctx); err == nil {
		sweep = func() int { return sweepProcesses(run) + sweepDocker(ctx, provider.Client(), run) }
	}
	clean := time.Now()
	_ = poll(ctx, func() (bool, error) { // too late or not, nobody is left to tell
		if sweep() > 0 {
			clean = time.Now()
		}
		return time.Since(clean) > sweepFor, nil
	})
}
