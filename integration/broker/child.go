package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// child is a process of ours and the group that it leads.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
}

// startChild starts a command in a group of its own, out of reach of a Ctrl-C
// that is meant for the test.
func startChild(cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // how it ended shows in its log
	}()
	return c, nil
}

func (c *child) running() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// signal reaches the whole group. To one that has ended it is an error.
func (c *child) signal(sig syscall.Signal) error {
	if !c.running() {
		return errDown
	}
	err := syscall.Kill(-c.cmd.Process.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return errDown
	}
	return err
}

// await returns when the process has ended.
func (c *child) await(ctx context.Context) error {
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d goes on: %w", c.cmd.Process.Pid, context.Cause(ctx))
	}
}

// frozen says whether no thread of the group runs.
func (c *child) frozen() bool {
	group := strconv.Itoa(c.cmd.Process.Pid)
	stats, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/stat") // errs for bad patterns only
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// "id (name) state parent group ...", where a name can hold anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 2 && fields[2] == group && !strings.Contains("TZX", fields[0]) { // stopped or dead
			return false
		}
	}
	return true
}
