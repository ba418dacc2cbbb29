package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// childEnv holds the task of a test binary that is to be a consumer and be killed.
const childEnv = "REHOP_FAULTS_CHILD"

// task is what the child does: consume the queues, and stop for ever with each
// message that has reached the gap in its trigger attempt, or with none.
type task struct {
	URL         string
	Queues      []topology.WorkQueue
	Gap         gap
	Concurrency int // more than there are messages: each blocks a place
}

// event is what the child reports, one line of JSON each.
type event struct {
	What        string // begin, end, gap
	ID          string
	Attempt     int
	Redelivered bool
	At, Due     time.Time
}

// child is a whole program. It ends by SIGKILL, or when its parent is gone.
func child(encoded string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if err := consumeUntilKilled(encoded); err != nil {
		log.Print("child: ", err)
	}
	os.Exit(2)
}

func consumeUntilKilled(encoded string) error {
	var t task
	if err := json.Unmarshal([]byte(encoded), &t); err != nil {
		return err
	}
	ctx := context.Background()
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{t.URL}})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(what string, d *consumer.Delivery, due time.Time) {
		line, err := json.Marshal(event{what, d.ID, d.Attempt, d.Redelivered, time.Now(), due})
		if err != nil {
			log.Fatal("child: ", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
			os.Exit(3) // nobody listens any more
		}
	}
	hooks := func(g gap) func(*consumer.Delivery) {
		return func(d *consumer.Delivery) {
			if g == t.Gap && d.Attempt == trigger(d.Type) {
				say("gap", d, time.Time{})
				select {}
			}
		}
	}
	ended := make(chan error)
	for _, w := range t.Queues {
		handler := func(_ context.Context, d *consumer.Delivery) error {
			say("begin", d, time.Time{})
			hooks(inHandler)(d)
			due, err := outcome(w.Waits, d.Type, d.Attempt, time.Now())
			say("end", d, due)
			return err
		}
		received, handled, copied, confirmed := hooks(beforeHandler), hooks(afterHandler), hooks(beforeConfirm), hooks(beforeAck)
		trace := consumer.Trace{
			Received: func(d *consumer.Delivery) {
				if d.Attempt > trigger(d.Type) {
					select {} // a copy that came back before the kill: for the parent
				}
				received(d)
			},
			Handled:   func(d *consumer.Delivery, _ error, _ time.Duration) { handled(d) },
			Copied:    func(d *consumer.Delivery, _ topology.Address) { copied(d) },
			Confirmed: func(d *consumer.Delivery, _ topology.Address) { confirmed(d) },
		}
		consumers, each := 1, t.Concurrency
		switch t.Gap {
		case beforeAck: // what stops there stops all that is confirmed after it
			consumers, each = each, 1
		case inBurst:
			trace = consumer.Trace{}
		}
		for range consumers {
			c, err := consumer.New(conn, w, handler, consumer.Config{Concurrency: each, Trace: trace})
			if err != nil {
				return err
			}
			go func() { ended <- c.Run(ctx) }()
		}
	}
	return fmt.Errorf("a consumer ended: %w", <-ended)
}

// runChildToGap starts a child, writes what it reports into the ledger of each
// queue, waits until so many messages are at the gap, and kills it. In a burst
// they are those that a handler has ended with.
func runChildToGap(t *testing.T, job task, ledgers map[string]*ledger, messages int) (ids map[string]bool, err error) {
	t.Helper()
	encoded, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(encoded))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(60*time.Second, func() { _ = cmd.Process.Kill() })
	defer late.Stop()

	ids = map[string]bool{}
	open := map[string]func(bool, time.Time){}
	lines := bufio.NewScanner(out)
	killed := false
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Errorf("child printed %q: %v", lines.Text(), err)
			continue
		}
		l := ledgers[queueOf(e.ID)]
		switch e.What {
		case "begin":
			open[e.ID] = l.begin(e.ID, run{attempt: e.Attempt, redelivered: e.Redelivered, child: true})
		case "end":
			open[e.ID](e.Due.IsZero(), e.Due)
			delete(open, e.ID)
		}
		if e.What == "gap" || e.What == "end" && job.Gap == inBurst {
			ids[e.ID] = true
		}
		if len(ids) >= messages && !killed {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id, end := range open { // the process ended in the handler
		end(false, time.Time{})
		delete(open, id)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !killed || !errors.As(err, &exit) || exit.ExitCode() != -1 {
		return ids, fmt.Errorf("the child ended with (%w) and %d of %d messages at the gap", err, len(ids), messages)
	}
	return ids, nil
}
