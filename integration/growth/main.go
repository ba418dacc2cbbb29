// Command growth measures how cost grows: with the size of messages, with the number of
// shards, with messages that wait, with work queues, and with bytes that a stalled broker
// does not confirm.
//
//	go run ./integration/withbroker -- go run ./integration/growth -out docs/growth
//
// For each experiment it writes a table of tabs, and an SVG for each of its plots. Where
// there is a plain amqp091-go program that does the same work, both take turns, and the
// table has the figures of both. Nothing here fails because it is slow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rehop/rehop/connection"
)

// experiment measures some figures at each of several sizes.
type experiment struct {
	name    string
	x       string
	at      []int
	columns []string
	plots   []plotted
	measure func(ctx context.Context, g *growth, x int) ([]float64, error)
	// begin, if there is one, returns a measure that keeps something from one size to the next, and its end.
	begin func(ctx context.Context, g *growth) (measure func(ctx context.Context, x int) ([]float64, error), end func(context.Context) error, err error)
}

// plotted is a plot of some columns.
type plotted struct {
	file, title, y string
	columns        []int
	logX, logY     bool
}

// growth is one run.
type growth struct {
	url      string
	api      string // of the management plugin
	duration time.Duration
	rounds   int
	most     int // messages that wait
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "growth:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	g := growth{url: os.Getenv("AMQP_URL"), api: os.Getenv("AMQP_MANAGEMENT_URL")}
	flags := flag.NewFlagSet("growth", flag.ContinueOnError)
	out := flags.String("out", "", "folder for the tables and plots; none: the tables are printed")
	only := flags.String("only", "", "run only experiments whose name matches this regular expression")
	flags.DurationVar(&g.duration, "duration", 2*time.Second, "about how long one side runs in one round")
	flags.IntVar(&g.rounds, "rounds", 3, "how often each side runs at each size")
	flags.IntVar(&g.most, "most", 1_000_000, "leave out sizes beyond so many waiting messages")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%q is no flag", flags.Arg(0)))
	}
	if g.duration <= 0 || g.rounds < 1 {
		errs = append(errs, fmt.Errorf("-duration is %v and -rounds is %d, want more than 0", g.duration, g.rounds))
	}
	if g.url == "" || g.api == "" {
		errs = append(errs, errors.New("AMQP_URL or AMQP_MANAGEMENT_URL is not set: run under integration/withbroker"))
	}
	wanted, err := regexp.Compile(*only)
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{g.url}})
	if err != nil {
		return err
	}
	version := conn.Server().Version
	if err := conn.Close(); err != nil {
		return err
	}
	for _, e := range experiments() {
		if !wanted.MatchString(e.name) {
			continue
		}
		rows, err := e.run(ctx, &g)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		table := e.table(rows)
		fmt.Printf("%s, broker %v\n\n%s\n", e.name, version, table)
		if *out == "" {
			continue
		}
		if err := os.MkdirAll(*out, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(*out, e.name+".tsv"), []byte(table), 0o644); err != nil {
			return err
		}
		for _, p := range e.plots {
			if err := e.draw(p, rows, filepath.Join(*out, p.file+".svg")); err != nil {
				return err
			}
		}
	}
	return nil
}

func experiments() []experiment {
	return []experiment{
		queues(), // first, because they say what memory a broker has that has done nothing else
		sizes(), shards(), waiting("waits"), waiting("delays"), waiting("store"), unconfirmed(),
	}
}

// row is what was measured at one size.
type row struct {
	x       int
	figures []float64
}

func (e experiment) run(ctx context.Context, g *growth) (rows []row, err error) {
	measure := func(ctx context.Context, x int) ([]float64, error) { return e.measure(ctx, g, x) }
	if e.begin != nil {
		var end func(context.Context) error
		if measure, end, err = e.begin(ctx, g); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx))) }()
	}
	for _, x := range e.at {
		if e.begin != nil && x > g.most {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s: %d %s\n", e.name, x, e.x)
		figures, err := measure(ctx, x)
		if err != nil {
			return nil, fmt.Errorf("%d %s: %w", x, e.x, err)
		}
		rows = append(rows, row{x, figures})
	}
	return rows, nil
}

// table has a line for each size.
func (e experiment) table(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\t%s\n", e.x, strings.Join(e.columns, "\t"))
	for _, r := range rows {
		fmt.Fprint(&b, r.x)
		for _, f := range r.figures {
			fmt.Fprint(&b, "\t", strconv.FormatFloat(f, 'g', 4, 64))
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}
