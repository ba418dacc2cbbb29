// Package fault keeps since when something has been at fault.
package fault

import (
	"fmt"
	"time"

	"github.com/rehop/rehop"
)

// Fault is what the latest of several looks has found. Its zero value is no fault.
type Fault struct {
	Err   error
	Since time.Time
}

// Becomes notes what a look has found; nil is no fault. The Fault has lasted since the first of the looks
// in a row that found one.
func (f *Fault) Becomes(err error, now time.Time) {
	if f.Err == nil {
		f.Since = now
	}
	f.Err = err
}

// Degrades returns the fault as one that leaves something to work, nil for none. The error is what the format
// makes of args and Err.
func (f Fault) Degrades(format string, args ...any) *rehop.HealthError {
	if f.Err == nil {
		return nil
	}
	return &rehop.HealthError{Degraded: true, Since: f.Since, Cause: fmt.Errorf(format, append(args, f.Err)...)}
}
