// Withbroker runs a command beside a RabbitMQ of its own:
//
//	withbroker [-version 3.10|4.0|4.3] [-nodes n] [-outage 10s,20s] [-kill 20s,3s] -- command [argument ...]
//
// With -outage the broker is stopped once, so long after the command has
// started, and started again so much later. With -kill it is killed instead, by SIGKILL.
//
// The command finds the broker in AMQP_URL and RABBITMQ_MANAGEMENT_URL, and the
// addresses of all its nodes, the first one first, in AMQP_URLS, with commas
// between them. Signals are passed on to it, its exit status becomes
// withbroker's, and the broker goes when it has ended. If AMQP_URL is set
// already, that broker is used and kept.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/rehop/rehop/integration/broker"
)

const usage = `usage: withbroker [-version %s] [-nodes n] [-outage after,length] [-kill after,length] -- command [argument ...]

  -version   of RabbitMQ; the newest there is if it is not given
  -nodes     how many nodes the broker has; 1 if it is not given
  -outage    stop the broker so long after the start of the command, for so long
  -kill      the same with SIGKILL

The same demo on another version:

  go run ./integration/withbroker -version 3.10 -- go run ./examples/tickets
`

func main() { os.Exit(run(os.Args[1:])) }

// run returns the exit status: the command's own, 128 + n if signal n ended it,
// 127 if it cannot be run, 2 for bad usage, and 1 if there is no broker.
func run(args []string) int {
	flags := flag.NewFlagSet("withbroker", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprintf(flags.Output(), usage, strings.Join(broker.Series, "|")) }
	version := flags.String("version", "", "")
	nodes := flags.Int("nodes", 1, "")
	var planned outage
	flags.Func("outage", "", planned.parse)
	flags.Func("kill", "", func(text string) error { planned.kill = true; return planned.parse(text) })
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() == 0 || *nodes < 1 || *version != "" && !slices.Contains(broker.Series, *version) {
		flags.Usage()
		return 2
	}

	if planned.length > 0 && os.Getenv("AMQP_URL") != "" {
		complain(errors.New("-outage and -kill stop a broker of their own: unset AMQP_URL, which names another one"))
		return 2
	}

	// Before the broker: an early Ctrl-C must find somebody who cleans up.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	b, status := start(signals, broker.Options{Version: *version, Nodes: *nodes, Name: "withbroker"})
	if b == nil {
		return status
	}
	defer func() {
		if err := b.Close(context.Background()); err != nil {
			complain(err)
		}
	}()
	defer planned.begin(b)()
	return runBeside(b, signals, flags.Args())
}

// start starts the broker; a signal that comes meanwhile gives up. Without a
// broker the exit status says why.
func start(signals <-chan os.Signal, opts broker.Options) (*broker.Broker, int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type started struct {
		broker *broker.Broker
		err    error
	}
	done := make(chan started, 1)
	go func() {
		b, err := broker.Start(ctx, opts)
		done <- started{b, err}
	}()

	select {
	case s := <-done:
		if s.err != nil {
			complain(s.err)
			return nil, 1
		}
		return s.broker, 0
	case sig := <-signals:
		cancel()
		if s := <-done; s.broker != nil { // it was faster than the signal
			_ = s.broker.Close(context.Background()) // if not now, then with this process
		}
		return nil, 128 + int(sig.(syscall.Signal))
	}
}

// runBeside runs the command and passes the signals on until it ends.
func runBeside(b *broker.Broker, signals <-chan os.Signal, args []string) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(),
		"AMQP_URL="+b.AMQPURL(),
		"AMQP_URLS="+strings.Join(b.AMQPURLs(), ","),
		"RABBITMQ_MANAGEMENT_URL="+b.ManagementURL(), "AMQP_MANAGEMENT_URL="+b.ManagementURL())
	pass := passOn(cmd)
	if err := cmd.Start(); err != nil {
		complain(err)
		return 127
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			pass(sig.(syscall.Signal))
		case err := <-done:
			return exitStatus(err)
		}
	}
}

func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		complain(err)
		return 1
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return exit.ExitCode()
}

func complain(err error) { fmt.Fprintln(os.Stderr, "withbroker:", err) }
