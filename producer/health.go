package producer

import (
	"fmt"
	"time"

	"github.com/rehop/rehop"
)

// unhealthyAfter is how long messages may find no way to the broker before that is
// more than a reconnect.
const unhealthyAfter = 15 * time.Second

// Health returns nil if the last messages of the Producer have reached the broker.
// Otherwise it returns a *[rehop.HealthError]:
//   - degraded while messages cannot be sent or are not answered for less than 15 s,
//     and for longer if the Fallback has a sink for messages with this cause, whether or
//     not its Put succeeds;
//   - degraded for 15 s after a message that was not sent because earlier ones of its line
//     wait in a store, see store.Config.KeepOrder, or because the store failed to tell that, or
//     to keep it; not if the caller's ctx had ended by then. Since begins anew after 15 s;
//   - degraded while a single target, an exchange with a key, does not answer;
//   - unhealthy when they cannot be sent or are not answered for longer, and after
//     Shutdown.
//
// Health does not wait and sends nothing.
func (p *Producer) Health() error {
	if since, closed := p.window.closedSince(); closed {
		return &rehop.HealthError{Since: since, Cause: fmt.Errorf("producer: %w", errClosed)}
	}
	outage := p.publisher.Outage()
	if outage.Cause == nil {
		if h := p.behind.health(); h != nil {
			return h
		}
		return nil // not a nil *rehop.HealthError
	}
	degraded := outage.Partial || p.taken(CauseOf(outage.Cause)) || time.Since(outage.Since) < unhealthyAfter
	return &rehop.HealthError{Degraded: degraded, Since: outage.Since, Cause: fmt.Errorf("producer: %w", outage.Cause)}
}
