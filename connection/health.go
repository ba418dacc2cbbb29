package connection

import (
	"fmt"
	"time"

	"github.com/rehop/rehop"
)

// unhealthyAfter is how long a socket may be dialled before that counts as more
// than a reconnect.
const unhealthyAfter = 15 * time.Second

// Health returns nil if both sockets are connected and the broker takes messages.
// Otherwise it returns a *[rehop.HealthError]:
//   - degraded while the broker blocks publishers, and in the first 15 s of dialling
//     a socket again;
//   - unhealthy when a socket has been dialled for longer, and after Close.
//
// Health does not wait. If a socket is lost and no caller needs a session, Health
// starts to dial it in the background, so that a probe notices when the broker is
// back. While nobody dials, the time since the end of the last dial does not count
// towards the 15 s during the next tries. It counts once they have failed.
// With Config.Lazy a socket that was never needed counts as healthy, and is not dialled.
//
// Health is about the connection. The Health of a consumer says whether the consumer
// gets messages. A socket that a queue has of its own for a while is the consumer's to tell.
func (c *Conn) Health() error {
	var worst *rehop.HealthError
	for _, r := range c.states.reports() {
		h := r.health(time.Now())
		if h == nil {
			continue
		}
		if r.State.Status != Closed {
			c.connector(r.State.Role).start()
		}
		switch {
		case worst == nil:
			worst = h
		case worst.Degraded == h.Degraded:
			worst.Cause = fmt.Errorf("%w; %w", worst.Cause, h.Cause)
			if h.Since.Before(worst.Since) {
				worst.Since = h.Since
			}
		case worst.Degraded:
			worst = h
		}
	}
	if worst == nil {
		return nil // not a nil *rehop.HealthError
	}
	return worst
}

// report is the state of a socket, and its history since it was last up.
type report struct {
	State State
	away  time.Time     // when it ceased to be up, or began to connect; zero while up
	tried time.Time     // when it first began to connect since then; zero while it has not
	idle  time.Duration // how long nobody dialled before the tries that go on, which may find the broker back; zero once they have failed
	err   error         // the latest of the outage
}

// health is nil for a socket that is healthy.
func (r report) health(now time.Time) *rehop.HealthError {
	switch r.State.Status {
	case Idle, Up:
		return nil
	case Blocked:
		return &rehop.HealthError{Degraded: true, Since: r.State.Since, Cause: &BlockedError{Reason: r.State.Reason, Since: r.State.Since}}
	case Closed:
		return &rehop.HealthError{Since: r.State.Since, Cause: ErrClosed}
	}
	cause := fmt.Errorf("connection: the socket for %v is connecting", r.State.Role)
	if r.err != nil {
		cause = fmt.Errorf("connection: the socket for %v is down: %w", r.State.Role, r.err)
	}
	if r.State.Status == Down && r.State.NextTry.IsZero() {
		now = r.State.Since // nobody dials: the broker may be there all the time
	}
	degraded := r.tried.IsZero() || now.Sub(r.tried)-r.idle < unhealthyAfter
	return &rehop.HealthError{Degraded: degraded, Since: r.away, Cause: cause}
}
