package connection

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// BlockedError says that something could not be sent, because the broker blocks
// publishers while it is short of memory or disk. Other errors wrap it, so find
// it with errors.As. It is [Transient].
type BlockedError struct {
	Reason string // as the broker words it, such as "low on memory"
	Since  time.Time
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("connection: the broker has blocked publishers for %v (%s)", time.Since(e.Since).Round(time.Millisecond), e.Reason)
}

// gate is shut while the broker blocks publishers. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // nil while open; closed when it opens
	reason string
	since  time.Time
}

func (g *gate) shut(reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened, g.since = make(chan struct{}), time.Now()
	}
	g.reason = reason
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

func (g *gate) state() (reason string, since time.Time, shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		return "", time.Time{}, false
	}
	return g.reason, g.since, true
}

// wait returns nil once the gate is open, or an error when ctx ends first.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	opened, reason, since := g.opened, g.reason, g.since
	g.mu.Unlock()
	if opened == nil {
		return nil
	}
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", &BlockedError{reason, since}, ended(ctx))
	}
}

// waitFor is wait, for at most d.
func (g *gate) waitFor(ctx context.Context, d time.Duration) error {
	if _, _, shut := g.state(); !shut {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return g.wait(ctx)
}
