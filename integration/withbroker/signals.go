package main

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// passOn arranges, before cmd is started, how a signal that withbroker gets
// reaches cmd and its children exactly once, and returns what does it.
//
// In the foreground of a terminal cmd stays in our process group, so that it may
// read the keyboard, and a Ctrl-C reaches it without us. Elsewhere it gets a group of
// its own, so that a signal to our group does not reach it twice.
func passOn(cmd *exec.Cmd) func(syscall.Signal) {
	if inForeground() {
		return func(sig syscall.Signal) {
			if sig != syscall.SIGINT {
				_ = cmd.Process.Signal(sig) // fails only if it has just ended
			}
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func(sig syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, sig) }
}

func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
