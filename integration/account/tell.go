package account

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop"
)

// Story is what is known of a message.
type Story struct {
	ID    string
	Safe  bool
	Calls int  // of Publish
	Twice bool // a receipt said that it may have been sent twice
	Runs  []Run
	Ends  []End
	text  string
}

// Of returns what is known of a message.
func (a *Account) Of(id string) Story {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.number(id)
	if n == 0 {
		return Story{ID: id}
	}
	h := a.messages[n].unfold(a.start)
	return Story{ID: id, Safe: h.safe, Calls: int(h.calls), Twice: h.twice, Runs: slices.Clone(h.runs), Ends: slices.Clone(h.ends), text: h.String()}
}

func (s Story) String() string { return s.text }

// LastDue returns when the last wait of the message ends, zero without one.
func (s Story) LastDue() time.Time { return lastDue(s.Runs) }

func lastDue(runs []Run) (due time.Time) {
	for _, r := range runs {
		if r.Due.After(due) {
			due = r.Due
		}
	}
	return due
}

// Calls returns how often Publish was called with a message.
func (a *Account) Calls(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.number(id)
	if n == 0 {
		return 0
	}
	return int(a.messages[n].unfold(a.start).calls)
}

// IDs returns the ids of all messages that are safe.
func (a *Account) IDs() (safe []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n, m := range a.messages {
		if m.ordinary || m.history != nil && m.safe {
			safe = append(safe, a.id(n))
		}
	}
	return safe
}

// Begun returns how many runs of an attempt have begun.
func (a *Account) Begun(attempt int) (n int) {
	a.eachRun(func(r Run) {
		if r.Attempt == attempt {
			n++
		}
	})
	return n
}

// Caused returns how many letters have a cause.
func (a *Account) Caused(cause rehop.Cause) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.messages {
		if m.history == nil {
			continue
		}
		for _, e := range m.ends {
			if e.Place == Letter && e.Cause == cause {
				n++
			}
		}
	}
	return n
}

// RunAfter returns how long after t the next run began.
func (a *Account) RunAfter(t time.Time) (after time.Duration, ok bool) {
	a.eachRun(func(r Run) {
		if r.Began.After(t) && (!ok || r.Began.Sub(t) < after) {
			after, ok = r.Began.Sub(t), true
		}
	})
	return after, ok
}

func (a *Account) eachRun(do func(Run)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.messages {
		switch {
		case m.history != nil:
			for _, r := range m.runs {
				do(r)
			}
		case m.ordinary:
			do(Run{Attempt: 1, Call: 1, Began: a.start.Add(m.took)})
		}
	}
}

// Tell tells the story of the first few of many messages.
func (a *Account) Tell(ids []string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var s strings.Builder
	for i, id := range ids {
		if i == 8 {
			fmt.Fprintf(&s, "\n\tand %d more", len(ids)-i)
			break
		}
		n := a.number(id)
		fmt.Fprintf(&s, "\n\t%s: %s", id, a.messages[n].unfold(a.start))
	}
	return s.String()
}

// String tells what became of all messages in one line.
func (a *Account) String() string {
	c, lost, d := a.Counts(), len(a.Lost()), a.Doubled()
	a.mu.Lock()
	defer a.mu.Unlock()
	letters := map[string]int{}
	for _, m := range a.messages {
		if m.history == nil {
			continue
		}
		for _, e := range m.ends {
			if e.Place == Letter {
				letters[string(e.Cause)]++
			}
		}
	}
	var causes []string
	for _, cause := range slices.Sorted(maps.Keys(letters)) {
		causes = append(causes, fmt.Sprintf("%d %s", letters[cause], cause))
	}
	of := ""
	if len(causes) > 0 {
		of = " (" + strings.Join(causes, ", ") + ")"
	}
	return fmt.Sprintf("%d safe, %d publishes failed, %d handler runs; ended %d handled, %d as letters%s, %d in a queue; %d lost, %d doubled (%d copies)",
		c.Safe, c.Failed, c.Runs, c.Handled, c.Letters, of, c.Found, lost, d.Messages, d.Ends)
}
