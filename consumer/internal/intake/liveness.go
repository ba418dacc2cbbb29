package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/transport"
)

// ErrUnanswered says that a queue did not answer the visit.
var ErrUnanswered = rehop.WithClass(fmt.Errorf("the queue has not answered for %v: its node may be cut off from its cluster, or the queue be without a majority", durations.VisitLimit), rehop.ClassTransient)

// Signs are told of signs that the queue delivers. An implementation is safe for concurrent use.
type Signs interface {
	// Alive is told when the latest sign came; it may have been told before.
	Alive(at time.Time)

	// Refused is told of a visit that was refused.
	Refused(err error)
}

// liveness looks for signs that the queue of a session delivers.
type liveness struct {
	timer   *time.Timer
	sign    time.Time     // when a delivery came, the queue answered, or the broker last waited for us
	answers chan answer   // of the visit that is under way; nil: none is
	quiet   bool          // so it was at the last look
	visit   func() answer // asks the queue for a sign
}

// answer is that of a queue to a visit.
type answer struct {
	took bool  // the visit has taken a message, and given it back
	err  error // nil for a good one
}

func newLiveness(visit func() answer) *liveness {
	return &liveness{timer: time.NewTimer(durations.VisitAfter - durations.OnItsWay), sign: time.Now(), visit: visit}
}

// look is called by the timer. It visits the queue if there was no sign for long, and reports
// whether it does. A busy consumer, which has as many messages as it may have, is not
// visited: the queue would give the next message to the visit. One that was busy a moment
// ago may have a message on its way.
func (l *liveness) look(busy bool) (visits bool) {
	idle := time.Since(l.sign)
	switch {
	case idle < durations.VisitAfter-durations.OnItsWay:
		l.quiet = false
		l.timer.Reset(durations.VisitAfter - durations.OnItsWay - idle)
		return false
	case busy:
		l.sign, l.quiet = time.Now(), false
	case !l.quiet:
		l.quiet = true
		l.timer.Reset(durations.OnItsWay)
		return false
	case !l.isVisiting():
		answers := make(chan answer, 1)
		l.answers, visits = answers, true
		go func() { answers <- l.visit() }() // the visit is bounded, and answered takes the result
	}
	l.timer.Reset(durations.VisitAfter)
	return visits
}

// isVisiting reports whether an answer is to come.
func (l *liveness) isVisiting() bool { return l.answers != nil }

// answered takes the answer of a visit.
func (l *liveness) answered(err error) {
	l.answers = nil
	if err == nil {
		l.sign = time.Now()
	}
	l.timer.Reset(durations.VisitAfter)
}

// visited takes the answer of a visit, and has messages begin to be handled again. While none
// began, none was settled either. So the visit can have taken a message only when this consumer was
// full, and the message is next when it is back.
func (s *Session) visited(a answer, leaves bool) {
	s.live.answered(a.err)
	if a.took {
		s.reopens = time.After(durations.StrayArrives)
	} else {
		s.Hand.BeginAgain(hand.Visiting, time.Now(), &s.out)
	}
	if a.err == nil {
		s.Signs.Alive(s.live.sign)
	} else if !leaves {
		s.Signs.Refused(a.err)
	}
}

// close waits for the visit that is under way.
func (l *liveness) close() {
	l.timer.Stop()
	if l.isVisiting() {
		<-l.answers
	}
}

// visit asks a queue to accept one more consumer. The visit has a channel of its
// own, which a refusal closes. Without an answer it closes the socket: the next
// connection goes to another node, if there is one.
func visit(ctx context.Context, conn *connection.Conn, queue, tag string) answer {
	ctx, cancel := context.WithTimeoutCause(ctx, durations.VisitLimit, ErrUnanswered)
	defer cancel()
	channel, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = channel.Close() }() // what is on it goes back to the queue
	took, err := ask.Visit(ctx, channel, queue, tag)
	if errors.Is(err, ErrUnanswered) {
		transport.Inside.Session(channel).GiveUp(err)
	}
	return answer{took, ask.Refused(queue, err)}
}
