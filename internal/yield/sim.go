//go:build rehopsim

package yield

import "sync/atomic"

var hook atomic.Pointer[func()]

// Here calls the hook.
func Here() {
	if f := hook.Load(); f != nil {
		(*f)()
	}
}

// Set sets the hook.
func Set(f func()) { hook.Store(&f) }
