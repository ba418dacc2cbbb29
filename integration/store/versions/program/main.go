// Command program is one side of a roll-out: a service of this version beside one of
// another. The test builds it at two commits. So its arguments and the lines that it
// prints stay as they are, whatever becomes of the SDK's names.
//
//	program serve FOLDER      handles and forwards until its standard input ends
//	program publish NAME N    publishes N messages, half of them with a delay
//	program store NAME N FOLDER  stores N messages in the outbox
//	program redrive FOLDER    sends the dead letters back, two a second
//	program resume FOLDER ID  goes on with that redrive
//
// AMQP_URL has the broker. FOLDER has the database and the journal. Each line is a word and
// what it is about: "ready", "ran ID ATTEMPT", "redrive ID", "sent N".
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

var orders = topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Second, 2 * time.Second}}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "program:", err)
		os.Exit(1)
	}
}

var saying sync.Mutex

func say(words ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(words...)
}

func run(ctx context.Context, args []string) error {
	conn, err := connection.Open(ctx, connection.Config{
		URLs:   []string{os.Getenv("AMQP_URL")},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := topology.Declare(ctx, conn, topology.Delays{Max: time.Minute}, orders); err != nil {
		return err
	}
	switch args[0] {
	case "serve":
		return serve(ctx, conn, args[1])
	case "publish":
		return publish(ctx, conn, args[1], args[2])
	case "store":
		return put(ctx, args[1], args[2], args[3])
	case "redrive", "resume":
		return redrive(ctx, conn, args[1:])
	}
	return fmt.Errorf("no such task: %q", args[0])
}

func openStore(ctx context.Context, folder string) (*store.Store, func() error, error) {
	db, err := sqlite.Open(filepath.Join(folder, "outbox.db"))
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(ctx, db, store.SQLite, store.Config{KeepOrder: true})
	return s, db.Close, err
}

// serve handles each message at its third attempt. Those whose id begins with "dead" become
// letters at the first, and are done when a person has sent them back.
func serve(ctx context.Context, conn *connection.Conn, folder string) error {
	outbox, done, err := openStore(ctx, folder)
	if err != nil {
		return err
	}
	defer done()
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	defer publisher.Close()
	forwarder, err := outbox.NewForwarder(publisher, store.ForwardConfig{})
	if err != nil {
		return err
	}
	worker, err := consumer.New(conn, orders, func(_ context.Context, d *consumer.Delivery) error {
		say("ran", d.ID, d.Attempt)
		switch {
		case strings.HasPrefix(d.ID, "dead") && d.History.Redrives == 0:
			return consumer.DeadLetter(errors.New("no such customer"))
		case !strings.HasPrefix(d.ID, "dead") && d.Attempt < 3:
			return errors.New("the printer is out of paper")
		}
		return nil
	}, consumer.Config{Concurrency: 8})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- worker.Run(ctx) }()
	go func() { ended <- forwarder.Run(ctx) }()
	say("ready")
	_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	stop()
	return errors.Join(<-ended, <-ended)
}

func publish(ctx context.Context, conn *connection.Conn, name, number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	p, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	defer p.Close()
	var messages []producer.Message
	for i := range n {
		m := producer.Message{RoutingKey: orders.Name, ID: fmt.Sprint(name, "-", i), Body: []byte("{}")}
		if i%2 == 1 {
			m.Delay = 2 * time.Second
		}
		messages = append(messages, m)
	}
	_, err = p.PublishAll(ctx, messages)
	say("published", n)
	return err
}

func put(ctx context.Context, name, number, folder string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	outbox, done, err := openStore(ctx, folder)
	if err != nil {
		return err
	}
	defer done()
	for i := range n {
		m := producer.Message{RoutingKey: orders.Name, ID: fmt.Sprint(name, "-", i), OrderKey: "anna", Body: []byte("{}")}
		if _, err := outbox.PutAt(ctx, time.Now(), m); err != nil {
			return err
		}
	}
	say("stored", n)
	return nil
}

// redrive sends the letters back at a pace at which the test can kill it. Each letter that
// has left is a line.
func redrive(ctx context.Context, conn *connection.Conn, args []string) error {
	journal, err := desk.OpenJournal(filepath.Join(args[0], "journal"))
	if err != nil {
		return err
	}
	live, err := desk.NewLive(conn, orders.DeadLetterQueue().Name, desk.LiveConfig{Journal: journal})
	if err != nil {
		return err
	}
	by := desk.By{Who: "anna", Why: "the customer is known now"}
	tell := func(p desk.Progress) { say("redrive", p.Redrive.ID, p.Done) }
	var p desk.Progress
	if len(args) > 1 {
		p, err = live.Resume(ctx, args[1], by, tell)
	} else {
		p, err = live.Execute(ctx, desk.Redrive{Action: desk.Send, All: true, By: by, Rate: 2}, tell)
	}
	say("sent", p.Done)
	return err
}
