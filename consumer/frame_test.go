package consumer

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// A nack and a wait make the headers longer. It is for the frames of the session
// to leave room for that, and a copy is sent where they do not.
func TestANackLeavesRoomForWhatTheBrokerAdds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker, err := rehoptest.NewBroker(rehoptest.Config{Version: "4.3"})
		if err != nil {
			t.Fatal(err)
		}
		defer broker.Close()
		conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		orders := topology.WorkQueue{Name: "orders", Type: topology.Quorum, Waits: delay.Fixed(time.Second, 3)}
		if err := topology.Declare(t.Context(), conn, orders); err != nil {
			t.Fatal(err)
		}
		resolved, err := topology.Resolve(t.Context(), conn, orders)
		if err != nil {
			t.Fatal(err)
		}
		ladder := wayOf(resolved)
		for _, tt := range []struct {
			rule  string
			frame int
			bytes int
			want  move
		}{
			{"no limit", 0, 4000, moveNack},
			{"large frames", 128 << 10, 4000, moveNack},
			{"large frames, half full", 128 << 10, 63 << 10, moveWait},
			{"small frames", 8 << 10, 4000, moveWait},
			{"small frames, few headers", 16 << 10, 3000, moveNack},
			{"small frames, half full", 16 << 10, 5000, moveWait},
		} {
			raw := amqp.Delivery{RoutingKey: "orders", Headers: amqp.Table{"large": strings.Repeat("x", tt.bytes)}}
			d, err := newDelivery(ladder, raw)
			if err != nil {
				t.Fatal(err)
			}
			if got := decide(ladder, tt.frame, raw, d, Outcome{Action: ActionRetry}, false, now); got.move != tt.want || got.rung != 1 {
				t.Errorf("%s: %+v, want move %d", tt.rule, got, tt.want)
			}
		}
	})
}
