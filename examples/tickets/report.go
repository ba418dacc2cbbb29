package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// report prints how the orders ended.
func (s summary) report(out io.Writer, attempts int) error {
	endings := map[ending]int{}
	vips := s.vipPlaces()
	for _, r := range s.records {
		for _, e := range r.endings {
			endings[e]++
		}
	}

	var b strings.Builder
	row := func(name string, n int) { fmt.Fprintf(&b, "%-28s%4d\n", name, n) }
	fmt.Fprintf(&b, "\n")
	for attempt := 1; attempt <= attempts; attempt++ {
		row(fmt.Sprintf("SMS sent at attempt %d", attempt), endings[ending{bySMS, attempt}])
	}
	row("discarded", endings[ending{byDiscard, 1}])
	for _, cause := range slices.Sorted(maps.Keys(s.causes)) {
		row(fmt.Sprintf("dead-lettered, %s", cause), s.causes[cause])
	}
	row("letters sent instead", len(s.letters))
	if n := endings[ending{how: byFallback}]; n > 0 {
		row("in the producer's fallback", n)
	}
	if s.foreign > 0 {
		row("left by a former run", s.foreign)
	}
	row("waits", len(s.lateness))
	if len(s.lateness) > 0 {
		fmt.Fprintf(&b, "  late by %v (median), %v (at most)\n", rounded(median(s.lateness)), rounded(slices.Max(s.lateness)))
	}
	if len(vips) > 0 {
		row("VIP orders", len(vips))
		fmt.Fprintf(&b, "  place in the queue: %d (median), %d (at most) of %d\n", median(vips), slices.Max(vips), len(s.records))
	}
	fmt.Fprintf(&b, "\n")
	slices.SortFunc(s.letters, func(x, y letter) int { return strings.Compare(x.order.ID, y.order.ID) })
	for _, l := range s.letters {
		fmt.Fprintf(&b, "letter to %s (%s): %s at attempt %d: %s\n", l.order.Passenger, l.order.ID, l.reason, l.attempts, l.err)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// vipPlaces returns which places the orders of VIPs had in the order of first
// attempts.
func (s summary) vipPlaces() (places []int) {
	for _, r := range s.records {
		if r.order.VIP && r.start > 0 {
			places = append(places, r.start)
		}
	}
	return places
}

// median returns the middle one of a list that is not empty.
func median[T int | time.Duration](list []T) T {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
