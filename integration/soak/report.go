package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rehop/rehop/topology"
)

// report is everything that a run found out.
type report struct {
	settings
	took       time.Duration
	counts     counts
	omitted    int
	calmRate   float64
	calm       time.Duration
	outages    []outage
	sessions   int // of the consumer
	conns      int
	lost       []int
	stories    string // of what is lost, and of duplicates that are unexplained
	unpromised []int  // see unpromised
	duplicates map[cause]int
	wrong      []string
	start, end usage
}

func (k *soak) report(took time.Duration) report {
	r := report{settings: k.settings, took: took, sessions: k.sessions.sum(), conns: k.proxy.Stats().Conns, wrong: k.ledger.wrong}
	r.counts, _ = k.ledger.snapshot()
	var strange []int
	r.duplicates, strange = k.ledger.duplicates()
	if k.outages != nil {
		r.outages = k.outages.since(0)
		r.calmRate, r.calm = k.outages.inCalmPerSecond()
	}
	if k.load != nil {
		r.omitted = int(k.load.omitted.Load())
	}
	for _, n := range k.ledger.lost() {
		if k.plan.Engines[0].Engine != topology.Ladder && unpromised(k.ledger, n, r.outages) {
			r.unpromised = append(r.unpromised, n)
		} else {
			r.lost = append(r.lost, n)
		}
	}
	r.stories = k.ledger.stories(r.lost) + k.ledger.stories(r.unpromised) + k.ledger.stories(strange)
	return r
}

// unpromised reports whether a lost message was last known to be in a wait queue, which
// had confirmed it, and its wait ended while the broker went down or came up. Where the
// broker moves it from there without a confirm, on 3.x, that may lose it, and the plan
// says so.
func unpromised(l *ledger, n int, all []outage) bool {
	const around = 2 * time.Second
	return slices.ContainsFunc(all, func(o outage) bool {
		return (o.fault.kind == kill || o.fault.kind == restart) &&
			l.dueIn(n, o.begun.Add(-around), o.lifted.Add(around))
	})
}

// verdict returns what must not be.
func (r report) verdict() error {
	var errs []error
	if len(r.lost) > 0 {
		errs = append(errs, fmt.Errorf("%d messages are lost", len(r.lost)))
	}
	if n := len(r.wrong); n > 0 {
		errs = append(errs, fmt.Errorf("%d runs were of a wrong attempt or too early: %s", n, strings.Join(r.wrong[:min(n, 5)], "\n\t")))
	}
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
	line("published", r.counts.published, "%.0f/s over all of %v; due and left out, because more than %v late: %d",
		perSecond(r.counts.published, r.took), r.took.Round(time.Second), catchUp, r.omitted)
	line("confirmed", r.counts.confirmed, "%.0f/s over all, %.0f/s in the %v without a fault, of %d/s wanted",
		perSecond(r.counts.confirmed, r.took), r.calmRate, r.calm.Round(time.Second), r.rate)
	line("calls of Publish without success", r.counts.unconfirmed+r.counts.failed, "%d unconfirmed, %d for another reason; each message was published again",
		r.counts.unconfirmed, r.counts.failed)
	line("handled", r.counts.handled, "in %d runs of the handler", r.counts.runs)
	line("dead-lettered", r.counts.letters, "")
	line("left in a queue", r.counts.left, "neither handled nor dead-lettered when the time was up")
	line("lost", len(r.lost), "")
	if len(r.unpromised) > 0 {
		line("lost where nothing is promised", len(r.unpromised), "a wait ended while the broker went down or came up, and it moves such messages without a confirm there")
	}
	sum := 0
	for _, n := range r.duplicates {
		sum += n
	}
	line("duplicates", sum, "")
	for _, c := range causes {
		if n := r.duplicates[c]; n > 0 {
			line("", n, "%s", c)
		}
	}
	line("wrong attempts", len(r.wrong), "")
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
