// Command bench compares rehop with a plain amqp091-go program that does the
// same work, and in some rows with other libraries, on the broker that AMQP_URL
// names.
//
//	go run ./integration/bench -filter 'consume.*quorum' -rounds 9
//
// Each row of its table is one kind of work. Both sides do it by turns, with as
// many messages, on a queue of their own each time, and each time every message
// must be where it belongs afterwards: a row that lost one is an error and not a
// number. The figure to read is the ratio, taken within each round; msg/s tell
// about the machine. Nothing here fails because it is slow.
//
// It needs a Unix, for getrusage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/rehop/rehop/connection"
)

// settings are the flags.
type settings struct {
	Rounds   int            `json:"rounds"`
	Duration time.Duration  `json:"duration"` // of one side in one round, about
	Filter   *regexp.Regexp `json:"filter"`
	Peers    bool           `json:"peers"`

	jsonPath               string
	cpuProfile, memProfile string // directories
	list                   bool
}

func parseFlags(args []string) (settings, error) {
	var s settings
	var filter string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&s.Rounds, "rounds", 5, "how often each side of a row runs")
	flags.DurationVar(&s.Duration, "duration", time.Second, "about how long one side runs in one round")
	flags.StringVar(&filter, "filter", "", "run only rows whose name matches this regular expression")
	flags.BoolVar(&s.Peers, "peers", true, "run the other libraries too")
	flags.StringVar(&s.jsonPath, "json", "", "write the results to this file too")
	flags.StringVar(&s.cpuProfile, "cpuprofile", "", "after the rounds of a row, profile one more of each side into this directory")
	flags.StringVar(&s.memProfile, "memprofile", "", "the same for allocations; compare X.after.allocs with -base X.before.allocs")
	flags.BoolVar(&s.list, "list", false, "print the names of the rows and run none")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	var errs []error
	if s.Rounds < 1 {
		errs = append(errs, fmt.Errorf("-rounds is %d, want at least 1", s.Rounds))
	}
	if s.Duration <= 0 {
		errs = append(errs, fmt.Errorf("-duration is %v, want more than 0", s.Duration))
	}
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%q is no flag", flags.Arg(0)))
	}
	var err error
	if s.Filter, err = regexp.Compile(filter); err != nil {
		errs = append(errs, fmt.Errorf("-filter: %w", err))
	}
	return s, errors.Join(errs...)
}

func main() {
	restChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// run measures the rows. What was measured before an error is printed all the
// same.
func run(ctx context.Context, args []string) error {
	s, err := parseFlags(args)
	if err != nil {
		return err
	}
	rows := matching(allRows(), s.Filter)
	resting := s.Filter.MatchString(restName)
	if len(rows) == 0 && !resting {
		return fmt.Errorf("no row matches -filter %s", s.Filter)
	}
	if s.list {
		for _, r := range rows {
			fmt.Println(r.name)
		}
		if resting {
			fmt.Println(restName)
		}
		return nil
	}
	url := os.Getenv("AMQP_URL")
	if url == "" {
		return errors.New("AMQP_URL is not set: name a broker, or run under integration/withbroker")
	}
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{url}, Name: "rehop bench, set-up"})
	if err != nil {
		return err
	}
	defer conn.Close()

	rep := report{Started: time.Now(), Settings: s, Machine: thisMachine(), Versions: versions(conn.Server())}
	b := bench{url: url, conn: conn, settings: s}
	var failed error
	for _, r := range rows {
		res, err := b.row(ctx, r)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("row %q: %w", r.name, err))
		} else {
			rep.Rows = append(rep.Rows, res)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if resting && ctx.Err() == nil {
		if rep.AtRest, err = atRest(ctx); err != nil {
			failed = errors.Join(failed, fmt.Errorf("row %q: %w", restName, err))
		}
	}
	rep.Took = time.Since(rep.Started)
	rep.print(os.Stdout)
	rep.printPeers(os.Stdout)
	rep.printShards(os.Stdout)
	printAtRest(os.Stdout, rep.AtRest)
	if s.jsonPath != "" {
		failed = errors.Join(failed, rep.write(s.jsonPath))
	}
	return failed
}
