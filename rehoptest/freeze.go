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
	every time.Duration
	ends  func(report string) // the program
	warns func(report string)

	bubble chan string // its name, as the stacks show it
	end    chan struct{}
	wg     sync.WaitGroup
}

const (
	lookEvery = time.Second
	looks     = 10 // in a row that find the bubble frozen
)

func watch() *watcher {
	warns := func(report string) { fmt.Fprint(os.Stderr, report) }
	return newWatcher(lookEvery, warns, func(report string) {
		warns(report)
		panic("rehoptest: the bubble is frozen")
	})
}

func newWatcher(every time.Duration, warns, ends func(report string)) *watcher {
	w := &watcher{every: every, warns: warns, ends: ends, bubble: make(chan string, 1), end: make(chan struct{})}
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
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for p := (patience{}); ; {
		select {
		case <-tick.C:
		case <-w.end:
			return
		}
		s := frozen(goroutines(), name)
		switch p.after(s) {
		case goOn:
		case warn:
			w.warns(s.report(looks * w.every))
		case giveUp:
			w.ends(s.report(looks * w.every))
			return
		}
	}
}

// patience is what the looks so far have found.
type patience struct {
	culprit string
	frozen  int  // looks in a row that have found this culprit
	alone   int  // looks in a row that have found no helper either
	warned  bool // once is enough
}

type verdict uint8

const (
	goOn verdict = iota
	warn
	giveUp
)

// after returns what to do after a further look. The program ends only if nobody has
// been seen for so long who could end the wait: a goroutine outside of the bubble may
// do so, even if it is slow.
func (p *patience) after(s still) verdict {
	if s.culprit == "" || s.culprit != p.culprit {
		p.culprit, p.frozen, p.alone = s.culprit, 0, 0
		return goOn
	}
	p.frozen++
	if p.alone++; s.helper != "" {
		p.alone = 0
	}
	switch {
	case p.alone >= looks:
		return giveUp
	case p.frozen >= looks && !p.warned:
		p.warned = true
		return warn
	}
	return goOn
}

// bubbleOf finds the bubble in the first line of a goroutine's stack.
var bubbleOf = regexp.MustCompile(`^goroutine \d+ [^\[]*\[.*(synctest bubble \d+)`)

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

// still is a bubble in which time stands still; the zero value is one that goes on.
type still struct {
	culprit string // the stack of a goroutine that keeps the bubble from going on
	helper  string // that of one which may end the wait of the culprit; "": none is seen
	all     string // the stacks of the bubble
}

func (s still) report(since time.Duration) string {
	helper := ""
	if s.helper != "" {
		helper = fmt.Sprintf("This goroutine may still end the wait, so the test goes on:\n\n%s\n\n", s.helper)
	}
	return fmt.Sprintf("rehoptest: the bubble has been frozen for %v: time in it stands still, because a goroutine waits for a lock, or for a channel or a sync.WaitGroup that was made outside of the bubble:\n\n%s\n\n%sAll goroutines of the bubble:\n\n%s\n",
		since, s.culprit, helper, s.all)
}

// frozen finds out whether a bubble stands still. It does if all its goroutines wait, and
// one of them for what does not count: the bubble's time does not pass meanwhile.
func frozen(stacks, bubble string) (s still) {
	var list []string
	for _, stack := range strings.Split(stacks, "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		m := bubbleOf.FindStringSubmatch(head)
		inside := m != nil && m[1] == bubble
		if inside {
			list = append(list, stack)
		}
		switch doing := stateOf(head); {
		case inside && doing == works:
			return still{}
		case inside && doing == blocked && s.culprit == "":
			s.culprit = stack
		case doing == reads, !inside && doing == works && !endsNoWait(stack):
			s.helper = stack
		}
	}
	if s.culprit == "" {
		return still{}
	}
	s.all = strings.Join(list, "\n\n")
	return s
}

// state is what a goroutine does.
type state uint8

const (
	works   state = iota // it runs, or is about to
	reads                // it waits for the world
	blocked              // it waits for another goroutine, or for a timer
	durable              // it waits for one of its own bubble, or for its time
)

var waitOf = regexp.MustCompile(`\[([^],]*)`)

// stateOf returns the state that the first line of a goroutine's stack shows.
func stateOf(head string) state {
	m := waitOf.FindStringSubmatch(head)
	if m == nil {
		return works
	}
	wait := m[1]
	if strings.Contains(wait, "(durable)") || wait == "synctest.Run" {
		return durable
	}
	if wait == "IO wait" {
		return reads
	}
	for _, of := range []string{"chan ", "select", "sync.", "semacquire"} {
		if strings.HasPrefix(wait, of) {
			return blocked
		}
	}
	return works
}

// endsNoWait reports whether a goroutine only seems to work: it is a watcher, waits for
// signals, or belongs to the runtime.
func endsNoWait(stack string) bool {
	for _, of := range []string{"rehoptest.(*watcher).run", "os/signal.signal_recv", "created by runtime."} {
		if strings.Contains(stack, of) {
			return true
		}
	}
	return false
}
