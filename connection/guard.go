package connection

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// protect runs f, which calls a function of the user, and makes an error of its
// panic.
func protect(log *slog.Logger, what string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("connection: "+what+" panicked", "panic", p, "stack", string(debug.Stack()))
			err = WithClass(fmt.Errorf("panic: %v", p), Bug)
		}
	}()
	return f()
}
