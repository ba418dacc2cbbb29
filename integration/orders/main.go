// Command orders is a service for orders that goes through what a year brings,
// within a minute: restarts of the broker, a power failure, roll-outs.
//
//	go run ./integration/orders -version 4.3 -type quorum -orders 20000 -rate 350 -failures 30 -rollouts 10
//
// Orders come at a rate. Three instances of the service handle them, each with a
// connection of its own, and in a roll-out a new one takes the place of each in
// turn. A share of all attempts fails. Meanwhile the broker is stopped in order and
// started again twice, and killed once in between. The program fails if an order
// is lost, if an attempt is wrong, or if what was said of a delivery is not so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/command"
	"github.com/rehop/rehop/topology"
)

// settings are the flags.
type settings struct {
	version   string
	queueType topology.QueueType
	orders    int
	rate      int // a second
	failures  int // percent of all attempts
	rollouts  int
}

func parseFlags(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.StringVar(&s.version, "version", "", "of the broker: "+strings.Join(broker.Series, ", ")+"; the newest there is by default")
	queueType := flags.String("type", string(topology.Quorum), "of the work queue: quorum or classic")
	flags.IntVar(&s.orders, "orders", 20_000, "how many")
	flags.IntVar(&s.rate, "rate", 350, "how many a second")
	flags.IntVar(&s.failures, "failures", 30, "percent of the attempts that fail")
	flags.IntVar(&s.rollouts, "rollouts", 10, "how often all instances are replaced")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	s.queueType = topology.QueueType(*queueType)
	var errs []error
	if s.version != "" && !slices.Contains(broker.Series, s.version) {
		errs = append(errs, fmt.Errorf("-version is %q, want one of %s", s.version, strings.Join(broker.Series, ", ")))
	}
	if s.queueType != topology.Quorum && s.queueType != topology.Classic {
		errs = append(errs, fmt.Errorf("-type is %q, want quorum or classic", *queueType))
	}
	if s.orders < 1 {
		errs = append(errs, fmt.Errorf("-orders is %d, want at least 1", s.orders))
	}
	if s.rate < 1 {
		errs = append(errs, fmt.Errorf("-rate is %d, want at least 1", s.rate))
	}
	if s.failures < 0 || s.failures > 100 {
		errs = append(errs, fmt.Errorf("-failures is %d, want 0 to 100", s.failures))
	}
	if s.rollouts < 0 {
		errs = append(errs, fmt.Errorf("-rollouts is %d, want 0 or more", s.rollouts))
	}
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%q is no flag", flags.Arg(0)))
	}
	return s, errors.Join(errs...)
}

func main() {
	command.Main("orders", func(ctx context.Context, args []string) error {
		s, err := parseFlags(args)
		if err != nil {
			return err
		}
		return run(ctx, s, os.Stdout)
	})
}
