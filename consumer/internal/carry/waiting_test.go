package carry

import (
	"math"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

func TestAMessageIsBroughtBackWhenItIsDue(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		rule string
		due  any
		wait time.Duration
		at   time.Time
	}{
		{"due later: then", now.Add(40 * time.Second).UnixMilli(), 0, now.Add(40 * time.Second)},
		{"due within the wait of its queue: then", now.Add(40 * time.Second).UnixMilli(), time.Minute, now.Add(40 * time.Second)},
		{"due beyond the wait of its queue: after that", now.Add(time.Hour).UnixMilli(), time.Minute, now.Add(time.Minute)},
		{"due already: at once", now.Add(-time.Hour).UnixMilli(), time.Minute, now.Add(-time.Hour)},
		{"no due time: at once", nil, time.Minute, time.Time{}},
		{"a malformed due time: at once", "soon", 0, time.Time{}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			raw := amqp.Delivery{Headers: amqp.Table{}}
			if tt.due != nil {
				raw.Headers[header.Due] = tt.due
			}
			w := newWaiting(raw, now, tt.wait, nil)
			if !w.at.Equal(tt.at) || !w.due.Equal(tt.at) || !w.since.Equal(now) {
				t.Errorf("brought back at %v, due %v, in hand since %v; want at %v, since %v", w.at, w.due, w.since, tt.at, now)
			}
		})
	}
}

func TestABoundHoldsForOneArrival(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	from := func(id string, due time.Time) amqp.Delivery {
		return amqp.Delivery{MessageId: id, Headers: amqp.Table{header.Due: due.UnixMilli()}}
	}
	far, quarter := now.Add(100*time.Hour), now.Add(15*time.Minute)
	earlier := boundsOf([]*waiting{
		newWaiting(from("far", far), now, time.Hour, nil),
		newWaiting(from("", far), now, time.Hour, nil),
		newWaiting(from("", far), now.Add(time.Minute), time.Hour, nil),
		newWaiting(from("near", now.Add(time.Minute)), now, time.Hour, nil),
	})
	for _, tt := range []struct {
		rule string
		raw  amqp.Delivery
		want time.Time
	}{
		{"in hand again: due an hour after the first time", from("far", far), now.Add(time.Hour)},
		{"there again, with another due time: due after the whole wait", from("far", quarter.Add(time.Hour)), quarter.Add(time.Hour)},
		{"without an id, and in hand again: due an hour after the first time", from("", far), now.Add(time.Hour)},
		{"without an id, and with another due time: due after the whole wait", from("", far.Add(time.Millisecond)), quarter.Add(time.Hour)},
		{"another message", from("other", far), quarter.Add(time.Hour)},
	} {
		if w := newWaiting(tt.raw, quarter, time.Hour, earlier); !w.due.Equal(tt.want) {
			t.Errorf("%s: due at %v, want %v", tt.rule, w.due, tt.want)
		}
	}
	if len(earlier) != 2 {
		t.Errorf("%d bounds, want one with an id and one without", len(earlier))
	}
}

func TestWhatABroughtBackMessageKeeps(t *testing.T) {
	raw := amqp.Delivery{
		Headers: amqp.Table{
			"user": "kept", header.Attempts: int64(2), header.Queue: "q", header.Exchange: "shop", header.RoutingKey: "paid",
			header.Due: int64(1), header.DeliveryCount: int64(3),
		},
		MessageId: "m", UserId: "other", Body: []byte("body"), Priority: 7,
	}
	p := newWaiting(raw, time.Now(), 0, nil).publishing("guest")
	h, err := xdeath.Parse(p.Headers)
	if err != nil || h.Attempt("q", true) != 3 || h.Exchange != "shop" || h.RoutingKey != "paid" {
		t.Errorf("%+v, %v: want the history as it was", h, err)
	}
	if p.Headers["user"] != "kept" || p.MessageId != "m" || string(p.Body) != "body" || p.Priority != 7 || p.DeliveryMode != amqp.Persistent {
		t.Errorf("not the same message: %+v", p)
	}
	if !h.Due.IsZero() {
		t.Error("the due time is on it: a clock that is behind would have it wait again")
	}
	if h.DeliveryCount != 0 {
		t.Error("the wait queue's delivery count is on it, where it would count for the work queue")
	}
	if p.UserId != "" || h.Archived.UserID != "other" {
		t.Error("it has another user's user-id, which the broker refuses")
	}
}

