package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/xdeath"
)

// republisher brings messages to their next place by a copy, and acks them when
// the copy is confirmed. It owns the publishing; of the consuming it knows only
// how to ack and requeue a message.
//
// A copy that is not confirmed is sent again, with growing pauses, and its message
// is held meanwhile. It is never nacked: that would delete it where the broker's
// own way is not confirmed, or bring it to the place that has just failed, or
// let it come back sooner than it should. It is requeued when Run stops, or
// before the broker would take it away.
type republisher struct {
	publisher publisher
	host      string
	within    time.Duration // Config.CopyTimeout
	report    reporter
	troubles  *troubles
	release   func()               // frees the slot of a message
	limit     func() time.Duration // how long after its arrival a message is held
	stop      <-chan struct{}      // closed when Run is to stop
	tasks     sync.WaitGroup
}

// publisher is the part of a confirm.Publisher that is used here.
type publisher interface {
	Send(ctx context.Context, messages ...*confirm.Message)
	Close() error
}

// move sends the copy of a message to where it is to end. The message is settled
// later, and its slot released then.
func (r *republisher) move(m *message) {
	m.end = settledAt(m.verdict)
	r.troubles.began()
	copied := r.copy(m, time.Now())
	if r.report.trace.Copied != nil { // the hook comes before that of the confirm, which would not wait
		r.tasks.Go(func() { r.finish(m, r.send(m, copied)) })
		return
	}
	copied.Report = r
	r.publisher.Send(m.from.settling, copied)
}

// copy makes the copy that the verdict on m asks for.
func (r *republisher) copy(m *message, now time.Time) *confirm.Message {
	to, p := destination(m), makeCopy(m, r.host, now)
	return &confirm.Message{
		Exchange:   to.Exchange,
		Key:        to.Key,
		Publishing: p,
		Header:     xdeath.HeaderSize(p),
		Timeout:    r.within,
		Owner:      m,
	}
}

// send sends a copy and waits for its confirm.
func (r *republisher) send(m *message, copied *confirm.Message) error {
	r.publisher.Send(m.from.settling, copied)
	if copied.Sent() {
		r.report.copied(m.delivery, destination(m))
	}
	return copied.Wait(m.from.settling)
}

// Answered implements confirm.Reporter. It acks all messages with a confirmed copy
// together.
func (r *republisher) Answered(copies []*confirm.Message) {
	var confirmed []*message
	for _, c := range copies {
		m := c.Owner.(*message) //nolint:forcetypeassert // copy sets it
		if err := c.Err; err != nil {
			r.tasks.Go(func() { r.finish(m, err) })
			continue
		}
		r.report.confirmed(m.delivery, destination(m))
		confirmed = append(confirmed, m)
	}
	for len(confirmed) > 0 { // of one session each time
		n := 1
		for n < len(confirmed) && confirmed[n].from == confirmed[0].from {
			n++
		}
		confirmed[0].from.acks.ack(confirmed[:n]...)
		for range n {
			r.troubles.ended()
			r.release()
		}
		confirmed = confirmed[n:]
	}
}

// finish settles a message after the answer to its copy. After an error it sends the
// copy again until it is confirmed, or the message must be given back.
func (r *republisher) finish(m *message, err error) {
	var pauses *backoff.ExponentialBackOff
	for err != nil {
		to := destination(m)
		if pauses == nil {
			pauses = backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(100*time.Millisecond),
				backoff.WithMaxInterval(10*time.Second),
				backoff.WithMaxElapsedTime(0))
			r.troubles.fails(to)
			defer r.troubles.over(to)
		}
		if m.from.settling.Err() == nil {
			r.troubles.failed(to, err)
			r.report.again.Warn("copy not confirmed, its message is held", err,
				"queue", m.delivery.Queue, "message", m.delivery.ID, "to", to.String())
		}
		if !r.pause(m, pauses.NextBackOff()) {
			m.end = Settlement{Place: PlaceQueue}
			m.from.acks.requeue(m)
			r.troubles.ended()
			r.release()
			return
		}
		err = r.send(m, r.copy(m, time.Now()))
	}
	r.report.confirmed(m.delivery, destination(m))
	m.from.acks.ack(m)
	r.troubles.ended()
	r.release()
}

// pause waits, and reports whether the message may be kept afterwards.
func (r *republisher) pause(m *message, d time.Duration) bool {
	if r.limit()-time.Since(m.received) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-m.from.settling.Done():
		return false
	case <-r.stop:
		return false
	}
}

// close gives up what is not confirmed, and returns when every goroutine has
// ended.
func (r *republisher) close() error {
	r.tasks.Wait() // every session is over, and with it what it sends
	err := r.publisher.Close()
	r.tasks.Wait() // copies that the publisher gave up just now
	return err
}
