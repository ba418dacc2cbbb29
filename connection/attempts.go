package connection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/pause"
)

// errOpenTimeout is the cause of Open's ctx when Config.OpenTimeout has passed.
var errOpenTimeout = errors.New("OpenTimeout has passed")

// unsureLimit is the number of tries in a row after which a socket that is closed at login
// counts as a wrong password.
const unsureLimit = 3

// attempts are the tries of one dial so far. A caller that leaves the dial reads
// them for its error.
type attempts struct {
	began time.Time

	mu      sync.Mutex
	count   int
	last    []error // by endpoint
	refused []int   // by endpoint: refusals in a row
}

func newAttempts(n int) *attempts {
	return &attempts{began: time.Now(), last: make([]error, n), refused: make([]int, n)}
}

// resumed returns the attempts of the next dial in the same outage: the errors of
// these stand until there are new ones.
func (a *attempts) resumed() *attempts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &attempts{began: time.Now(), last: slices.Clone(a.last), refused: slices.Clone(a.refused)}
}

// cheap reports whether no broker had work with the last try at any endpoint.
func (a *attempts) cheap() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !slices.ContainsFunc(a.last, func(err error) bool { return !isCheap(err) })
}

// add notes a failed try of endpoint i.
func (a *attempts) add(i int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	a.last[i] = err
	var r *refusal
	if errors.As(err, &r) {
		a.refused[i]++
	} else {
		a.refused[i] = 0
	}
}

// cut records a try of endpoint i that Close has cut short, for the error of Open. It
// keeps an earlier error of the endpoint. It keeps only the text of err, because err may
// wrap a context.Canceled that did not come from the caller.
func (a *attempts) cut(i int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	if a.last[i] == nil {
		a.last[i] = errors.New(err.Error())
	}
}

// final reports that no other try could help: a broker has refused, and so would the rest
// of its cluster, or each endpoint has a fault of its own.
func (a *attempts) final() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.class() != rehop.ClassTransient
}

// class needs a.mu held.
func (a *attempts) class() rehop.Class {
	own := 0
	for i, err := range a.last {
		var r *refusal
		if !errors.As(err, &r) || !r.sure && a.refused[i] < unsureLimit {
			continue
		}
		if r.broker {
			return r.Class()
		}
		own++
	}
	if own == len(a.last) {
		return rehop.ClassConfiguration
	}
	return rehop.ClassTransient
}

// any reports whether any endpoint has failed.
func (a *attempts) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.last, func(err error) bool { return err != nil })
}

// verdict lists the last result at each endpoint.
func (a *attempts) verdict() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.errorf("")
}

// failure is verdict for the end of ctx. life is that of the Conn.
func (a *attempts) failure(ctx, life context.Context) error {
	why := context.Cause(ctx)
	if life.Err() != nil && why == context.Cause(life) { //nolint:errorlint // an error that wraps it is of a caller's
		return ErrClosed
	}
	cause := pause.Ended(ctx)
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
	if why != errOpenTimeout { //nolint:errorlint // as above
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
	class  rehop.Class
}

func (e *dialError) Error() string      { return e.text }
func (e *dialError) Unwrap() []error    { return e.causes }
func (e *dialError) Class() rehop.Class { return e.class }
