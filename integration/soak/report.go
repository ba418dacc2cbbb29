package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/rehop/rehop/integration/account"
)

// report is everything that a run found out.
type report struct {
	settings
	took       time.Duration
	counts     account.Counts
	omitted    int
	calmRate   float64
	calm       time.Duration
	outages    []outage
	sessions   int // of the consumer
	conns      int
	lost       []string // ids
	stories    string   // of what is lost, and of duplicates that are unexplained
	doubles    account.Doubles
	wrong      error // what is wrong with attempts, and with what was said
	start, end usage
}

func (k *soak) report(took time.Duration) report {
	r := report{settings: k.settings, took: took, sessions: k.sessions.sum(), conns: k.proxy.Stats().Conns, wrong: k.account.Check()}
	r.counts = k.account.Counts()
	r.doubles = k.account.Doubled()
	if k.outages != nil {
		r.outages = k.outages.since(0)
		r.calmRate, r.calm = k.outages.inCalmPerSecond()
	}
	if k.load != nil {
		r.omitted = int(k.load.omitted.Load())
	}
	r.lost = k.account.Lost()
	r.stories = k.account.Tell(r.lost) + k.account.Tell(r.doubles.Strange)
	return r
}

// verdict returns what must not be.
func (r report) verdict() error {
	var errs []error
	if len(r.lost) > 0 {
		errs = append(errs, fmt.Errorf("%d messages are lost", len(r.lost)))
	}
	errs = append(errs, r.wrong)
	if more := r.end.goroutines - r.start.goroutines; more > 0 {
		errs = append(errs, fmt.Errorf("%d goroutines are left over", more))
	}
	return errors.Join(errs...)
}

func (r report) print(w io.Writer) {
	fmt.Fprintln(w, "\nTime from the end of a fault to the next message:")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "confirmed, median\tmax\thandled, median\tmax\tcount\tnext came sooner\t  fault")
	for _, c := range slices.Concat(onConnections, onBroker) {
		if row, ok := recoveryOf(c.kind, r.outages); ok {
			fmt.Fprintln(table, row)
		}
	}
	_ = table.Flush() // to the terminal: there is nobody to tell

	fmt.Fprintln(w)
	table = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, n int, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%d\t%s\n", name, n, fmt.Sprintf(format, args...))
	}
	line("published", r.counts.Numbered, "%.0f/s over all of %v; due and left out, because more than %v late: %d",
		perSecond(r.counts.Numbered, r.took), r.took.Round(time.Second), catchUp, r.omitted)
	line("confirmed", r.counts.Safe, "%.0f/s over all, %.0f/s in the %v without a fault, of %d/s wanted",
		perSecond(r.counts.Safe, r.took), r.calmRate, r.calm.Round(time.Second), r.rate)
	line("calls of Publish without success", r.counts.Failed, "%d unconfirmed, %d for another reason; each message was published again",
		r.counts.Unknown, r.counts.Failed-r.counts.Unknown)
	line("handled", r.counts.Handled, "in %d runs of the handler", r.counts.Runs)
	line("dead-lettered", r.counts.Letters, "")
	line("left in a queue", r.counts.Found, "neither handled nor dead-lettered when the time was up")
	line("lost", len(r.lost), "")
	line("duplicates", r.doubles.Ends, "of %d messages", r.doubles.Messages)
	for _, c := range account.Causes {
		if n := r.doubles.By[c]; n > 0 {
			line("", n, "%s", c)
		}
	}
	line("sessions of the consumer", r.sessions, "")
	line("connections", r.conns, "opened in all, by producer and consumer")
	line("goroutines at the end", r.end.goroutines, "%d at the start", r.start.goroutines)
	line("heap at the end, kB", int(r.end.heap>>10), "%d at the start", r.start.heap>>10)
	_ = table.Flush()
	if r.stories != "" {
		fmt.Fprintln(w, r.stories)
	}
}

// recoveryOf returns the row of a kind, if there is one.
func recoveryOf(of kind, all []outage) (row string, ok bool) {
	var confirmed, handled []time.Duration
	count, overtaken := 0, 0
	for _, o := range all {
		if o.fault.kind != of {
			continue
		}
		count++
		if o.overtaken {
			overtaken++
		}
		if o.confirmed > 0 {
			confirmed = append(confirmed, o.confirmed)
		}
		if o.handled > 0 {
			handled = append(handled, o.handled)
		}
	}
	return fmt.Sprintf("%s\t%s\t%d\t%d\t  %s", spread(confirmed), spread(handled), count, overtaken, of), count > 0
}

// spread returns the median and the maximum, as two cells.
func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "-\t-"
	}
	slices.Sort(d)
	return fmt.Sprintf("%v\t%v", round(d[len(d)/2]), round(d[len(d)-1]))
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

func perSecond(n int, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}

// printSchedule prints faults as a paragraph.
func printSchedule(w io.Writer, faults []fault) {
	var width int
	for i, f := range faults {
		s := f.String()
		if i < len(faults)-1 {
			s += ", "
		}
		if width += len(s); width > 130 {
			fmt.Fprintln(w)
			width = len(s)
		}
		fmt.Fprint(w, s)
	}
	fmt.Fprintln(w)
}
