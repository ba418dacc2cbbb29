// Office is a service outside rehop's tree that is upgraded while it works. It bills
// orders, and says so by a receipt, on a real broker, with a store:
//
//	office serve FOLDER        works until SIGTERM; publishes what is in the outbox until its standard input ends
//	office try OLD NEW FOLDER  replaces the office of the folder OLD by that of NEW, and ends with an account
//
// OLD and NEW have the programs office and rehop of two versions. AMQP_URL has the broker,
// FOLDER gets the database and the journal.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/service"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/elastic"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// An office with Elasticsearch would collect its letters there.
var _ consumer.Handler = (*elastic.Store)(nil).Collect

const patience = 2 * time.Minute

// A late order fails twice. The office is replaced while it is in its second wait.
var (
	orders   = topology.WorkQueue{Name: "office.orders", Waits: delay.Schedule{time.Second, 30 * time.Second}}
	receipts = topology.WorkQueue{Name: "office.receipts", Waits: delay.Schedule{time.Second}}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "serve":
		err = serve(ctx, args[1])
	case len(args) == 4 && args[0] == "try":
		err = try(ctx, args[1], args[2], args[3])
	default:
		err = errors.New("usage: office serve FOLDER | office try OLD NEW FOLDER")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "office:", err)
		os.Exit(1)
	}
}

func connect(ctx context.Context) (*connection.Conn, error) {
	cfg, err := connection.FromEnv("AMQP")
	if err != nil {
		return nil, err
	}
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	cfg.OnConnect = func(ctx context.Context, conn *connection.Conn) error {
		return topology.Declare(ctx, conn, orders, receipts)
	}
	return connection.Open(ctx, cfg)
}

func open(ctx context.Context, folder string) (*sql.DB, *store.Store, error) {
	db, err := sqlite.Open(filepath.Join(folder, "office.db"))
	if err != nil {
		return nil, nil, err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS bills (id TEXT)"); err != nil {
		return nil, nil, err
	}
	s, err := store.Open(ctx, db, store.SQLite, store.Config{})
	return db, s, err
}

func serve(ctx context.Context, folder string) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	db, outbox, err := open(ctx, folder)
	if err != nil {
		return err
	}
	defer db.Close()
	telemetry := otel.New(otel.Config{})
	publisher, err := producer.New(conn, producer.Config{Traces: []producer.Trace{telemetry.Producer()}})
	if err != nil {
		return err
	}
	defer publisher.Close()

	told := consumer.Config{Concurrency: 4, Traces: []consumer.Trace{telemetry.Consumer()}}
	billing, err1 := consumer.New(conn, orders, said(outbox.OnceHandler(bill(outbox))), told)
	noting, err2 := consumer.New(conn, receipts, said(outbox.OnceHandler(note)), told)
	collecting, err3 := consumer.New(conn, orders.DeadLetterQueue(), outbox.Collect, consumer.Config{})
	forwarder, err4 := outbox.NewForwarder(publisher, store.ForwardConfig{Traces: []store.ForwardTrace{telemetry.Forward()}})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	fmt.Println("ready")
	return service.Service{Stages: [][]service.Part{
		{billing, noting, collecting},
		{service.Func(func(ctx context.Context) error {
			publishing, end := context.WithCancel(ctx)
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin)
				end()
			}()
			if err := forwarder.Run(publishing); err != nil {
				return err
			}
			fmt.Println("stopped publishing")
			return nil
		})},
	}}.Run(ctx)
}

// said prints each run of a handler before it begins: its message, whether it was sent back,
// and its attempt.
func said(handle consumer.Handler) consumer.Handler {
	return func(ctx context.Context, d *consumer.Delivery) error {
		fmt.Println("ran", d.ID, min(d.History.Redrives, 1), d.Attempt)
		return handle(ctx, d)
	}
}

func bill(outbox *store.Store) consumer.Handler {
	return func(ctx context.Context, d *consumer.Delivery) error {
		switch {
		case strings.HasPrefix(d.ID, "dead") && d.History.Redrives == 0:
			return consumer.DeadLetter(errors.New("no such customer"))
		case strings.HasPrefix(d.ID, "late") && d.Attempt < 3:
			return errors.New("the printer is out of paper")
		}
		_, err := outbox.PutTx(ctx, store.TxFrom(ctx), producer.Message{RoutingKey: receipts.Name, ID: d.ID + "-receipt"})
		return errors.Join(err, note(ctx, d))
	}
}

