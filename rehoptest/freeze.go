package rehoptest

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// watcher looks at a bubble from outside, in real time.
type watcher struct {
	bubble chan string // its name, as the stacks show it
	end    chan struct{}
	wg     sync.WaitGroup
}

const (
	lookEvery = time.Second
	looks     = 10 // in a row that find the bubble frozen
)

// freezes ends the program.
var freezes = func(report string) {
	fmt.Fprint(os.Stderr, report)
	panic("rehoptest: the bubble is frozen")
}

func watch() *watcher {
	w := &watcher{bubble: make(chan string, 1), end: make(chan struct{})}
	w.wg.Go(w.run)
	return w
}

// found tells which bubble it is.
func (w *watcher) found(bubble string) { w.bubble <- bubble }

func (w *watcher) stop() {
	close(w.end)
	w.wg.Wait()
}

func (w *watcher) run() {
	var name string
	select {
	case name = <-w.bubble:
	case <-w.end:
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last := ""
	for n := 0; ; {
		select {
		case <-tick.C:
		case <-w.end:
			return
		}
		culprit, stacks := frozen(goroutines(), name)
		if culprit == "" || culprit != last {
			n, last = 0, culprit
			continue
		}
		if n++; n >= looks {
			freezes(fmt.Sprintf("rehoptest: the bubble has been frozen for %v: time in it stands still, because a goroutine waits for what no other goroutine of it does:\n\n%s\n\nAll goroutines of the bubble:\n\n%s\n",
				looks*lookEvery, culprit, stacks))
			return
		}
	}
}

// bubbleOf finds the bubble in the first line of a goroutine's stack.
var bubbleOf = regexp.MustCompile(`^goroutine \d+ (?:gp=\S+ m=\S+ )?\[.*(synctest bubble \d+)`)

// bubble is the name of the caller's bubble.
func bubble() string {
	b := make([]byte, 200)
	b = b[:runtime.Stack(b, false)]
	if m := bubbleOf.FindSubmatch(b); m != nil {
		return string(m[1])
	}
	return ""
}

func goroutines() string {
	b := make([]byte, 1<<16)
	for {
		n := runtime.Stack(b, true)
		if n < len(b) {
			return string(bytes.TrimSpace(b[:n]))
		}
		b = make([]byte, 2*len(b))
	}
}

// frozen returns the stack of a goroutine that keeps a bubble from going on, and the
// stacks of all in it. A bubble is frozen if all its goroutines wait and one of
// them waits for what does not count: the bubble's time does not pass meanwhile.
func frozen(stacks, bubble string) (culprit, all string) {
	var list []string
	for _, stack := range strings.Split(stacks, "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		if m := bubbleOf.FindStringSubmatch(head); m == nil || m[1] != bubble {
			continue
		}
		list = append(list, stack)
		switch {
		case strings.Contains(head, "(durable)") || strings.Contains(head, "[synctest.Run"):
		case strings.Contains(head, "[sync.Mutex.Lock") || strings.Contains(head, "[sync.RWMutex"):
			if culprit == "" {
				culprit = stack
			}
		default: // it runs, or waits for the world
			return "", ""
		}
	}
	return culprit, strings.Join(list, "\n\n")
}
