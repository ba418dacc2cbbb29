// Command proof restarts and kills a broker while messages wait between two
// attempts, and accounts for each of them:
//
//	go run ./integration/proof -versions 3.10,4.0,4.3 -types classic,quorum -faults stop,kill -due 0,25,50,100 -runs 5 -messages 5000
//
// These are the defaults. In each run every pair of a queue type and a share has
// a work queue of its own, with so many messages in its waits when the broker
// goes down. The share is how many of them, in percent, are due while it is down.
// The program fails if one is lost, if an attempt is wrong, or if what was said of
// a delivery is not so. Duplicates are counted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/command"
	"github.com/rehop/rehop/topology"
)

// settings are the flags.
type settings struct {
	versions []string
	types    []topology.QueueType
	faults   []string
	due      []int // percent
	runs     int   // of each fault
	messages int   // in the waits of each work queue
	wait     time.Duration
}

func parseFlags(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("proof", flag.ContinueOnError)
	versions := flags.String("versions", strings.Join(broker.Series, ","), "of the broker")
	types := flags.String("types", "classic,quorum", "of the work queues")
	faults := flags.String("faults", "stop,kill", "stop is an orderly restart, kill is by SIGKILL")
	due := flags.String("due", "0,25,50,100", "percent of the messages that are due while the broker is down")
	flags.IntVar(&s.runs, "runs", 5, "how often each fault comes")
	flags.IntVar(&s.messages, "messages", 5000, "in the waits of each work queue")
	flags.DurationVar(&s.wait, "wait", 40*time.Second, "of the messages that are due while the broker is down; longer than it takes to bring them there")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	var errs []error
	s.versions, s.faults = strings.Split(*versions, ","), strings.Split(*faults, ",")
	for _, v := range s.versions {
		if !slices.Contains(broker.Series, v) {
			errs = append(errs, fmt.Errorf("-versions has %q, want of %s", v, strings.Join(broker.Series, ", ")))
		}
	}
	for _, t := range strings.Split(*types, ",") {
		if t != string(topology.Classic) && t != string(topology.Quorum) {
			errs = append(errs, fmt.Errorf("-types has %q, want of classic, quorum", t))
		}
		s.types = append(s.types, topology.QueueType(t))
	}
	for _, f := range s.faults {
		if f != stop && f != kill {
			errs = append(errs, fmt.Errorf("-faults has %q, want of stop, kill", f))
		}
	}
	for _, d := range strings.Split(*due, ",") {
		n, err := strconv.Atoi(d)
		if err != nil || n < 0 || n > 100 {
			errs = append(errs, fmt.Errorf("-due has %q, want 0 to 100", d))
		}
		s.due = append(s.due, n)
	}
	if s.runs < 1 {
		errs = append(errs, fmt.Errorf("-runs is %d, want at least 1", s.runs))
	}
	if s.messages < 1 {
		errs = append(errs, fmt.Errorf("-messages is %d, want at least 1", s.messages))
	}
	if s.wait < time.Second {
		errs = append(errs, fmt.Errorf("-wait is %v, want at least 1s", s.wait))
	}
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%q is no flag", flags.Arg(0)))
	}
	return s, errors.Join(errs...)
}

func main() {
	command.Main("proof", func(ctx context.Context, args []string) error {
		s, err := parseFlags(args)
		if err != nil {
			return err
		}
		return prove(ctx, s, os.Stdout)
	})
}
