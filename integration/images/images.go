// Package images builds Docker images of RabbitMQ from Debian's packages, for
// machines that cannot pull the official ones. The work is done by the script
// build beside this file, which can also be run by hand.
package images

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

//go:embed build
var script string

// Name is what the image of a RabbitMQ series ("3.10", "4.0", "4.3") is called.
func Name(series string) string { return "rehop-rabbitmq:" + series }

// Build makes the image of one series, unless it is there already, and tells
// progress what it is doing. It takes about half a minute and needs bash,
// docker and apt. Builds in several processes at once do not disturb each other.
func Build(ctx context.Context, series string, progress io.Writer) error {
	var last lastLine
	cmd := exec.CommandContext(ctx, "bash", "-s", "--", series)
	cmd.Stdin = strings.NewReader(script)
	cmd.Stderr = io.MultiWriter(progress, &last)
	// A group of its own, told to stop as a whole: mmdebstrap then removes its files.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("images: build of %s: %w", Name(series), ctx.Err())
		}
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("images: build of %s: %w", Name(series), err)
		}
		return fmt.Errorf("images: build of %s: %w: %s", Name(series), err, last.String())
	}
	return nil
}

// lastLine keeps the last full line that was written: the script ends with what
// went wrong.
type lastLine struct{ buf []byte }

func (l *lastLine) Write(p []byte) (int, error) {
	l.buf = append(l.buf, p...)
	done := strings.TrimRight(string(l.buf), "\n")
	if i := strings.LastIndexByte(done, '\n'); i >= 0 {
		l.buf = l.buf[i+1:]
	}
	return len(p), nil
}

func (l *lastLine) String() string { return strings.TrimSpace(string(l.buf)) }
