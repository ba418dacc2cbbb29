package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rehop/rehop"
)

// expected returns how an order must end, when a message is given up after so
// many attempts.
func expected(o Order, attempts int) ending {
	if cancelled[o.ID] {
		return ending{byDiscard, 1}
	}
	for attempt := 1; attempt <= attempts; attempt++ {
		if !strings.Contains(o.Passenger, " ") {
			continue // the bug in firstName
		}
		err := operator{}.answer(o, attempt)
		switch {
		case err == nil:
			return ending{bySMS, attempt}
		case errors.Is(err, errBadNumber):
			return ending{byLetter(string(rehop.CausePermanent)), attempt}
		}
	}
	return ending{byLetter(string(rehop.CauseExhausted)), attempts}
}

// tolerance of a wait that comes early: the broker counts whole milliseconds.
const tolerance = time.Millisecond

// check returns nil if every order ended exactly once and as expected, VIPs were
// handled first, and no wait was cut short; else everything that is wrong.
func (s summary) check(attempts int) error {
	var missing, doubled, wrong []string
	for _, r := range s.records {
		want := expected(r.order, attempts)
		switch {
		case len(r.endings) == 0:
			missing = append(missing, fmt.Sprintf("%s (%s)", r.order.ID, r.whereabouts()))
		case len(r.endings) > 1:
			doubled = append(doubled, fmt.Sprintf("%s (%v)", r.order.ID, r.endings))
		case r.endings[0] != want:
			wrong = append(wrong, fmt.Sprintf("%s (%v, want %v)", r.order.ID, r.endings[0], want))
		}
	}
	var early []string
	for _, late := range s.lateness {
		if late < -tolerance {
			early = append(early, (-late).String())
		}
	}
	var late []string
	if vips, most := s.vipPlaces(), len(s.records)/10; len(vips) > 0 && median(vips) > most {
		late = append(late, fmt.Sprintf("place %d of %d, want at most %d", median(vips), len(s.records), most))
	}
	return errors.Join(
		fault("VIPs not handled first, the median", late),
		fault("orders missing", missing),
		fault("orders ended more than once, as at-least-once delivery may after a lost connection", doubled),
		fault("orders ended otherwise than they should", wrong),
		fault("waits cut short", early),
	)
}

// fault names the orders with a fault, but not hundreds of them.
func fault(what string, which []string) error {
	const most = 10
	if len(which) == 0 {
		return nil
	}
	names := strings.Join(which[:min(len(which), most)], ", ")
	if len(which) > most {
		names += fmt.Sprintf(" and %d more", len(which)-most)
	}
	return fmt.Errorf("%s (%d): %s", what, len(which), names)
}

// whereabouts returns where an order was seen last.
func (r record) whereabouts() string {
	switch r.place {
	case unpublished:
		return "not published"
	case queued:
		return "in its queue"
	case inWork:
		return "in work"
	case waiting:
		return fmt.Sprintf("in wait %d", r.waitNumber)
	case deadLettered:
		return "dead-lettered, no letter sent"
	}
	return "ended"
}

func (e ending) String() string { return fmt.Sprintf("%s at attempt %d", e.how, e.attempt) }
