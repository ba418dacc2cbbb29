package connection

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/rehop/rehop"
)

// protect runs f, which calls a function of the user, and makes an error of its
// panic.
func protect(log *slog.Logger, what string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("connection: "+what+" panicked", "panic", p, "stack", string(debug.Stack()))
			err = rehop.WithClass(fmt.Errorf("panic: %v", p), rehop.ClassBug)
		}
	}()
	return f()
}
