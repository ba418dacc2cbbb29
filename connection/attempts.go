package connection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// errOpenTimeout is the cause of Open's ctx when Config.OpenTimeout has passed.
var errOpenTimeout = errors.New("OpenTimeout has passed")

// unsureLimit is after how many tries in a row a socket closed at login counts
// as a wrong password.
const unsureLimit = 3

// attempts is what one dial has met so far. Whoever waits for that dial reads
// it when giving up.
type attempts struct {
	began time.Time

	mu      sync.Mutex
	count   int
	last    []error // by target
	refused []int   // by target: refusals in a row
}

func newAttempts(n int) *attempts {
	return &attempts{began: time.Now(), last: make([]error, n), refused: make([]int, n)}
}

// add notes a failed try of target i. One that was cut short by the caller
// says nothing new about a target that has been tried before.
func (a *attempts) add(i int, err error, cut bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	if cut && a.last[i] != nil {
		return
	}
	a.last[i] = err
	var r *refusal
	if errors.As(err, &r) {
		a.refused[i]++
	} else {
		a.refused[i] = 0
	}
}

// failed returns how many tries have failed.
func (a *attempts) failed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// hopeless reports that after this round no other try could help: the broker
// has refused us, which it does in the name of its whole cluster, or each
// target has a fault of its own.
func (a *attempts) hopeless() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.class() != Transient
}

// class needs a.mu held.
func (a *attempts) class() Class {
	final := 0
	for i, err := range a.last {
		var r *refusal
		if !errors.As(err, &r) || !r.sure && a.refused[i] < unsureLimit {
			continue
		}
		if r.broker {
			return r.Class()
		}
		final++
	}
	if final == len(a.last) {
		return Configuration
	}
	return Transient
}

// verdict lists what happened last at each target.
func (a *attempts) verdict() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.errorf("")
}

// failure is verdict for the end of ctx.
func (a *attempts) failure(ctx context.Context) error {
	cause := ended(ctx)
	if errors.Is(cause, ErrClosed) {
		return ErrClosed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	tries := "tries"
	if a.count == 1 {
		tries = "try"
	}
	if a.count == 0 {
		return a.errorf("no connection yet, "+cause.Error(), cause)
	}
	text := fmt.Sprintf("no connection within %v (%d %s)", time.Since(a.began).Round(100*time.Millisecond), a.count, tries)
	if !errors.Is(cause, errOpenTimeout) {
		text += ", then " + cause.Error()
	}
	return a.errorf(text, cause)
}

func (a *attempts) errorf(text string, causes ...error) error {
	var each []string
	for _, err := range a.last {
		if err != nil {
			each = append(each, err.Error())
			causes = append(causes, err)
		}
	}
	if text != "" {
		each = []string{strings.TrimSuffix(text+": "+strings.Join(each, "; "), ": ")}
	}
	return &dialError{text: "connection: " + strings.Join(each, "; "), causes: causes, class: a.class()}
}

// dialError is one line of text over several causes.
type dialError struct {
	text   string
	causes []error
	class  Class
}

func (e *dialError) Error() string   { return e.text }
func (e *dialError) Unwrap() []error { return e.causes }
func (e *dialError) Class() Class    { return e.class }
