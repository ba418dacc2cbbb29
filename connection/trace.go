package connection

import "time"

// Trace is a set of hooks for metrics and tests. Nil hooks are not called. Hooks
// run on the goroutine that does the work, for both sockets concurrently, and
// must not wait for the Conn. A hook that panics is logged and otherwise ignored.
type Trace struct {
	// Try: one try at one URL ended. Err is nil if the broker let us in.
	Try func(Try)

	// State: the state of a socket changed. The changes of one socket come in
	// order, and none is left out.
	State func(State)
}

// Try is one try at one URL: TCP, TLS, login and virtual host.
type Try struct {
	Use  Use
	URL  string // without password
	Took time.Duration
	Err  error
}

func (t Trace) try(try Try) {
	if t.Try != nil {
		t.Try(try)
	}
}
