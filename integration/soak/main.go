// Command soak publishes and consumes through rehop, without a pause, while its
// connections and its broker are broken every few seconds, and accounts for
// each message afterwards:
//
//	go run ./integration/soak -duration 10m -rate 2000 -fault-every 2s -version 4.3
//
// It fails if a message is lost: if Publish said that it is safe, and at the end
// it was neither handled nor is it in the dead-letter queue or in another one. Duplicates
// are counted by their cause. The faults are drawn from -seed, which is printed,
// so that a run can be repeated.
//
// The broker is one of its own. With AMQP_URL set it is that one, which is not
// ours to break: then only the connections are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/command"
)

// settings are the flags.
type settings struct {
	duration   time.Duration
	rate       int // messages a second
	faultEvery time.Duration
	seed       uint64
	version    string
	log        string // a file
}

func parseFlags(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.DurationVar(&s.duration, "duration", 10*time.Minute, "how long messages are published")
	flags.IntVar(&s.rate, "rate", 2000, "messages published a second")
	flags.DurationVar(&s.faultEvery, "fault-every", 2*time.Second, "from the end of one fault to the next")
	flags.Uint64Var(&s.seed, "seed", rand.Uint64N(1_000_000), "of the schedule of faults")
	flags.StringVar(&s.version, "version", "", "of the broker: "+strings.Join(broker.Series, ", ")+"; the newest there is by default")
	flags.StringVar(&s.log, "log", "", "write what rehop logs to this file")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	var errs []error
	if s.duration <= 0 {
		errs = append(errs, fmt.Errorf("-duration is %v, want more than 0", s.duration))
	}
	if s.rate < 1 {
		errs = append(errs, fmt.Errorf("-rate is %d, want at least 1", s.rate))
	}
	if s.faultEvery <= 0 {
		errs = append(errs, fmt.Errorf("-fault-every is %v, want more than 0", s.faultEvery))
	}
	if s.version != "" && !slices.Contains(broker.Series, s.version) {
		errs = append(errs, fmt.Errorf("-version is %q, want one of %s", s.version, strings.Join(broker.Series, ", ")))
	}
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%q is no flag", flags.Arg(0)))
	}
	return s, errors.Join(errs...)
}

func main() {
	command.Main("soak", func(ctx context.Context, args []string) error {
		s, err := parseFlags(args)
		if err != nil {
			return err
		}
		_, err = run(ctx, s, os.Stdout)
		return err
	})
}
