package connection

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/pause"
)

// BlockedError says that something could not be sent, because the broker blocks
// publishers while it is short of memory or disk. Other errors wrap it, so find
// it with errors.As.
type BlockedError struct {
	Reason string // as the broker words it, such as "low on memory"
	Since  time.Time
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("connection: the broker has blocked publishers for %v (%s)", time.Since(e.Since).Round(time.Millisecond), e.Reason)
}

// Class returns [rehop.ClassTransient].
func (*BlockedError) Class() rehop.Class { return rehop.ClassTransient }

// blocked says whether the broker blocks publishers. The zero value says that it does not.
type blocked struct {
	mu     sync.Mutex
	over   chan struct{} // nil while it blocks nobody; closed when that is over
	reason string
	since  time.Time
}

func (b *blocked) set(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil {
		b.over, b.since = make(chan struct{}), time.Now()
	}
	b.reason = reason
}

func (b *blocked) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over != nil {
		close(b.over)
		b.over = nil
	}
}

func (b *blocked) state() (reason string, since time.Time, active bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil {
		return "", time.Time{}, false
	}
	return b.reason, b.since, true
}

// active returns a channel that is closed when the broker blocks nobody any more, and
// since when it blocks; nil and zero if it does not.
func (b *blocked) active() (over <-chan struct{}, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil {
		return nil, time.Time{}
	}
	return b.over, b.since
}

// wait returns nil once the broker blocks nobody, or an error when ctx ends first.
func (b *blocked) wait(ctx context.Context) error {
	b.mu.Lock()
	over, reason, since := b.over, b.reason, b.since
	b.mu.Unlock()
	if over == nil {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", &BlockedError{reason, since}, pause.Ended(ctx))
	}
}

// waitFor is wait, for at most d.
func (b *blocked) waitFor(ctx context.Context, d time.Duration) error {
	if _, _, active := b.state(); !active {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return b.wait(ctx)
}
