package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// stages returns how many orders are where, on one line of a terminal.
func (s summary) stages(waits int) string {
	at := map[place]int{}
	waitingAt := make([]int, waits)
	for _, r := range s.records {
		at[r.place]++
		if r.place == waiting {
			waitingAt[r.waitNumber-1]++
		}
	}
	return fmt.Sprintf("published %d  in work %2d  waiting %-11s  done %3d  dead %2d  letters %2d",
		len(s.records)-at[unpublished]-at[unsent],
		at[inWork],
		strings.ReplaceAll(strings.Trim(fmt.Sprint(waitingAt), "[]"), " ", "/"),
		at[done],
		at[deadLettered]+at[letterSent],
		at[letterSent])
}

// startProgress shows the progress in the background until stop is called.
func startProgress(out io.Writer, l *ledger) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- showProgress(ctx, out, l) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// showProgress prints where the orders are until ctx ends, and once more then:
// on a terminal as one line that is rewritten, elsewhere a line each second.
func showProgress(ctx context.Context, out io.Writer, l *ledger) error {
	start := time.Now()
	terminal := isTerminal(out)
	every := time.Second
	if terminal {
		every = 100 * time.Millisecond
	}
	show := func() error {
		line := fmt.Sprintf("%3.0fs  %s", time.Since(start).Seconds(), l.summary().stages(len(l.waits)))
		if terminal {
			// Back to the first column; clear the rest of a longer line.
			_, err := fmt.Fprintf(out, "\r%s\x1b[K", line)
			return err
		}
		_, err := fmt.Fprintln(out, line)
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := show(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			err := show()
			if err == nil && terminal {
				_, err = fmt.Fprintln(out)
			}
			return err
		}
	}
}

// besideProgress returns a writer of whole lines to out. On a terminal each takes the
// place of the line of the progress, which is soon written again below it.
func besideProgress(out io.Writer) io.Writer {
	if isTerminal(out) {
		return clearing{out}
	}
	return out
}

// clearing clears the line of a terminal before each write.
type clearing struct{ out io.Writer }

func (c clearing) Write(line []byte) (int, error) {
	if _, err := c.out.Write(append([]byte("\r\x1b[K"), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// isTerminal reports whether somebody looks at out as it is written.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