func note(ctx context.Context, d *consumer.Delivery) error {
	_, err := store.TxFrom(ctx).ExecContext(ctx, "INSERT INTO bills (id) VALUES (?)", d.ID)
	return err
}

// office is a process that serves, and the lines that it has printed.
type office struct {
	command *exec.Cmd
	in      io.Closer
	read    chan struct{}

	mu    sync.Mutex
	ready bool
	quiet bool           // it has stopped publishing
	ran   map[string]int // how often, by what said prints
}

func start(programs, folder string) (*office, error) {
	o := &office{command: exec.Command(filepath.Join(programs, "office"), "serve", folder), read: make(chan struct{}), ran: map[string]int{}}
	o.command.Stderr = os.Stderr
	in, err1 := o.command.StdinPipe()
	out, err2 := o.command.StdoutPipe()
	if err := errors.Join(err1, err2, o.command.Start()); err != nil {
		return nil, err
	}
	o.in = in
	go func() {
		defer close(o.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			o.mu.Lock()
			switch word, rest, _ := strings.Cut(lines.Text(), " "); word {
			case "ready":
				o.ready = true
			case "stopped":
				o.quiet = true
			case "ran":
				o.ran[rest]++
			}
			o.mu.Unlock()
		}
	}()
	return o, until("office of "+programs, func() (bool, error) { return o.has(func() bool { return o.ready }), nil })
}

func (o *office) has(what func() bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return what()
}

// runs returns how many different runs there were whose words match.
func (o *office) runs(prefix, suffix string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for run := range o.ran {
		if strings.HasPrefix(run, prefix) && strings.HasSuffix(run, suffix) {
			n++
		}
	}
	return n
}

// stop replaces an office as a roll-out does. An office that has failed says so.
func (o *office) stop() error {
	if err := o.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-o.read
	return o.command.Wait()
}

// until looks until done says yes.
func until(what string, done func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < patience; <-tick.C {
		if yes, err := done(); yes || err != nil {
			return err
		}
	}
	return fmt.Errorf("waited %v for: %s", patience, what)
}

