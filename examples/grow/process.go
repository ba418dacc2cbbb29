package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// work is a process that handles bills until SIGTERM, or until the parent is gone.
func work(shards topology.Shards) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	signal.Ignore(os.Interrupt) // Ctrl-C is for the parent
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{os.Getenv("AMQP_URL")}, Logger: logger})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := topology.Declare(ctx, conn, shards); err != nil {
		return err
	}
	var printing sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(e event) {
		e.At = time.Now()
		printing.Lock()
		defer printing.Unlock()
		_ = out.Encode(e)
	}
	worker, err := consumer.New(conn, shards, func(_ context.Context, d *consumer.Delivery) error {
		e := event{What: begin, Queue: d.Queue, Attempt: d.Attempt, Redelivered: d.Redelivered}
		if err := json.Unmarshal(d.Body, &e.bill); err != nil {
			return consumer.DeadLetter(err)
		}
		tell(e)
		time.Sleep(handling)
		if d.Attempt == 1 && e.fails() {
			e.What = failed
			tell(e)
			return errors.New("the printer is out of paper")
		}
		e.What = done
		tell(e)
		return nil
	}, consumer.Config{Concurrency: 16, KeyLimit: 1, RetryInPlace: true})
	if err != nil {
		return err
	}
	tell(event{What: ready})
	return worker.Run(ctx)
}

// process is a child.
type process struct {
	number int
	cmd    *exec.Cmd
	ended  chan struct{} // closed after the last event
}

// start starts a process that knows so many shards, and waits until it is ready. note is called with each of its events, and
// fail if it ends by itself.
func start(number, shards int, note func(event), fail func(error)) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{number: number, cmd: exec.Command(self, "-work", strconv.Itoa(shards)), ended: make(chan struct{})}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if _, err := p.cmd.StdinPipe(); err != nil { // it ends with this process
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	isReady := make(chan struct{})
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				fail(err)
			}
			e.Process = number
			if e.What == ready {
				close(isReady)
				continue
			}
			note(e)
		}
		var exit *exec.ExitError
		if err := p.cmd.Wait(); errors.As(err, &exit) && exit.Exited() {
			fail(fmt.Errorf("process %d: %w", number, err))
		}
	}()
	select {
	case <-isReady:
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("process %d has ended before it was ready", number)
	}
}

// end ends the process by a signal, and waits for its last event.
func (p *process) end(by os.Signal) {
	_ = p.cmd.Process.Signal(by) // it may have ended
	<-p.ended
}
