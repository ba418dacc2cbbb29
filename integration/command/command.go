// Package command runs the programs of this module.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a program with the arguments of the command line. An interrupt or a SIGTERM
// ends ctx. An error goes to stderr, behind the name of the program, and ends the process
// with status 1.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		end()
		os.Exit(1)
	}
}
