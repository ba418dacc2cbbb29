// Observe runs a program beside a Prometheus of its own that reads its metrics, asks
// every query of the dashboard and of the alerts, and draws what happened:
//
//	observe [-svg file] -- program [argument ...]
//
// The program gets -listen with an address on which it is to serve /metrics. Observe
// ends with an error if a query has no data. It needs prometheus and promtool.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	svg := flag.String("svg", "", "where to draw what happened")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *svg, flag.Args()); err != nil {
		log.Fatal("observe: ", err)
	}
}

func run(ctx context.Context, svg string, command []string) error {
	if len(command) == 0 {
		return errors.New("which program? See -h")
	}
	queries, err := readQueries("otel")
	if err != nil {
		return err
	}
	target, err := freeAddress()
	if err != nil {
		return err
	}
	p, err := startPrometheus(ctx, target, "otel/alerts/rehop.yml")
	if err != nil {
		return err
	}
	defer p.stop()

	began := time.Now()
	program := exec.CommandContext(ctx, command[0], append(command[1:], "-listen", target)...)
	program.Cancel = func() error { return program.Process.Signal(os.Interrupt) }
	program.WaitDelay = 30 * time.Second
	program.Stdout, program.Stderr = os.Stdout, os.Stderr
	if err := program.Run(); err != nil {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	ended := time.Now()

	empty := 0
	for _, q := range queries {
		series, err := p.queryRange(ctx, q.expr, began, ended)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", q.from, q.expr, err)
		}
		if len(series) == 0 {
			empty++
			fmt.Printf("NO DATA  %s\n         %s\n", q.from, q.expr)
		}
	}
	fmt.Printf("%d of %d queries of the dashboard and the alerts have data\n", len(queries)-empty, len(queries))
	if err := p.printAlerts(ctx, began, ended); err != nil {
		return err
	}
	if svg != "" {
		if err := draw(ctx, p, svg, began, ended); err != nil {
			return err
		}
	}
	if empty > 0 {
		return fmt.Errorf("%d queries have no data", empty)
	}
	return nil
}

// freeAddress returns an address on the loopback on which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// prometheus is a server with its data in a folder that goes with it.
type prometheus struct {
	address, dir string
	process      *exec.Cmd
	done         chan struct{} // closed when it has ended
}

func startPrometheus(ctx context.Context, target, rules string) (*prometheus, error) {
	rules, err := filepath.Abs(rules)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "observe-")
	if err != nil {
		return nil, err
	}
	p := &prometheus{address: address, dir: dir, done: make(chan struct{})}
	config := fmt.Sprintf("global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  evaluation_interval: 1s\nrule_files:\n  - %q\nscrape_configs:\n  - job_name: shop\n    static_configs:\n      - targets: [%q]\n", rules, target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p.process = exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	p.process.Stdout, p.process.Stderr = os.Stderr, os.Stderr
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.process.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w (Debian's package is named prometheus)", err), os.RemoveAll(dir))
	}
	go func() {
		defer close(p.done)
		_ = p.process.Wait() // it has said why on standard error
	}()
	if err := p.ready(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// ready waits until the server answers.
func (p *prometheus) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := p.query(ctx, "vector(1)", time.Now())
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return errors.New("prometheus has ended")
		case <-ctx.Done():
			return fmt.Errorf("prometheus does not answer: %w", err)
		}
	}
}

func (p *prometheus) stop() {
	_ = p.process.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.process.Process.Kill()
		<-p.done
	}
	if err := os.RemoveAll(p.dir); err != nil {
		log.Print("observe: ", err)
	}
}
