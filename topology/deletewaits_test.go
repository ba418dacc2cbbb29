package topology_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

func TestDeleteWaits(t *testing.T) {
	const s1, m1, m2, m3, h1 = time.Second, time.Minute, 2 * time.Minute, 3 * time.Minute, time.Hour
	for _, tt := range []struct {
		rule            string
		engine          topology.Engine
		before          []time.Duration // declared first, and live on
		former, current []time.Duration
		gone            []string // the former's own
		again           []string // of these, those that the current one takes
	}{
		{"a changed wait", topology.EngineRepublish, nil, []time.Duration{m1, m2}, []time.Duration{m1, m3}, []string{"orders.wait.2"}, []string{"orders.wait.2"}},
		{"a wait changed back", topology.EngineRepublish, []time.Duration{m1}, []time.Duration{m2}, []time.Duration{m1}, []string{"orders.wait.1.2m"}, nil},
		{"a shorter schedule", topology.EngineRepublish, nil, []time.Duration{m1, m2, h1}, []time.Duration{m1}, []string{"orders.wait.2", "orders.wait.3"}, nil},
		{"no waits any more", topology.EngineRepublish, nil, []time.Duration{m1}, nil, []string{"orders.wait.1"}, nil},
		{"the same schedule", topology.EngineRepublish, nil, []time.Duration{m1, m2}, []time.Duration{m1, m2}, nil, nil},
		{"a queue of a third schedule stays", topology.EngineRepublish, []time.Duration{m3}, []time.Duration{m1}, []time.Duration{m2}, []string{"orders.wait.1.1m"}, nil},
		{"carried: a shorter schedule", topology.EngineCarry, nil, []time.Duration{m1, m2}, []time.Duration{m1}, []string{"orders.wait.2"}, nil},
		{"carried: a wait changed back", topology.EngineCarry, []time.Duration{m1}, []time.Duration{s1}, []time.Duration{m1}, []string{"orders.wait.1.2"}, nil},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			everyVersion(t, func(s *server) {
				with := func(waits []time.Duration) topology.WorkQueue {
					return orders(waiting(waits...), func(w *topology.WorkQueue) { w.Bindings, w.Engine = nil, tt.engine })
				}
				former, current := with(tt.former), with(tt.current)
				if tt.before != nil {
					s.declare(with(tt.before))
				}
				s.declare(former)
				s.declare(current)
				want := slices.DeleteFunc(s.Queues(), func(name string) bool { return slices.Contains(tt.gone, name) && !slices.Contains(tt.again, name) })
				for _, name := range tt.gone {
					before := s.Queues()
					s.publish(name)
					err := topology.DeleteWaits(s.Context(), s.conn, former, current)
					if !errors.Is(err, topology.ErrInUse) || !strings.Contains(err.Error(), name) || !slices.Equal(s.Queues(), before) {
						s.Errorf("with a message in %s: %v, and %v are left; want %v, and nothing deleted", name, err, s.Queues(), topology.ErrInUse)
					}
					s.on(func(ch *amqp.Channel) error {
						_, err := ch.QueuePurge(name, false)
						return err
					})
				}
				for range 2 { // the second time, nothing is there
					if err := topology.DeleteWaits(s.Context(), s.conn, former, current); err != nil {
						s.Error(err)
					}
				}
				if got := s.Queues(); !slices.Equal(got, want) {
					s.Errorf("%v are left, want %v", got, want)
				}
				r := s.resolve(current)
				if tt.again == nil {
					return
				}
				if err := topology.DeleteWaits(s.Context(), s.conn, current, current); err != nil {
					s.Error(err)
				}
				if got := s.Queues(); len(got) != len(want)-len(tt.again) || !slices.Equal(topology.WaitsAt(s.resolve(current)), topology.WaitsAt(r)) {
					s.Errorf("%v are left, want what %v waits at alone", got, topology.WaitsAt(r))
				}
			})
		})
	}
}

