package carry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/transport"
)

// A carried wait has a single active consumer. If another program is that consumer, no
// message comes back from the wait, and no carrier notices. So Carriers ask
// the management API now and then who consumes from their waits. AMQP does not tell: a
// passive declare counts the active consumer alone.

// strangers returns the consumers of a wait that are no carriers, as an error; nil for
// none.
func strangers(queue string, consumers []management.Consumer) error {
	var foreign []string
	for _, c := range consumers {
		if !strings.HasPrefix(c.Tag, tagPrefix) || !strings.HasSuffix(c.Tag, tagSuffix) {
			foreign = append(foreign, fmt.Sprintf("consumer %q of connection %q", c.Tag, c.Connection))
		}
	}
	if foreign == nil {
		return nil
	}
	return fmt.Errorf("%s of wait queue %q: only rehop may consume from it; stop the other program, and move on by hand what it has taken", strings.Join(foreign, " and "), queue)
}

// watchStrangers looks for foreign consumers of the waits, until ctx ends.
func (c *Carriers) watchStrangers(ctx context.Context) {
	api := transport.Inside.Conn(c.Conn).Management()
	if api == nil {
		return
	}
	for next := durations.CarrierSound; pause.For(ctx, next); next = durations.WaitsLook {
		c.mu.Lock()
		queues := slices.Sorted(maps.Keys(c.carried))
		c.mu.Unlock()
		var found []error
		for _, queue := range queues {
			consumers, err := api.Consumers(ctx, queue)
			if err != nil {
				continue // the look for policies tells of an API that does not answer
			}
			found = append(found, strangers(queue, consumers))
		}
		if ctx.Err() != nil {
			return
		}
		err := errors.Join(found...)
		if err != nil {
			c.Log.Warn("a wait queue has a foreign consumer", err, "queue", c.Source.Queue)
		}
		c.mu.Lock()
		c.foreign.Becomes(err, time.Now())
		c.mu.Unlock()
	}
}
