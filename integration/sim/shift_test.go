package sim

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/rehoptest"
)

// What a process writes is ahead by its clock for others, and as it was for itself.
func TestAClockThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := rehoptest.NewBroker(rehoptest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		open := func(ahead time.Duration) *amqp.Channel {
			c, err := amqp.DialConfig("amqp://guest:guest@broker", amqp.Config{Dial: func(network, address string) (net.Conn, error) {
				return dial(b.Dial).ahead(ahead)(context.Background(), network, address)
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			ch, err := c.Channel()
			if err != nil {
				t.Fatal(err)
			}
			return ch
		}
		right, wrong := open(0), open(time.Hour)
		if _, err := right.QueueDeclare("dates", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		const date = int64(1_700_000_000_000)
		for _, by := range []*amqp.Channel{right, wrong} {
			for _, seen := range []*amqp.Channel{right, wrong} {
				m := amqp.Publishing{Headers: amqp.Table{header.Due: date, header.NotBefore: date + 1, "other": date}, Body: make([]byte, 300_000)}
				if err := by.PublishWithContext(t.Context(), "", "dates", false, false, m); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				d, ok, err := seen.Get("dates", true)
				if err != nil || !ok {
					t.Fatal(ok, err)
				}
				want := date
				if by != seen {
					want += time.Hour.Milliseconds()
				}
				if seen == wrong && by != seen {
					want = date - time.Hour.Milliseconds()
				}
				if d.Headers[header.Due] != want || d.Headers[header.NotBefore] != want+1 || d.Headers["other"] != date || len(d.Body) != 300_000 {
					t.Errorf("written by a process whose clock is ahead: %t, read by one: %t: %v, want %d", by == wrong, seen == wrong, d.Headers, want)
				}
			}
		}
	})
}