// The dead-letter queue is spelt out in the calls that declare the two schedules.
func TestDeleteWaitsLeavesTheDeadLetterQueueInAnyForm(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		letters topology.Spec
	}{
		{"with a MaxAge", topology.DeadLetterQueue{Name: "orders.dlq", MaxAge: time.Hour}},
		{"of another type", topology.DeadLetterQueue{Name: "orders.dlq", Type: topology.Classic}},
		{"a work queue", topology.WorkQueue{Name: "orders.dlq", Waits: []time.Duration{time.Hour}}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			everyVersion(t, func(s *server) {
				former := orders(waiting(time.Minute, time.Hour), func(w *topology.WorkQueue) { w.Bindings, w.Engine = nil, topology.EngineRepublish })
				current := former
				current.Waits = []time.Duration{2 * time.Minute}
				s.declare(former, tt.letters)
				s.declare(current, tt.letters)
				if err := topology.DeleteWaits(s.Context(), s.conn, former, current); err != nil {
					s.Error(err)
				}
				if got := s.Queues(); slices.Contains(got, "orders.wait.2") {
					s.Errorf("%v are left", got)
				}
				if got := topology.WaitsAt(s.resolve(current)); !slices.Equal(got, []string{"orders.wait.1"}) {
					s.Errorf("the current schedule waits at %v", got)
				}
				s.declare(current, tt.letters) // refused if the form is another one
			})
		})
	}
}

// Consumers find the queues without a TTL by counting them.
func TestDeleteWaitsLeavesNoGap(t *testing.T) {
	s := start(t, "3.10")
	first := orders(waiting(time.Minute), func(w *topology.WorkQueue) { w.Bindings, w.Engine = nil, topology.EngineCarry })
	second := first
	second.Waits = []time.Duration{time.Hour}
	s.declare(first)
	s.declare(second)
	err := topology.DeleteWaits(s.Context(), s.conn, first, second)
	s.wantError("the first of two", err, `"orders.wait.1"`, "higher numbers")
	if !errors.Is(err, topology.ErrInUse) {
		t.Errorf("%v does not wrap ErrInUse", err)
	}
	other := second
	other.Name = "other"
	s.wantError("two names", topology.DeleteWaits(s.Context(), s.conn, first, other), `"orders"`, `"other"`, "want one name")
}

func TestDeleteFindsTheWaitsOfASchedule(t *testing.T) {
	everyVersion(t, func(s *server) {
		old, w := orders(waiting(time.Minute, time.Hour)), orders(waiting())
		old.Bindings, w.Bindings = nil, nil
		old.Engine = topology.EngineCarry
		s.declare(old)
		if err := topology.Delete(s.Context(), s.conn, w); err != nil {
			s.Error(err)
		}
		if got := s.Queues(); len(got) != 0 {
			s.Errorf("%v are left", got)
		}
	})
}

// What lanes or shards have in common goes with the whole specification only.
func TestDeleteOfSomeShardsOrLanes(t *testing.T) {
	four := topology.Shards{Name: "bills", Count: 4, Waits: delay.Schedule{time.Minute}}
	fewer := four
	fewer.Count = 2
	lanes := topology.Lanes{Name: "jobs", Waits: delay.Schedule{time.Minute}, OneDeadLetterQueue: true, Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}}
	for _, tt := range []struct {
		rule       string
		whole      topology.Spec
		some       []topology.WorkQueue
		rest       topology.Spec // what is as declared after that; nil: nothing asks
		letters    string
		wantQueues int // that are left
	}{
		{"shards beyond a smaller Count", four, four.WorkQueues()[2:], fewer, "bills.dlq", 5},
		{"all shards one by one", four, four.WorkQueues(), nil, "bills.dlq", 1},
		{"a lane", lanes, lanes.WorkQueues()[1:], nil, "jobs.dlq", 3},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			everyVersion(t, func(s *server) {
				s.declare(tt.whole)
				s.publish(tt.letters)
				var some []topology.Spec
				for _, w := range tt.some {
					some = append(some, w)
				}
				if err := topology.Delete(s.Context(), s.conn, some...); err != nil {
					s.Fatal(err)
				}
				if got := s.Queues(); len(got) != tt.wantQueues || !slices.Contains(got, tt.letters) {
					s.Errorf("%v are left, want %d with %q", got, tt.wantQueues, tt.letters)
				}
				if tt.rest != nil {
					if drift, err := topology.Verify(s.Context(), s.conn, tt.rest); err != nil || !drift.OK() {
						s.Errorf("%v, %v", drift, err)
					}
				}
				err := topology.Delete(s.Context(), s.conn, tt.whole)
				if s.wantError("the whole", err, tt.letters); !errors.Is(err, topology.ErrInUse) {
					s.Errorf("%v does not wrap ErrInUse", err)
				}
				s.purge(tt.letters)
				if err := topology.Delete(s.Context(), s.conn, tt.whole); err != nil || len(s.Queues()) != 0 {
					s.Errorf("%v, %v are left", err, s.Queues())
				}
			})
		})
	}
}
