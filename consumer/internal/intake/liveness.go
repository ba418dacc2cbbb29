package intake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/ask"
	"github.com/rehop/rehop/internal/transport"
)

const (
	// probeAfter is how long a session waits for a delivery before it asks the
	// queue for a sign, and how long between two probes.
	probeAfter = 10 * time.Second

	// SilentAfter is how old the latest sign is when the consumer counts as
	// unhealthy: a probe and 5 s without its answer.
	SilentAfter = probeAfter + 5*time.Second

	// probeLimit is how long the queue has to answer before the socket is given
	// up. The election of a leader takes seconds, and must not cost one.
	probeLimit = 15 * time.Second
)

// ErrUnanswered says that a queue did not answer the probe.
var ErrUnanswered = connection.WithClass(fmt.Errorf("the queue has not answered for %v: its node may be cut off from its cluster, or the queue be without a majority", probeLimit), connection.Transient)

// Signs are when a queue last gave a sign that it delivers, for all sessions of one
// Run. They are safe for concurrent use.
type Signs struct {
	mu      sync.Mutex
	last    time.Time
	refusal error // the latest answer to the probe, if it was a refusal
}

// Last returns when the latest sign came, and the refusal of the latest probe, nil
// if that was answered.
func (s *Signs) Last() (at time.Time, refusal error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.refusal
}

// Begin says that a session begins, which is a sign.
func (s *Signs) Begin(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.refusal = at, nil
}

func (s *Signs) alive(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.last) {
		s.last, s.refusal = at, nil
	}
}

func (s *Signs) refused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = err
}

// liveness looks for signs that the queue of a session delivers.
type liveness struct {
	timer   *time.Timer
	sign    time.Time    // when a delivery came, the queue answered, or the broker last waited for us
	answers chan error   // of the probe; nil for a good one
	probing bool         // an answer is to come
	probe   func() error // asks the queue for a sign
}

func newLiveness(probe func() error) *liveness {
	return &liveness{timer: time.NewTimer(probeAfter), sign: time.Now(), answers: make(chan error, 1), probe: probe}
}

// look is called by the timer. It probes the queue if there was no sign for long. A
// busy consumer, which has as many messages as it may have, is not probed: the queue
// would give the next message to the probe.
func (l *liveness) look(busy bool) {
	idle := time.Since(l.sign)
	switch {
	case idle < probeAfter:
		l.timer.Reset(probeAfter - idle)
		return
	case busy:
		l.sign = time.Now()
	case !l.probing:
		l.probing = true
		go func() { l.answers <- l.probe() }() // the probe is bounded, and answered takes the result
	}
	l.timer.Reset(probeAfter)
}

// answered takes the answer of a probe.
func (l *liveness) answered(err error) {
	l.probing = false
	if err == nil {
		l.sign = time.Now()
	}
	l.timer.Reset(probeAfter)
}

// close waits for the probe that is under way.
func (l *liveness) close() {
	l.timer.Stop()
	if l.probing {
		<-l.answers //nolint:errcheck // the session is over
	}
}

// probe asks a queue to accept one more consumer. The probe has a channel of its
// own, which a refusal closes. Without an answer it closes the socket: the next
// connection goes to another node, if there is one.
func probe(ctx context.Context, conn *connection.Conn, queue, tag string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeLimit, ErrUnanswered)
	defer cancel()
	channel, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return err
	}
	defer func() { _ = channel.Close() }() // what is on it goes back to the queue
	err = ask.Visit(ctx, channel, queue, tag)
	if errors.Is(err, ErrUnanswered) {
		transport.Inside.Session(channel).GiveUp(err)
	}
	return ask.Refused(queue, err)
}
