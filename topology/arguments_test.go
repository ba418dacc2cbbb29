package topology_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

func TestConsumerTimeoutIsRefusedWhereItWouldNotWork(t *testing.T) {
	w := topology.WorkQueue{Name: "q", ConsumerTimeout: 2 * time.Hour}
	of := lanes("a", "b")
	of.ConsumerTimeout = time.Millisecond
	for _, tt := range []struct {
		spec topology.Spec
		v    connection.Version
		want string
	}{
		{w, v310, `WorkQueue "q": ConsumerTimeout is 2h0m0s, which is refused on broker 3.10.8: it has one consumer timeout for all queues; ` +
			`set consumer_timeout in its configuration and no ConsumerTimeout, or use broker 3.12`},
		{topology.WorkQueue{Name: "q", ConsumerTimeout: 721 * time.Hour}, v43, `WorkQueue "q": ConsumerTimeout is 721h0m0s, want 1s to 720h, or 0 for the broker's own`},
		{topology.WorkQueue{Name: "q", ConsumerTimeout: -1}, v43, `WorkQueue "q": ConsumerTimeout is -1ns, want 1s to 720h`},
		{topology.WorkQueue{Name: "q", ConsumerTimeout: time.Second + 1}, v43, `WorkQueue "q": ConsumerTimeout is 1.000000001s, want whole milliseconds`},
		{topology.WorkQueue{Name: "q", ConsumerTimeout: time.Hour, Existing: true}, v43, `WorkQueue "q": ConsumerTimeout is 1h0m0s, want 0 with Existing`},
		{of, v43, `: ConsumerTimeout is 1ms, want 1s to 720h`},
	} {
		if _, err := topology.NewPlan(tt.v, tt.spec); err == nil || !strings.Contains(err.Error(), tt.want) || rehop.ClassOf(err) != rehop.ClassBug {
			t.Errorf("%+v on %s: %v, want %s", tt.spec, tt.v, err, tt.want)
		}
	}
}

// Brokers before 4.3 do not compare it, and consumers of 4.3 ask for it.
func TestAnotherConsumerTimeoutIsNoConflict(t *testing.T) {
	for _, version := range []string{"4.0", "4.3"} {
		s := start(t, version)
		w := topology.WorkQueue{Name: "q", ConsumerTimeout: time.Hour}
		s.declare(w)
		w.ConsumerTimeout = 2 * time.Hour
		s.declare(w)
		w.ConsumerTimeout = 0
		s.declare(w)
		// As a broker before 4.3, which has been upgraded since, was told to.
		s.rawQueue("old", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(20), "x-dead-letter-exchange": "old.rehop.dlx",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-consumer-timeout": int64(60_000)})
		w = topology.WorkQueue{Name: "old", ConsumerTimeout: time.Hour}
		s.declare(w)
		s.resolve(w)
		w.ConsumerTimeout = 0
		s.declare(w)
	}
}
