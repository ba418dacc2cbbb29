package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// A client at rest has a consumer on an empty queue and a channel for publishing; in an
// alarm it also has a message that was written and not read. Each side is a process of its
// own, so that its CPU is counted alone, and both are measured at the same time. The broker
// is rehoptest, whose alarm and absence last as long as they are wanted.

// restName is the name that the rows have for -filter.
const restName = "at rest: CPU per hour"

// restFor is how long a state is measured. restSettles is between its begin and that. In the
// first minute without a broker a Conn dials three times a second.
const (
	restFor         = 20 * time.Second
	restSettles     = 3 * time.Second
	restSettlesAway = 70 * time.Second
)

// restSides are the programs by their names in the table.
var restSides = map[string]func(ctx context.Context, url string) (publish func(), err error){
	"rehop": rehopAtRest,
	"raw":   rawAtRest,
}

// restEnv has the side and the URL of a child.
const restEnv = "REHOP_BENCH_AT_REST"

const restQueue = "rest"

// restResult is the CPU of both sides in one state, each per hour.
type restResult struct {
	State string        `json:"state"`
	Rehop time.Duration `json:"rehop_ns"`
	Raw   time.Duration `json:"raw_ns"`
}

// restChild runs a side, if the process was started as one, and does not return then. For
// each line on its input it says how much CPU it has used; the line "publish" has it publish
// a message first.
func restChild() {
	side, url, found := strings.Cut(os.Getenv(restEnv), " ")
	if !found {
		return
	}
	publish, err := restSides[side](context.Background(), url)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", side, "at rest:", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "publish" {
			publish()
		}
		fmt.Println(usageNow().cpu.Nanoseconds())
	}
	os.Exit(0)
}

// restProcess is a side that runs.
type restProcess struct {
	in   io.WriteCloser
	out  *bufio.Scanner
	wait func() error
}

func startAtRest(ctx context.Context, side, url string) (*restProcess, error) {
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), restEnv+"="+side+" "+url)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &restProcess{in: in, out: bufio.NewScanner(out), wait: c.Wait}
	if !p.out.Scan() {
		return nil, errors.Join(errors.New("it has not begun"), c.Wait())
	}
	return p, nil
}

// tell sends a line, and returns the CPU that the process has used.
func (p *restProcess) tell(line string) (time.Duration, error) {
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return 0, err
	}
	if !p.out.Scan() {
		return 0, errors.Join(errors.New("it has ended"), p.out.Err())
	}
	ns, err := strconv.ParseInt(p.out.Text(), 10, 64)
	return time.Duration(ns), err
}

func (p *restProcess) close() { p.in.Close(); _ = p.wait() }

// atRest measures both sides in each state.
func atRest(ctx context.Context) (results []restResult, err error) {
	broker, err := rehoptest.NewBroker(rehoptest.Config{Heartbeat: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	defer broker.Close()
	address, err := broker.Listen()
	if err != nil {
		return nil, err
	}
	processes := map[string]*restProcess{}
	for side := range restSides {
		if processes[side], err = startAtRest(ctx, side, "amqp://guest:guest@"+address+"/"); err != nil {
			return nil, fmt.Errorf("%s: %w", side, err)
		}
		defer processes[side].close()
	}
	for _, state := range []struct {
		name, tell string
		begin      func()
		settles    time.Duration
	}{
		{"idle", "", func() {}, restSettles},
		{"in an alarm", "publish", func() { broker.Block("low on memory") }, restSettles},
		{"its broker is away", "", broker.Stop, restSettlesAway},
	} {
		state.begin()
		for _, p := range processes {
			if _, err := p.tell(state.tell); err != nil {
				return results, err
			}
		}
		if !pause.For(ctx, state.settles) {
			return results, context.Cause(ctx)
		}
		r := restResult{State: state.name}
		before := map[string]time.Duration{}
		for side, p := range processes {
			if before[side], err = p.tell(""); err != nil {
				return results, err
			}
		}
		if !pause.For(ctx, restFor) {
			return results, context.Cause(ctx)
		}
		for side, p := range processes {
			cpu, err := p.tell("")
			if err != nil {
				return results, err
			}
			perHour := (cpu - before[side]) * (time.Hour / restFor)
			if side == "rehop" {
				r.Rehop = perHour
			} else {
				r.Raw = perHour
			}
		}
		results = append(results, r)
	}
	return results, nil
}

// printAtRest prints the rows of clients at rest.
func printAtRest(w io.Writer, rows []restResult) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\nclients that have nothing to do, each in a process, measured for %v; the ratio is raw to rehop\n\n", restFor)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "ratio\tCPU s/h\traw\t  row")
	for _, r := range rows {
		fmt.Fprintf(table, "%.2f\t%.2f\t%.2f\t  %s, %s\n", float64(r.Raw)/float64(r.Rehop), r.Rehop.Seconds(), r.Raw.Seconds(), restName, r.State)
	}
	_ = table.Flush() // to the terminal: there is nobody to tell
}

func rehopAtRest(ctx context.Context, url string) (publish func(), err error) {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{url}})
	if err != nil {
		return nil, err
	}
	work := topology.WorkQueue{Name: "rehop." + restQueue, Type: topology.Quorum}
	if err := topology.Declare(ctx, conn, work); err != nil {
		return nil, err
	}
	p, err := producer.New(conn, producer.Config{Timeout: time.Hour})
	if err != nil {
		return nil, err
	}
	m := producer.Message{RoutingKey: work.Name}
	if _, err := p.Publish(ctx, m); err != nil {
		return nil, err
	}
	c, err := consumer.New(conn, work, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
	if err != nil {
		return nil, err
	}
	go func() { _ = c.Run(ctx) }() // until the process ends
	return func() { p.PublishAsync(ctx, m, func(producer.Receipt, error) {}) }, nil
}

// rawAtRest is a plain program that dials again every second while its broker is away.
func rawAtRest(_ context.Context, url string) (publish func(), err error) {
	channels := make(chan *amqp.Channel, 1)
	failed := make(chan error, 1)
	go func() {
		for ; ; time.Sleep(time.Second) { //nolint:forbidigo // the plain program's pause
			lost, channel, err := rawRest(url)
			if err != nil {
				select {
				case failed <- err:
				default:
				}
				continue
			}
			select {
			case channels <- channel:
			default:
			}
			<-lost //nolint:errcheck // why the broker is away does not matter
		}
	}()
	select {
	case channel := <-channels:
		return func() {
			_, _ = channel.PublishWithDeferredConfirm("", "raw."+restQueue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
		}, nil
	case err := <-failed:
		return nil, err
	}
}

// rawRest connects, consumes and opens a channel in confirm mode.
func rawRest(url string) (lost <-chan *amqp.Error, publishing *amqp.Channel, err error) {
	conn, consuming, err := rawChannel(url)
	if err != nil {
		return nil, nil, err
	}
	lost = conn.NotifyClose(make(chan *amqp.Error, 1))
	_, err = consuming.QueueDeclare("raw."+restQueue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	if err == nil {
		var deliveries <-chan amqp.Delivery
		if deliveries, err = consuming.Consume("raw."+restQueue, consumerTag, true, false, false, false, nil); err == nil {
			go func() {
				for range deliveries { //nolint:revive // it has nothing to do
				}
			}()
			publishing, err = conn.Channel()
		}
	}
	if err == nil {
		err = publishing.Confirm(false)
	}
	if err == nil {
		_, err = publishing.PublishWithDeferredConfirm("", "raw."+restQueue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
	}
	if err != nil {
		_ = conn.Close()
	}
	return lost, publishing, err
}