func try(ctx context.Context, oldPrograms, newPrograms, folder string) error {
	const dead, late, more = 10, 20, 50
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	db, outbox, err := open(ctx, folder)
	if err != nil {
		return err
	}
	defer db.Close()
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	defer publisher.Close()
	published := 0
	publish := func(ctx context.Context, kind string, n int) error {
		for i := range n {
			if _, err := publisher.Publish(ctx, producer.Message{RoutingKey: orders.Name, ID: fmt.Sprint(kind, "-", i)}); err != nil {
				return err
			}
			published++
		}
		return nil
	}
	count := func(states ...store.State) (int, error) { return outbox.Count(ctx, store.Query{States: states}) }
	rehop := func(programs string, args ...string) *exec.Cmd {
		c := exec.Command(filepath.Join(programs, "rehop"), args...)
		c.Env = append(os.Environ(), "REHOP_JOURNAL="+filepath.Join(folder, "journal"))
		return c
	}
	letters := filepath.Join(folder, "office.db")

	before, err := start(oldPrograms, folder)
	if err != nil {
		return err
	}
	defer func() { _ = before.command.Process.Kill() }() // if it still runs

	// Dead letters are collected. A person sends some of them back, and is interrupted.
	if err := publish(ctx, "dead", dead); err != nil {
		return err
	}
	err = until("dead letters in the store", func() (bool, error) { n, err := count(store.Held); return n == dead, err })
	if err != nil {
		return err
	}
	redrive := rehop(oldPrograms, "dlq", "send", "--store", letters, "--error", "no such customer", "--rate", "1")
	if err := redrive.Start(); err != nil {
		return err
	}
	err = until("letters that are sent back", func() (bool, error) { return before.runs("dead", " 1 1") >= 2, nil })
	_ = redrive.Process.Kill()
	_ = redrive.Wait() // it says that it was killed
	if err != nil {
		return err
	}

	// Late orders wait, publishing stops, and receipts gather in the outbox.
	if err := publish(ctx, "late", late); err != nil {
		return err
	}
	if err := until("late orders in their second wait", func() (bool, error) { return before.runs("late", " 2") == late, nil }); err != nil {
		return err
	}
	if err := before.in.Close(); err != nil {
		return err
	}
	if err := until("the end of publishing", func() (bool, error) { return before.has(func() bool { return before.quiet }), nil }); err != nil {
		return err
	}
	streaming, endStream := context.WithCancel(ctx)
	defer endStream()
	streamed := make(chan error, 1)
	ids := 0
	go func() { // orders come all the time, and no faster than a slow disk bills them, until after the replacement
		for tick := time.NewTicker(20 * time.Millisecond); streaming.Err() == nil; <-tick.C {
			if _, err := publisher.Publish(ctx, producer.Message{RoutingKey: orders.Name, ID: fmt.Sprint("order-", ids)}); err != nil {
				streamed <- err
				return
			}
			ids++
		}
		streamed <- nil
	}()
	if err := until("receipts in the outbox", func() (bool, error) { n, err := count(store.Ready); return n >= more, err }); err != nil {
		return err
	}

	// The replacement.
	if err := before.stop(); err != nil {
		return fmt.Errorf("the old office: %w", err)
	}
	stored, err := count(store.Ready)
	if err != nil {
		return err
	}
	held, err := count(store.Held)
	if err != nil {
		return err
	}
	after, err := start(newPrograms, folder)
	if err != nil {
		return err
	}
	defer func() { _ = after.command.Process.Kill() }()
	if err := until("orders that the new office bills", func() (bool, error) { return after.runs("order", " 1") >= more, nil }); err != nil {
		return err
	}
	endStream()
	if err := <-streamed; err != nil {
		return err
	}
	published += ids

	// The new command reads the journal and the store of the old one, and goes on with the redrive.
	var begun []struct {
		Redrive struct {
			ID string `json:"id"`
		} `json:"redrive"`
	}
	out, err := rehop(newPrograms, "redrives", "--output", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &begun)
	}
	if err != nil || len(begun) != 1 {
		return fmt.Errorf("the journal has %d redrives, want 1: %v\n%s", len(begun), err, out)
	}
	list, err := rehop(newPrograms, "dlq", "list", "--store", letters, "--output", "json").CombinedOutput()
	if err != nil || strings.Count(string(list), `"no such customer"`) < held {
		return fmt.Errorf("the new command lists other letters than the %d that are held: %v\n%s", held, err, list)
	}
	if out, err := rehop(newPrograms, "redrives", "resume", begun[0].Redrive.ID).CombinedOutput(); err != nil {
		return fmt.Errorf("the new command cannot resume %s: %w\n%s", begun[0].Redrive.ID, err, out)
	}

	billed, different := 0, 0
	bills := func() error {
		return db.QueryRowContext(ctx, "SELECT COUNT(*), COUNT(DISTINCT id) FROM bills").Scan(&billed, &different)
	}
	err = until("all bills and receipts", func() (bool, error) {
		n, err := count()
		return err == nil && n == 0 && different == 2*published, errors.Join(err, bills())
	})
	// With an error the account says more than the error does.
	stopped := after.stop()
	fmt.Printf("%d orders published, %d of them while the office was replaced; a receipt for each\n", published, ids)
	fmt.Printf("at the replacement: %d orders in their second wait, %d receipts in the outbox, %d dead letters in the store, a redrive cut off\n",
		after.runs("late", " 3"), stored, held)
	twice, faults := 0, 0
	for run, n := range after.ran {
		switch n += before.ran[run]; {
		case before.ran[run] == 1 && n == 2:
			twice++ // the old office had it in hand
		case n != 1:
			faults++
		}
	}
	for _, n := range before.ran {
		if n != 1 {
			faults++
		}
	}
	for i := range late {
		for attempt := 1; attempt <= 3; attempt++ {
			if run := fmt.Sprint("late-", i, " 0 ", attempt); before.ran[run]+after.ran[run] == 0 {
				faults++
			}
		}
	}
	fmt.Printf("billed or noted %d of %d; lost %d; billed twice %d; delivered twice by the replacement %d, otherwise %d attempts twice or missing\n",
		different, 2*published, 2*published-different, billed-different, twice, faults)
	switch {
	case err != nil || stopped != nil:
		return errors.Join(err, stopped)
	case billed != different || faults > 0:
		return errors.New("the account is wrong")
	case stored == 0 || held == 0 || after.runs("late", " 3") == 0:
		return errors.New("nothing was in flight")
	}
	fmt.Println("the new command has read the journal and the store of the old one, and has sent back the rest of its redrive")
	return nil
}
