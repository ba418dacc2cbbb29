package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

const (
	// startPatience covers a start on a machine with twenty times its load.
	startPatience = 5 * time.Minute

	// startedLine is part of what the server prints when all is up, plugins included.
	// It is no record of the server's log, of which the server drops records while
	// hundreds of clients connect.
	startedLine = "completed with "
)

// awaitReady returns when the server serves. An open port does not say so:
// Docker's proxy accepts connections long before the server does.
func (c *containerServer) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience,
		fmt.Errorf("not ready after %v", startPatience))
	defer cancel()
	if err := c.awaitStarted(ctx); err != nil {
		return fmt.Errorf("broker: start: %w%s", err, c.lastWords(ctx))
	}
	var answer error
	if err := poll(ctx, func() (bool, error) {
		answer = greet(ctx, c.amqpURL)
		return answer == nil, nil
	}); err != nil {
		return fmt.Errorf("broker: start: %w: %w", err, answer)
	}
	return nil
}

// greet returns nil when the server at an AMQP URL begins a handshake. It asks the
// server itself: rabbitmq-diagnostics starts an Erlang virtual machine for that.
func greet(ctx context.Context, amqpURL string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	u, err := url.Parse(amqpURL)
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, "AMQP\x00\x00\x09\x01"); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// poll asks until the answer is yes, an error, or too late.
func poll(ctx context.Context, ask func() (bool, error)) error {
	for {
		yes, err := ask()
		if yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// awaitStarted follows the log of this start, not of earlier ones, up to the
// line that ends it.
func (c *containerServer) awaitStarted(ctx context.Context) error {
	is, err := c.provider.Client().ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	err = c.copyLogs(ctx, &lineFinder{line: []byte(startedLine)}, client.ContainerLogsOptions{
		Follow: true,
		Since:  is.Container.State.StartedAt,
	})
	switch {
	case errors.Is(err, errFound):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	default:
		return errors.New("the server ended before it was up")
	}
}

// lastWords is the end of the log, for the error of a start that failed.
func (c *containerServer) lastWords(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var text strings.Builder
	err := c.copyLogs(ctx, &text, client.ContainerLogsOptions{Tail: "20"})
	if err != nil || text.Len() == 0 {
		return ""
	}
	return "; its last words:\n" + text.String()
}

var errFound = errors.New("found")

// lineFinder ends a copy with errFound as soon as a line contains the text.
type lineFinder struct{ line, seen []byte }

func (f *lineFinder) Write(p []byte) (int, error) {
	f.seen = append(f.seen, p...)
	if bytes.Contains(f.seen, f.line) {
		return 0, errFound
	}
	// Only an unfinished line can still become the one that is looked for.
	if i := bytes.LastIndexByte(f.seen, '\n'); i >= 0 {
		f.seen = f.seen[i+1:]
	}
	return len(p), nil
}
