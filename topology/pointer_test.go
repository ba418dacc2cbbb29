package topology_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// embedding is a specification of a program's own.
type embedding struct{ topology.WorkQueue }

func TestAPointerIsTheValueItPointsTo(t *testing.T) {
	exchange := topology.Exchange{Name: "shop"}
	work := orders(func(w *topology.WorkQueue) { w.NativePriority = true })
	letters := topology.DeadLetterQueue{Name: "letters"}
	lanes := topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}, Waits: delay.Schedule{time.Minute}}
	delays := topology.Delays{Max: time.Hour}
	for _, tt := range []struct{ value, pointer topology.Spec }{
		{exchange, &exchange}, {work, &work}, {letters, &letters}, {lanes, &lanes}, {delays, &delays},
		{work, embedding{work}}, {work, &embedding{work}},
	} {
		a, errA := topology.NewPlan(v43, tt.value)
		b, errB := topology.NewPlan(v43, tt.pointer)
		if errA != nil || errB != nil || a.String() != b.String() {
			t.Errorf("%T is planned as\n%s(%v)\nand %T as\n%s(%v)", tt.value, a, errA, tt.pointer, b, errB)
		}
	}
	hand := topology.Route{Queue: "theirs", Waits: delay.Schedule{time.Minute}, WaitAt: []topology.Address{{RoutingKey: "theirs.wait"}}}
	for _, tt := range []struct{ value, pointer topology.Source }{
		{work, &work}, {letters, &letters}, {lanes, &lanes}, {hand, &hand}, {work, &embedding{work}},
	} {
		a, errA := route.Of(tt.value)
		b, errB := route.Of(tt.pointer)
		if errA != nil || errB != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%T is read as\n%+v (%v)\nand %T as\n%+v (%v)", tt.value, a, errA, tt.pointer, b, errB)
		}
	}
}

func TestANilPointerIsRefused(t *testing.T) {
	var work *topology.WorkQueue
	if _, err := topology.NewPlan(v43, work); err == nil || !strings.Contains(err.Error(), "specification 1 is nil") || rehop.ClassOf(err) != rehop.ClassBug {
		t.Errorf("NewPlan: %v, want that specification 1 is nil", err)
	}
	if _, err := route.Of(work); err == nil || !strings.Contains(err.Error(), "source is nil") || rehop.ClassOf(err) != rehop.ClassBug {
		t.Errorf("as a source: %v, want that it is nil", err)
	}
	s := start(t, "4.3")
	if err := topology.Delete(t.Context(), s.conn, work); err == nil || !strings.Contains(err.Error(), "specification 1 is nil") {
		t.Errorf("Delete: %v, want that specification 1 is nil", err)
	}
}

// A changed wait was a conflict, and its queues were left, where the specification was
// a pointer.
func TestAPointerIsDeclaredLearntAndDeletedAsItsValueIs(t *testing.T) {
	everyVersion(t, func(s *server) {
		first := orders(waiting(time.Minute, time.Hour), func(w *topology.WorkQueue) { w.Bindings = nil })
		changed := orders(waiting(2*time.Minute), func(w *topology.WorkQueue) { w.Bindings = nil })
		s.declare(&first)
		s.declare(&changed)
		byPointer, byValue := s.resolve(&changed), s.resolve(changed)
		if !reflect.DeepEqual(byPointer, byValue) {
			s.Errorf("the route of the pointer is\n%+v\nand of the value\n%+v", byPointer, byValue)
		}
		delays := topology.Delays{Max: time.Minute}
		s.declare(&topology.Delays{}, &changed)
		if err := topology.Delete(s.Context(), s.conn, &changed, &delays); err != nil {
			s.Error(err)
		}
		if left := s.Queues(); len(left) > 0 {
			s.Errorf("%v are left", left)
		}
	})
}
