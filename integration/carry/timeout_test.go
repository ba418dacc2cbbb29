package carry

import (
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/poll"
)

// A wait is longer than the broker lets a consumer keep a message: 5 s here,
// 30 minutes out of the box. Until 4.2 the broker closes the channel then, from
// 4.3 on it cancels the consumer of a quorum queue.
func TestWaitBeyondTheConsumerTimeout(t *testing.T) {
	const n, wait = 20, 14 * time.Second
	onEachVersion(t, func(t *testing.T, b *broker.Broker) {
		// Channels look once a minute out of the box.
		if out, err := b.Exec(t.Context(), "rabbitmqctl", "eval", "application:set_env(rabbit, consumer_timeout, 5000), application:set_env(rabbit, channel_tick_interval, 1000)."); err != nil {
			t.Fatal(err, out)
		}
		for _, queueType := range queueTypes {
			t.Run(string(queueType), func(t *testing.T) {
				t.Parallel()
				conn := open(t, b)
				w := declare(t, conn, queueType, wait, 100*time.Millisecond)
				l := newLedger(w)
				l.publish(t, conn, w, n)
				consume(t, conn, w, l, consumer.Trace{})
				poll.Until(t, time.Minute, "the end of all messages", func() bool { return l.done() == n })
				s := l.end(t, "held beyond the timeout")
				if s.doubled > 0 {
					t.Errorf("%d runs doubled: to give back is no failure", s.doubled)
				}
				if late := s.late[len(s.late)-1]; late > wait-2*time.Second { // to begin the wait anew would take all of it
					t.Errorf("the last one came %v late", late)
				}
			})
		}
	})
}