func TestNextIsWhatIsDueTheEarliestFirst(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	const hold = 15 * time.Minute
	type in struct{ due, at, since time.Duration } // from now
	for _, tt := range []struct {
		rule  string
		hand  []in
		ready []int
		again time.Duration // from now, 0 for never
		over  bool
	}{
		{"nothing in hand", nil, nil, 0, false},
		{"none due: the first to be", []in{{5, 5, 0}, {7, 7, 0}}, nil, 5, false},
		{"not in the order of the queue", []in{{7, 7, 0}, {5, 5, 0}}, nil, 5, false},
		{"due this very moment", []in{{0, 0, 0}, {1, 1, 0}}, []int{0}, 1, false},
		{"several: by due time", []in{{-1, -1, 0}, {-3, -3, 0}, {-2, -2, 0}}, []int{1, 2, 0}, 0, false},
		{"the same due time: in their order", []in{{-1, -1, 0}, {-1, -1, 0}}, []int{0, 1}, 0, false},
		{"one that failed waits for its next try", []in{{-9, 4, 0}, {-1, -1, 0}}, []int{1}, 4, false},
		{"due later than it may be held: when it is given back", []in{{3600, 3600, -60}}, nil, 14 * 60, false},
		{"held for long enough", []in{{3600, 3600, -900}}, nil, 0, true},
		{"held for long enough, and due: it is published", []in{{-1, -1, -900}}, []int{0}, 0, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			var hand []*waiting
			for _, i := range tt.hand {
				hand = append(hand, &waiting{due: now.Add(i.due * time.Second), at: now.Add(i.at * time.Second), since: now.Add(i.since * time.Second)})
			}
			ready, again, over := next(hand, now, hold)
			var got []int
			for _, w := range ready {
				got = append(got, slices.Index(hand, w))
			}
			if !slices.Equal(got, tt.ready) {
				t.Errorf("ready %v, want %v", got, tt.ready)
			}
			if over != tt.over {
				t.Errorf("over %t, want %t", over, tt.over)
			}
			if !over && (tt.again == 0) != again.IsZero() || tt.again > 0 && !again.Equal(now.Add(tt.again*time.Second)) {
				t.Errorf("again at %v, want after %vs", again, int(tt.again))
			}
		})
	}
}

func TestThePrefetchFollowsTheSizes(t *testing.T) {
	for _, tt := range []struct {
		rule     string
		sizes    []int // MiB
		prefetch int
		want     int
	}{
		{"nothing in hand", nil, 16, 16},
		{"within the bound", []int{8, 8}, 256, 256},
		{"beyond it: what fits", []int{8, 8, 1}, 256, 2},
		{"beyond it, the first alone: one", []int{20, 1}, 256, 1},
		{"one that is too large is held all the same", []int{20}, 1, 1},
		{"a full hand of small ones: more", []int{0, 0}, 2, 4},
		{"never more than there may be", make([]int, 200), 200, maxPrefetch},
		{"a full hand that is not small", []int{2, 2}, 2, 2},
		{"a hand that is not full", []int{0}, 2, 2},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			var hand []*waiting
			for _, mib := range tt.sizes {
				hand = append(hand, &waiting{raw: amqp.Delivery{Body: make([]byte, mib<<20)}})
			}
			if got := fitting(hand, tt.prefetch); got != tt.want {
				t.Errorf("prefetch %d, want %d", got, tt.want)
			}
		})
	}
}

func TestWhatIsDoneIsAckedInFewFrames(t *testing.T) {
	for _, tt := range []struct {
		rule       string
		hand, done []uint64
		left       []uint64
		upTo       uint64
		single     []uint64
	}{
		{"all", []uint64{4, 5, 6}, []uint64{4, 5, 6}, nil, 6, nil},
		{"all, in another order", []uint64{4, 5, 6}, []uint64{6, 4, 5}, nil, 6, nil},
		{"the first ones", []uint64{4, 5, 6}, []uint64{4, 5}, []uint64{6}, 5, nil},
		{"one is missing in the middle", []uint64{4, 5, 6}, []uint64{4, 6}, []uint64{5}, 4, []uint64{6}},
		{"the first is missing", []uint64{4, 5, 6}, []uint64{6, 5}, []uint64{4}, 0, []uint64{6, 5}},
		{"none", []uint64{4, 5}, nil, []uint64{4, 5}, 0, nil},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			var hand, done []*waiting
			for _, tag := range tt.hand {
				hand = append(hand, &waiting{raw: amqp.Delivery{DeliveryTag: tag}})
			}
			for _, tag := range tt.done {
				done = append(done, hand[slices.Index(tt.hand, tag)])
			}
			left, upTo, single := remove(hand, done)
			var tags []uint64
			for _, w := range left {
				tags = append(tags, w.raw.DeliveryTag)
			}
			if !slices.Equal(tags, tt.left) || upTo != tt.upTo || !slices.Equal(single, tt.single) {
				t.Errorf("left %v, up to %d, single %v; want %v, %d, %v", tags, upTo, single, tt.left, tt.upTo, tt.single)
			}
		})
	}
}

func TestFailuresArePutOffForLonger(t *testing.T) {
	w := &waiting{}
	now := time.Unix(0, 0)
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		if w.failed(now); w.at.Sub(now) != want*time.Millisecond {
			t.Errorf("failure %d is tried again after %v, want %v ms", i+1, w.at.Sub(now), int(want))
		}
	}
	w.tries = math.MaxInt - 1
	if w.failed(now); w.at.Sub(now) != 10*time.Second {
		t.Errorf("after many: %v", w.at.Sub(now))
	}
}
