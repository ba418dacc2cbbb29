// Package child lets a test run its own binary once more, as a process that is to be
// killed with SIGKILL at a moment that the test chooses.
package child

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
)

// env holds the task of a child.
const env = "REHOP_TEST_CHILD"

// Main returns at once in a test. In a child it calls work with the task that the
// test has set, and does not return. It comes first in TestMain.
func Main[Task any](work func(Task) error) {
	encoded := os.Getenv(env)
	if encoded == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the test is gone
	}()
	var task Task
	err := json.Unmarshal([]byte(encoded), &task)
	if err == nil {
		err = work(task)
	}
	log.Print("child: ", err)
	os.Exit(2)
}

var saying sync.Mutex

// Say tells the test of a child an event.
func Say(event any) {
	line, err := json.Marshal(event)
	if err != nil {
		log.Fatal("child: ", err)
	}
	saying.Lock()
	defer saying.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		os.Exit(3) // nobody listens any more
	}
}

// Process is a child that was started.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of its end

	awaited bool
}

// Start starts a child with a task. It is killed at the end of the test, if not
// before. heard is called with each event that the child tells, one after the other,
// and with the child, which it may kill. After the kill come the events that were
// told before.
func Start[Event any](t *testing.T, task any, heard func(*Process, Event)) *Process {
	t.Helper()
	encoded, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), env+"="+string(encoded))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe() // its end ends the child
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		defer in.Close()
		var faults []error
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var event Event
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				faults = append(faults, fmt.Errorf("the child printed %q: %w", lines.Text(), err))
				continue
			}
			heard(p, event)
		}
		if err := lines.Err(); err != nil {
			faults = append(faults, err)
			p.Kill() // nobody reads on
		}
		p.err = errors.Join(append(faults, killed(cmd.Wait()))...)
	}()
	t.Cleanup(func() {
		p.Kill()
		<-p.ended
		if p.err != nil && !p.awaited {
			t.Error(p.err)
		}
	})
	return p
}

// killed returns what is wrong with the end of a process that was to be killed.
func killed(end error) error {
	var exit *exec.ExitError
	if errors.As(end, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return errors.Join(errors.New("the child ended by itself"), end)
}

// Kill kills the child with SIGKILL. One that has ended stays so.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Wait waits until the child has ended and the last event was heard. The error says
// that it ended otherwise than by being killed. The test fails with it if nobody
// waits. Only its goroutine may.
func (p *Process) Wait() error {
	<-p.ended
	p.awaited = true
	return p.err
}
