package work

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/plural"
	"github.com/rehop/rehop/internal/route"
)

// Unconfirmed is what is known of copies that are not confirmed. It is safe for
// concurrent use.
type Unconfirmed struct {
	mu      sync.Mutex
	failing map[route.Target]*failing
	some    atomic.Bool // there are failing ones
	missing error       // parts of the topology
	begins  chan struct{}
}

// failing says why the copies to one place are not confirmed.
type failing struct {
	messages int // that are held for it
	err      error
	since    time.Time
	left     time.Time // when none was held any more
}

func newUnconfirmed() *Unconfirmed {
	return &Unconfirmed{failing: map[route.Target]*failing{}, begins: make(chan struct{})}
}

// held notes one more message whose copy to a place was not confirmed.
func (u *Unconfirmed) held(to route.Target) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := u.failing[to]
	if f == nil {
		f = &failing{since: time.Now()}
		u.failing[to] = f
		if !u.some.Swap(true) {
			close(u.begins)
			u.begins = make(chan struct{})
		}
	}
	f.messages++
}

// failed notes the error of the latest try of a copy to a place.
func (u *Unconfirmed) failed(to route.Target, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failing[to].err = err
}

// over notes that one of the messages held for a place is settled, or goes back without a
// confirmed copy.
func (u *Unconfirmed) over(to route.Target) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := u.failing[to]
	if f.messages--; f.messages == 0 {
		f.left = time.Now()
	}
}

// works notes that a copy to a place is confirmed.
func (u *Unconfirmed) works(to route.Target) {
	if !u.some.Load() { // nearly always
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if f := u.failing[to]; f != nil && f.messages == 0 {
		u.forget(to)
	}
}

// forget needs u.mu held.
func (u *Unconfirmed) forget(to route.Target) {
	delete(u.failing, to)
	if len(u.failing) == 0 {
		u.missing = nil
		u.some.Store(false)
	}
}

// forgetOld forgets places of which nothing has been heard for long. It needs u.mu held.
func (u *Unconfirmed) forgetOld(now time.Time) {
	for to, f := range u.failing {
		if f.messages == 0 && now.Sub(f.left) >= durations.PlaceRemembered {
			u.forget(to)
		}
	}
}

// Resolved says whether the parts of the topology are there.
func (u *Unconfirmed) Resolved(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.failing) > 0 {
		u.missing = err
	}
}

// Check returns which copies are not confirmed, as unhealthy if that has taken
// all slots for long, and nil if none are missing. Since full every slot has one of so many
// messages whose copy is to be confirmed; zero: one has none.
func (u *Unconfirmed) Check(queue string, full time.Time, messages int, now time.Time) *rehop.HealthError {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forgetOld(now)
	if !full.IsZero() && now.Sub(full) >= durations.SettlingLimit {
		return &rehop.HealthError{Since: full, Cause: fmt.Errorf("consumer: queue %q is not consumed: %s in hand, as many as Config.Concurrency allows, wait for a copy to be confirmed%s",
			queue, plural.Of(messages, "message"), u.causes())}
	}
	if len(u.failing) == 0 {
		return nil
	}
	return &rehop.HealthError{Degraded: true, Since: u.since(), Cause: fmt.Errorf("consumer: queue %q: messages are held until their copies are confirmed%s", queue, u.causes())}
}

// Since returns since when copies to some place have been failing, the zero time if none are. begins is closed
// when some begin to.
func (u *Unconfirmed) Since() (since time.Time, begins <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forgetOld(time.Now())
	return u.since(), u.begins
}

// since needs u.mu held.
func (u *Unconfirmed) since() (since time.Time) {
	for _, f := range u.failing {
		if since.IsZero() || f.since.Before(since) {
			since = f.since
		}
	}
	return since
}

// causes needs u.mu held.
func (u *Unconfirmed) causes() string {
	var causes []string
	for to, f := range u.failing {
		held := plural.Of(f.messages, "message") + " for"
		if f.messages == 0 {
			held = "the latest went back to the queue without, for"
		}
		causes = append(causes, fmt.Sprintf("; %s %s, since %s: %v", held, to, f.since.Format(time.RFC3339), f.err))
	}
	slices.SortFunc(causes, cmp.Compare[string])
	if u.missing != nil {
		causes = append(causes, fmt.Sprintf("; %v", u.missing))
	}
	return strings.Join(causes, "")
}
