package account

import (
	"fmt"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
)

// message is what is known of one. There may be millions: those that were
// published once and handled in their first attempt, as almost all are, need no
// history.
type message struct {
	*history
	ordinary bool
	took     time.Duration // of an ordinary one, from its first run on, since the account began
}

// history is the whole story of a message.
type history struct {
	calls  uint16 // of Publish
	safe   bool   // one of them returned nil
	twice  bool   // one of them may have sent it twice
	runs   []Run
	claims []claim
	again  []Run // of deliveries that had come again and were put off, with or without a run of the handler; Began is when they were settled
	ends   []End
}

// claim is what was said of a delivery.
type claim struct {
	at      time.Time
	attempt int
	consumer.Settlement
}

// Place is where a message has ended.
type Place uint8

// The places. The zero value is invalid.
const (
	_       Place = iota
	Handled       // its handler returned nil
	Letter        // in the dead-letter queue
	Queue         // found in a wait or in the work queue
)

func (p Place) String() string { return [...]string{"nowhere", "handled", "letter", "in a queue"}[p] }

// End is an arrival of a message at a place where it is not lost.
type End struct {
	Place       Place
	At          time.Time
	Attempt     int // that ended it, or that its headers count
	Call        int // of Publish that it came from
	Redelivered bool
	Cause       rehop.Cause // of Place Letter
	Queue       string      // of Place Queue
	Waits       bool        // of Place Queue: that is a wait
}

// unfold returns the history, of an ordinary message one that says the same.
func (m *message) unfold(start time.Time) *history {
	switch {
	case m.history != nil:
		return m.history
	case !m.ordinary:
		return &history{}
	}
	at := start.Add(m.took)
	return &history{
		calls: 1, safe: true,
		runs:   []Run{{Attempt: 1, Call: 1, Began: at, Ended: at}},
		claims: []claim{{at: at, attempt: 1, Settlement: consumer.Settlement{Disposition: consumer.DispositionDone}}},
		ends:   []End{{Place: Handled, At: at, Attempt: 1, Call: 1}},
	}
}

func (m *message) fold(h *history, start time.Time) {
	if !h.isOrdinary() {
		m.history, m.ordinary = h, false
		return
	}
	m.history, m.ordinary, m.took = nil, true, h.runs[0].Began.Sub(start)
}

func (h *history) isOrdinary() bool {
	if h.calls != 1 || !h.safe || h.twice || len(h.runs) != 1 || len(h.claims) != 1 || len(h.ends) != 1 || len(h.again) > 0 {
		return false
	}
	r := h.runs[0]
	return r.Attempt == 1 && r.Call == 1 && !r.Redelivered && r.By == "" && !r.Failed &&
		h.ends[0].Place == Handled && h.claims[0].attempt == 1 && h.claims[0].Disposition == consumer.DispositionDone
}

func (h *history) String() string {
	const clock = "05.000"
	s := []string{fmt.Sprintf("published %d times, safe %t", h.calls, h.safe)}
	if h.twice {
		s = append(s, "perhaps sent twice")
	}
	for _, r := range h.runs {
		text := fmt.Sprintf("%s attempt %d", r.Began.Format(clock), r.Attempt)
		if r.By != "" {
			text += " by " + r.By
		}
		if r.Redelivered {
			text += " redelivered"
		}
		switch {
		case r.Ended.IsZero():
			text += " never ended"
		case r.Failed && !r.Due.IsZero():
			text += " failed, next due at " + r.Due.Format(clock)
		case r.Failed:
			text += " failed"
		}
		s = append(s, text)
	}
	for _, r := range h.again {
		s = append(s, fmt.Sprintf("%s attempt %d was put off by %s", r.Began.Format(clock), r.Attempt, r.By))
	}
	for _, c := range h.claims {
		s = append(s, fmt.Sprintf("%s said of attempt %d: %s", c.at.Format(clock), c.attempt, c))
	}
	for _, e := range h.ends {
		s = append(s, e.String())
	}
	if len(h.ends) == 0 {
		s = append(s, "ended nowhere")
	}
	return strings.Join(s, "; ")
}

func (c claim) String() string {
	switch {
	case c.Disposition == consumer.DispositionWait && c.WaitNumber > 0:
		return fmt.Sprintf("wait %d", c.WaitNumber)
	case c.Disposition == consumer.DispositionDeadLetter:
		return "dead letter, " + string(c.Cause)
	}
	return string(c.Disposition)
}

func (e End) String() string {
	text := e.At.Format("05.000") + " " + e.Place.String()
	switch e.Place {
	case Letter:
		text += fmt.Sprintf(" %q", e.Cause)
	case Queue:
		text = e.At.Format("05.000") + " in " + e.Queue
	}
	text += fmt.Sprintf(" after attempt %d", e.Attempt)
	if e.Call > 1 {
		text += fmt.Sprintf(" of publish %d", e.Call)
	}
	if e.Redelivered {
		text += ", redelivered"
	}
	return text
}
