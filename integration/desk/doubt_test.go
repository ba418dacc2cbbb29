package desk_test

import (
	"context"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// Somebody who may publish to one queue only writes all headers that name another one, its
// x-death among them, and lets the message expire. Nothing puts it into the other queue.
func TestForgedHeadersPutNothingIntoAnotherQueue(t *testing.T) {
	onEach(t, func(r *room) {
		mine, payments := r.work+"-mine", r.work+"-payments"
		r.declare(payments, amqp.Table{"x-queue-type": string(r.kind)})
		r.declare(mine, amqp.Table{"x-queue-type": string(r.kind), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": r.queue})
		death := []any{amqp.Table{"queue": payments, "reason": "rejected", "count": int64(3), "exchange": "", "routing-keys": []any{payments}, "time": time.Unix(1_800_000_000, 0)}}
		forgeries := []amqp.Table{
			{"x-rehop-queue": payments, "x-rehop-cause": "permanent", "x-rehop-final-attempts": int64(1)},
			{"x-rehop-queue": payments, "x-rehop-cause": "permanent", "x-death": death, "x-first-death-queue": payments, "x-last-death-queue": payments},
			{"x-rehop-queue": payments, "x-rehop-cause": "permanent", "x-death": "none"},
			{"x-rehop-queue": payments, "x-rehop-cause": "permanent", "x-death": []any{amqp.Table{"queue": int32(7)}}},
			{"x-rehop-queue": payments, "x-rehop-cause": "permanent", "x-death": append([]any{amqp.Table{"queue": mine, "reason": "expired", "count": int64(1), "time": "never"}}, death...)},
			{"x-rehop-exchange": "", "x-rehop-routing-key": payments, "x-rehop-cause": "unroutable"},
			{"NServiceBus.FailedQ": payments, "x-death": death},
			{"MT-Reason": "fault", "MT-Fault-InputAddress": "rabbitmq://broker/" + payments},
		}
		r.has(r.queue, 0)
		ch := r.channel()
		for i, headers := range forgeries {
			must(t, ch.Publish("", mine, true, false, amqp.Publishing{Headers: headers, Expiration: "1", MessageId: id(i), Body: []byte("pay me"), DeliveryMode: 2}))
		}
		r.has(r.queue, len(forgeries))

		live := r.live()
		list, err := live.List(t.Context(), desk.Filter{}, desk.Page{Look: true})
		must(t, err)
		for _, l := range list.Letters {
			t.Logf("queue %q: %q", l.Queue, l.Doubt)
			if _, known := l.Target(); known || !strings.Contains(l.Doubt, "x-death") {
				t.Errorf("%v: %q", l.Publishing.Headers, l.Doubt)
			}
		}
		p, err := live.Execute(t.Context(), desk.Redrive{Action: desk.Send, All: true}, nil)
		if err != nil || p.Skipped != len(forgeries) || p.Done+p.Failed != 0 || !strings.Contains(p.Note, "name a target") {
			t.Errorf("sent from the queue: %v, %v", p, err)
		}

		s, collected, _ := r.collected(len(forgeries))
		list, err = collected.List(t.Context(), desk.Filter{}, desk.Page{})
		must(t, err)
		for _, l := range list.Letters {
			if l.Doubt == "" {
				t.Errorf("collected without a doubt: %v", l.Publishing.Headers)
			}
		}
		p, err = collected.Execute(t.Context(), desk.Redrive{Action: desk.Send, All: true}, nil)
		if err != nil || p.Skipped != len(forgeries) || p.Done+p.Failed != 0 || !strings.Contains(p.Note, "name a target") {
			t.Errorf("sent from the store: %v, %v", p, err)
		}
		publisher, err := producer.New(r.conn, producer.Config{})
		must(t, err)
		defer publisher.Close()
		report, err := s.Replay(t.Context(), publisher, store.Query{All: true}, store.ReplayOptions{})
		if err != nil || report.Sent != 0 || report.Failed != len(forgeries) || !strings.Contains(report.Last.Error(), "name a target") {
			t.Errorf("replayed: %+v, %v", report, err)
		}
		_, err = s.Release(t.Context(), store.Query{All: true})
		must(t, err)
		forwarder, err := s.NewForwarder(publisher, store.ForwardConfig{})
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- forwarder.Run(ctx) }()
		poll.Until(t, time.Minute, "all are parked", func() bool {
			n, err := s.Count(t.Context(), store.Query{States: []store.State{store.Parked}})
			return err == nil && n == len(forgeries)
		})
		stop()
		must(t, <-ended)
		r.has(payments, 0)
		r.has(mine, 0)

		to := &topology.Address{RoutingKey: payments}
		p, err = collected.Execute(t.Context(), desk.Redrive{Action: desk.Send, All: true, To: to}, nil)
		if err != nil || p.Done != len(forgeries) {
			t.Errorf("sent to a target that is named: %v, %v", p, err)
		}
	})
}
