package resend

import (
	"context"
	"time"
)

// Pace keeps to a number of messages per second; 0: as fast as it goes.
type Pace struct {
	Rate float64
	next time.Time
}

// maxLag is how far behind its plan a pace may be and catch up.
const maxLag = 250 * time.Millisecond

// Wait until messages may leave, or ctx ends. Waiting comes before they are leased: a slow
// pace waits for longer than any lease.
func (p *Pace) Wait(ctx context.Context) {
	if p.Rate == 0 {
		return
	}
	now := time.Now()
	switch earliest := now.Add(-maxLag); {
	case p.next.IsZero():
		p.next = now
	case p.next.Before(earliest):
		p.next = earliest
	}
	if p.next.After(now) {
		timer := time.NewTimer(p.next.Sub(now))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// Left says that n messages leave now.
func (p *Pace) Left(n int) {
	if p.Rate > 0 {
		p.next = p.next.Add(time.Duration(float64(n) * float64(time.Second) / p.Rate))
	}
}
