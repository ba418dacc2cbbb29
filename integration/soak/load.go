package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/producer"
)

const (
	// callers is how many messages may be in the hands of Publish at a time.
	callers = 500

	// catchUp is how long a pause in publishing is made good for; what was due
	// before that is never published.
	catchUp = time.Second

	// publishTimeout is short enough for an outage to outlast it, so that
	// callers meet unknown outcomes.
	publishTimeout = 3 * time.Second
)

// load publishes an open loop: messages come due at a rate, whatever has become
// of those before.
type load struct {
	shop    *producer.Producer
	queue   string
	account *account.Account
	outages *outages

	end     context.CancelFunc // no further message comes due
	giveUp  context.CancelFunc // on those that are not confirmed yet
	all     sync.WaitGroup
	omitted atomic.Int64 // due and never published
}

func startLoad(publisher *producer.Producer, queue string, rate int, acc *account.Account, out *outages) *load {
	l := &load{shop: publisher, queue: queue, account: acc, outages: out}
	pacing, end := context.WithCancel(context.Background())
	publishing, giveUp := context.WithCancel(context.Background())
	l.end, l.giveUp = end, giveUp
	starts := make(chan struct{}, max(1, int(float64(rate)*catchUp.Seconds())))
	l.all.Go(func() {
		defer close(starts)
		l.pace(pacing, rate, starts)
	})
	for range callers {
		l.all.Go(func() {
			for range starts {
				if pacing.Err() != nil {
					return // nobody takes the remaining starts
				}
				l.publish(publishing)
			}
		})
	}
	return l
}

// pace hands out starts until ctx ends.
func (l *load) pace(ctx context.Context, rate int, starts chan<- struct{}) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for given := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for due := dueAfter(time.Since(began), rate); given < due; given++ {
			select {
			case starts <- struct{}{}:
			default:
				l.omitted.Add(1)
			}
		}
	}
}

// dueAfter returns how many messages are due in all.
func dueAfter(elapsed time.Duration, rate int) int { return int(elapsed.Seconds() * float64(rate)) }

// publish publishes one message, and as a careful caller publishes it again,
// with the same id, until it is said to be safe.
func (l *load) publish(ctx context.Context) {
	id := l.account.Next()
	n := l.account.Number(id)
	for {
		if err := l.account.Publish(ctx, l.shop, newMessage(l.queue, id, n)); err == nil {
			l.outages.confirmed(n, time.Now())
			return
		}
		if !pause.For(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// stop lets no further message come due and waits for those in progress. After
// the limit they are given up, and not safe.
func (l *load) stop(limit time.Duration) {
	l.end()
	late := time.AfterFunc(limit, l.giveUp)
	defer late.Stop()
	l.all.Wait()
	l.giveUp()
}
