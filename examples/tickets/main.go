// Tickets is a railway's ticket office. It publishes 200 paid orders and sends
// each passenger an SMS by an operator who is slow and often fails. A failed order
// waits and comes back, four times. A passenger whom no SMS can reach gets a letter. At
// the end it prints a table, and fails unless every order ended exactly once.
//
// With -keep it leaves the dead letters in their queue. With -work it is a worker for the
// orders that are sent back from there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"

	"github.com/rehop/rehop/connection"
)

func main() {
	scale := flag.Int("scale", defaultScale, "divide the waits 1m, 5m, 10m and 20m by this, 1 to 600")
	realWaits := flag.Bool("real", false, "wait 1m, 5m, 10m and 20m")
	keep := flag.Bool("keep", false, "leave the dead letters in their queue, to be looked at")
	work := flag.Bool("work", false, "send the SMS of orders that come back from the dead letters, until Ctrl-C; publish nothing")
	verbose := flag.Bool("v", false, "log what the SDK does to standard error")
	flag.Parse()
	if *realWaits {
		*scale = 1
	}
	level := slog.LevelError
	if *verbose {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(besideProgress(os.Stderr), &slog.HandlerOptions{Level: level}))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	if err := run(ctx, *scale, *keep, *work, os.Stdout, logger); err != nil {
		fmt.Fprintln(os.Stderr, "tickets:", err)
		os.Exit(1)
	}
}

// run checks its flags, connects, and runs the demo or the worker.
func run(ctx context.Context, scale int, keep, work bool, out io.Writer, logger *slog.Logger) error {
	if scale < 1 || scale > 600 {
		return fmt.Errorf("-scale is %d, want 1 to 600", scale)
	}
	url := os.Getenv("AMQP_URL")
	if url == "" {
		return errors.New("no broker: set AMQP_URL, or run it through `make demo`")
	}
	orders, err := readOrders(strings.NewReader(ordersCSV))
	if err != nil {
		return err
	}
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{url}, Logger: logger})
	if err != nil {
		return err
	}
	if work {
		w := worker{out: out}
		return errors.Join(w.serve(ctx, newSetup(conn.Server().Version, scale), conn), conn.Close())
	}
	demo := demo{conn: conn, orders: orders, scale: scale, keep: keep, out: out}
	return errors.Join(demo.run(ctx), conn.Close())
}
