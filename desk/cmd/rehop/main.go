// Command rehop looks at the dead letters of RabbitMQ, says why they are there, and
// sends them back.
//
//	rehop queues
//	rehop dlq groups orders.dlq
//	rehop dlq send orders.dlq --error "no stock" --rate 100
//	rehop doctor
//
// The broker is named by --url, by the variable AMQP_URL, or by a file; see rehop
// help. Package desk does the work.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
)

// Exit codes.
const (
	exitDone    = 0
	exitFailed  = 1 // nothing or not all was done, for the reason that was printed
	exitUsage   = 2 // the command line is wrong
	exitPartly  = 3 // some letters failed and are still where they were; export: it would leave some out; doctor: warnings; verify: a difference
	exitStopped = 4 // a redrive was stopped, by a person or by its canary
	exitNothing = 5 // no letter matched, also of a list, an export or a dry run
)

// exit is an error with a code. An empty text is not printed.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], standard())
	stop()
	os.Exit(code)
}

// run runs a command line and returns its exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	defer a.close()
	root := a.root()
	root.SetArgs(args)
	err := a.named(root.ExecuteContext(desk.WithBy(ctx, desk.By{Who: who()})))
	if err == nil {
		return exitDone
	}
	if text := withoutSecrets(said.Text(err.Error()), args); text != "" {
		fmt.Fprintln(s.err, "rehop:", text)
	}
	var e *exit
	var faulty *renamed
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, desk.ErrNoLetter):
		return exitNothing
	case errors.As(err, &faulty) && rehop.ClassOf(err) == rehop.ClassBug: // such as a number out of its bounds
		return exitUsage
	}
	return exitFailed
}
