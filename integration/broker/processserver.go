package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// processServer is a broker that is a child process. An epmd of its own, where
// Erlang nodes find each other, lives from its first start to Close: a
// rabbitmqctl that finds none starts one that nobody would end.
type processServer struct {
	private
	inst installation

	mu   sync.Mutex // one change of state at a time
	vm   *child     // the server, an Erlang VM; nil before the first start
	epmd *child     // nil before the first start
}

func newProcessServer(inst installation, opts Options) (*processServer, error) {
	node, err := newPrivate(inst, opts)
	if err != nil {
		return nil, err
	}
	return &processServer{private: node, inst: inst}, nil
}

func (p *processServer) Name() string          { return p.name }
func (p *processServer) AMQPURL() string       { return p.amqpURL }
func (p *processServer) AMQPSURL() string      { return p.amqpsURL }
func (p *processServer) ManagementURL() string { return p.managementURL }

func (p *processServer) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.up() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %v", startPatience))
	defer cancel()
	if err := p.startEpmd(ctx); err != nil {
		return fmt.Errorf("broker: start: epmd: %w", err)
	}
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("broker: start: %w", err)
	}
	defer log.Close()
	earlier, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("broker: start: %w", err)
	}
	server := p.command(p.inst.program("rabbitmq-server"))
	server.Stdout, server.Stderr = log, log
	if p.vm, err = startChild(server); err != nil {
		return fmt.Errorf("broker: start: %w", err)
	}
	if err := p.awaitStarted(ctx, earlier); err != nil {
		_ = p.vm.signal(syscall.SIGKILL) // down, as after any start that went wrong
		<-p.vm.ended
		return fmt.Errorf("broker: start: %w; its last words:\n%s", err, p.lastWords())
	}
	return nil
}

func (p *processServer) Stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.up() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stopPatience, fmt.Errorf("still up after %v", stopPatience))
	defer cancel()
	if err := p.vm.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("broker: stop: %w", err)
	}
	if err := p.vm.await(ctx); err != nil {
		return fmt.Errorf("broker: stop: %w", err)
	}
	return nil
}

func (p *processServer) Kill(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("broker: kill: %w", err)
	}
	if err := p.vm.await(ctx); err != nil {
		return fmt.Errorf("broker: kill: %w", err)
	}
	return nil
}

// Pause returns when the server is silent: it takes a signal a little after it
// was sent, and may answer until then.
func (p *processServer) Pause(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("broker: pause: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("not all of its threads have stopped"))
	defer cancel()
	if err := poll(ctx, func() (bool, error) { return p.vm.frozen(), nil }); err != nil {
		return fmt.Errorf("broker: pause: %w", err)
	}
	return nil
}

func (p *processServer) Unpause(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("broker: unpause: %w", err)
	}
	return nil
}

func (p *processServer) signal(sig syscall.Signal) error {
	if !p.up() {
		return errDown
	}
	return p.vm.signal(sig)
}

func (p *processServer) Exec(ctx context.Context, args ...string) (string, error) {
	if len(args) == 0 {
		return "", errors.New("broker: Exec without a command")
	}
	var output bytes.Buffer
	cmd := p.command(p.inst.program(args[0]), args[1:]...)
	cmd.Stdout, cmd.Stderr = &output, &output
	c, err := startChild(cmd)
	if err != nil {
		return "", fmt.Errorf("broker: %s: %w", strings.Join(args, " "), err)
	}
	if err := c.await(ctx); err != nil {
		_ = c.signal(syscall.SIGKILL)
		<-c.ended
		return output.String(), fmt.Errorf("broker: %s: %w", strings.Join(args, " "), err)
	}
	if !cmd.ProcessState.Success() {
		return output.String(), fmt.Errorf("broker: %s: %v: %s",
			strings.Join(args, " "), cmd.ProcessState, bytes.TrimSpace(output.Bytes()))
	}
	return output.String(), nil
}

func (p *processServer) Logs(context.Context) (string, error) {
	text, err := os.ReadFile(p.logFile())
	if err != nil {
		return "", fmt.Errorf("broker: logs: %w", err)
	}
	return string(text), nil
}

// Close ends the server before its epmd, which it would start again.
func (p *processServer) Close(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []*child{p.vm, p.epmd} {
		if c != nil && c.running() {
			_ = c.signal(syscall.SIGKILL) // fails if it has just ended
			<-c.ended
		}
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("broker: close: %w", err)
	}
	return nil
}

func (p *processServer) up() bool        { return p.vm != nil && p.vm.running() }
func (p *processServer) logFile() string { return filepath.Join(p.dir, "console.log") }

// command is a program in the environment of this node.
func (p *processServer) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.WaitDelay = time.Second // for grandchildren that keep its output open
	return cmd
}

// startEpmd returns when it listens: the server would start another one.
func (p *processServer) startEpmd(ctx context.Context) error {
	if p.epmd != nil && p.epmd.running() {
		return nil
	}
	var err error
	if p.epmd, err = startChild(p.command("epmd")); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		if !p.epmd.running() {
			return false, fmt.Errorf("it does not run; port %d: address already in use?", p.ports.epmd)
		}
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.ports.epmd))
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
}

// awaitStarted follows the log of this start, which begins after earlier ones,
// up to the line that ends it. The server listens by then.
func (p *processServer) awaitStarted(ctx context.Context, earlier int64) error {
	log, err := os.Open(p.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := log.Seek(earlier, io.SeekStart); err != nil {
		return err
	}
	finder := &lineFinder{line: []byte(startedLine)}
	return poll(ctx, func() (bool, error) {
		running := p.up() // asked first: its last words may still be the line
		_, err := io.Copy(finder, log)
		switch {
		case errors.Is(err, errFound):
			return true, nil
		case err != nil:
			return false, err
		case !running:
			return false, errors.New("the server ended before it was up")
		}
		return false, nil
	})
}

func (p *processServer) lastWords() string {
	text, _ := os.ReadFile(p.logFile()) // of what cannot be read there are none
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
