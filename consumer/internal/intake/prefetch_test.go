package intake

import (
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/header"
)

func TestWantedPrefetch(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	calm := start.Add(durations.Buffered - durations.Calm)
	for _, tt := range []struct {
		rule     string
		policy   Prefetch
		prefetch int
		handled  int64 // in the time before
		untried  int
		waited   time.Duration
		want     int
	}{
		{"what quick handlers do in 100 ms", Prefetch{Base: 1}, 1, 300, 0, 0, 301},
		{"and no more than so many", Prefetch{Base: 1}, 300, 100_000, 0, 0, maxPrefetch},
		{"slow handlers: as many as are handled at a time", Prefetch{Base: 16, unsteady: calm}, 16, 10, 0, 0, 16},
		{"less than twice as much is not worth it", Prefetch{Base: 16}, 300, 400, 0, 0, 300},
		{"a base beyond the limit stays", Prefetch{Base: 9000}, 9000, 100_000, 0, 0, 9000},
		{"buffered messages wait too long", Prefetch{Base: 16}, 2000, 1, 0, time.Second, 16},
		{"the first ones wait: they are no more than the base", Prefetch{Base: 16}, 16, 1, 0, time.Minute, 16},
		{"few messages since one that was delivered before", Prefetch{Base: 1, since: 1}, 1, calmMessages, 0, 0, 1},
		{"enough messages since", Prefetch{Base: 1}, 1, calmMessages, 0, 0, 1 + calmMessages},
		{"enough messages since, but that one is in hand", Prefetch{Base: 1}, 1, 3000, 1, 0, 1},
		{"a second since, and it is in hand all the same", Prefetch{Base: 1, unsteady: calm}, 1, 300, 1, 0, 301},
		{"it was too large a while ago", Prefetch{Base: 1, cautious: start.Add(time.Minute)}, 1, 3000, 0, 0, 1},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			p := tt.policy
			p.began = start
			if p.unsteady.IsZero() {
				p.unsteady = start
			}
			if got := p.want(tt.prefetch, p.Base, tt.handled, tt.untried, tt.waited, start.Add(durations.Buffered)); got != tt.want {
				t.Errorf("wanted = %d, want %d", got, tt.want)
			}
			if got := p.want(tt.prefetch, p.Base, tt.handled, 0, 0, p.began.Add(time.Millisecond)); got != tt.prefetch {
				t.Errorf("after a millisecond more: %d, want %d", got, tt.prefetch)
			}
		})
	}
}

func TestWhenAnotherSuspectMayCome(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	met := suspicion{half: 10, last: now}
	for _, tt := range []struct {
		rule  string
		in    hand.Counts
		after time.Duration
		want  bool
	}{
		{"one that is untried is alone", hand.Counts{Unsettled: 1, Recent: 1, Untried: 1}, 0, false},
		{"one that is retained makes room", hand.Counts{Unsettled: 1, Recent: 1, Retained: 1}, 0, true},
		{"those of earlier consumers make none", hand.Counts{Unsettled: 4, Recent: 1, Untried: 1}, 0, false},
		{"nor does one whose ack is to be written", hand.Counts{Unsettled: 3, Recent: 1}, 0, false},
		{"the latest consumer has none yet", hand.Counts{Unsettled: 3}, 0, false},
		{"a handler has been at work on one for long", hand.Counts{Unsettled: 1, Recent: 1, Untried: 1}, durations.Uncleared, true},
		{"the handler that was has returned", hand.Counts{Unsettled: 1, Recent: 1}, durations.Uncleared, false},
		{"one of an earlier consumer has been at work for long, and the latest has none yet", hand.Counts{Unsettled: 1, Untried: 1}, durations.Uncleared, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := met.another(tt.in, now.Add(tt.after)); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
		})
	}
}

// A message that comes for the first time has died nowhere, whatever its headers say. Half of the limit and more is
// believed all the same: such a message is alone in hand for once.
func TestWhatIsSuspect(t *testing.T) {
	for _, tt := range []struct {
		rule        string
		count       int64
		redelivered bool
		deaths      int
		wary, over  bool
	}{
		{"nobody has died", 0, false, 0, false, true},
		{"few have", 4, true, 0, false, true},
		{"a quarter of the limit", 5, true, 0, true, false},
		{"half of the limit", 10, true, 10, true, false},
		{"a publisher has written a quarter", 5, false, 0, false, true},
		{"a publisher has written half", 10, false, 10, true, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s := suspicion{half: 10}
			raw := amqp.Delivery{Redelivered: tt.redelivered, Headers: amqp.Table{header.DeliveryCount: tt.count}}
			deaths := s.judge("orders", raw, connection.Version{Major: 4, Minor: 3}, 0, time.Now())
			if deaths != tt.deaths || s.wary != tt.wary || s.over != tt.over {
				t.Errorf("%d deaths, wary: %t, over: %t; want %d, %t, %t", deaths, s.wary, s.over, tt.deaths, tt.wary, tt.over)
			}
		})
	}
}

func TestThePrefetchForNow(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	room := func(wants, waiting int) hand.Room { return hand.Room{Wants: wants, Waiting: waiting} }
	suspects := func(untried, kept int) hand.Room {
		return hand.Room{Wants: 16, Counts: hand.Counts{Unsettled: untried + kept, Recent: untried + kept, Untried: untried, Retained: kept}}
	}
	blocked := hand.Room{Wants: 16, Blocked: true, Counts: hand.Counts{Unsettled: 16}}
	for _, tt := range []struct {
		rule    string
		fixed   bool
		v       view
		want    int
		another bool
	}{
		{"the gate is open again: as a session begins", false, view{lane: true, prefetch: 0, room: room(16, 0)}, 1, true},
		{"a pause: none", false, view{lane: true, prefetch: 16, room: room(0, 9)}, 0, true},
		{"it goes on", false, view{lane: true, prefetch: 0, room: room(0, 0)}, 0, false},
		{"an outage: one", false, view{lane: true, prefetch: 16, room: room(1, 9)}, 1, true},
		{"none was wanted, and now one is", false, view{lane: true, prefetch: 0, room: room(1, 0)}, 1, true},
		{"that one is to be handled next", false, view{lane: true, prefetch: 1, room: room(1, 1)}, 1, false},
		{"it is held, and another one is wanted", false, view{lane: true, prefetch: 1, room: room(1, 0)}, 1, true},
		{"the message of an outage has come, and a handler has it", false, view{prefetch: 1, room: room(1, 0)}, 1, false},
		{"the time passes in an outage", false, view{prefetch: 16, room: room(1, 9)}, 16, false},
		{"the time passes in a pause", false, view{prefetch: 0, room: room(16, 0)}, 0, false},
		{"a suspect is in hand: no other", true, view{prefetch: 1, room: suspects(1, 0), suspicion: suspicion{half: 10, last: now}}, 1, false},
		{"its handler has returned, and it is held: one more", true, view{prefetch: 1, room: suspects(0, 1), suspicion: suspicion{half: 10, last: now}}, 1, true},
		{"as many as are handled at a time are held", true, view{prefetch: 1, room: suspects(0, 16), suspicion: suspicion{half: 10, last: now}}, 1, false},
		{"a message has come that is none: all", true, view{prefetch: 1, room: suspects(0, 0), suspicion: suspicion{half: 10, over: true}}, 16, true},
		{"a larger prefetch than one brings no other suspect", true, view{prefetch: 3, room: suspects(1, 0), suspicion: suspicion{half: 10, last: now}}, 1, false},
		{"nothing is suspect without a delivery limit: all", true, view{prefetch: 1, room: suspects(1, 0)}, 16, true},
		{"a prefetch that is fixed", true, view{prefetch: 16, room: blocked, handled: 5000}, 16, false},
		{"past a key", false, view{prefetch: 16, room: blocked}, 16, true},
		{"not with a bound", false, view{prefetch: 16, room: blocked, bounded: true}, 16, false},
		{"not while messages come back again and again", false, view{prefetch: 16, room: blocked, suspicion: suspicion{half: 10, wary: true}}, 16, false},
		{"what quick handlers do", false, view{prefetch: 16, room: room(16, 0), handled: 300}, 316, true},
		{"the oldest message waits too long", false, view{prefetch: 300, room: hand.Room{Wants: 16, Oldest: now.Add(-durations.Stale)}, handled: 1}, 16, true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			p := Prefetch{Base: 16, Fixed: tt.fixed, began: now.Add(-durations.Buffered), unsteady: now.Add(-durations.Calm)}
			tt.v.base, tt.v.first = 16, 1
			if got, another := p.next(tt.v, now); got != tt.want || another != tt.another {
				t.Errorf("%d, %v; want %d, %v", got, another, tt.want, tt.another)
			}
		})
	}
}

// messages is a Consumer that makes messages, and does nothing else.
type messages struct{ Consumer }

func (messages) Message(raw amqp.Delivery, now time.Time, deaths int) *hand.Message {
	return &hand.Message{Raw: raw, Received: now, Deaths: deaths}
}

func TestARedeliveredMessageKeepsThePrefetchSmall(t *testing.T) {
	lane := hand.New(1, false).Lane(hand.Limits{Slots: 1})
	in := lane.Session(hand.Contexts{Stop: t.Context(), Working: t.Context(), Copying: t.Context()})
	s := &Session{Config: Config{Handled: &atomic.Int64{}, Hand: in, Lane: lane, Consumer: messages{}}}
	s.Handled.Store(5000)
	now := time.Now()
	comes := func(raw amqp.Delivery) { s.Hand.Delivered(s.note(raw, now), &s.out) }
	if comes(amqp.Delivery{DeliveryTag: 1}); !s.Prefetch.calm(5000, s.Hand.Counts().Untried, now) || s.again {
		t.Error("a message that comes for the first time counts")
	}
	comes(amqp.Delivery{DeliveryTag: 2, Redelivered: true})
	if s.Prefetch.calm(5000, 0, now) || s.Hand.Counts().Untried != 1 || !s.again {
		t.Errorf("%d messages are noted as delivered before, and the prefetch is %+v", s.Hand.Counts().Untried, s.Prefetch)
	}
}

func TestALargerBound(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := &Bound{}
	if b.mayRise(1000, 0, time.Hour, now) || b.of(70) != 70 {
		t.Error("there is no bound, and it may rise")
	}
	b.set(0, 100, now)
	for _, tt := range []struct {
		rule    string
		handled int64
		age     time.Duration // of the message that waits longest
		after   time.Duration
		want    bool
	}{
		{"so many messages in a minute", 108, 0, time.Minute, true},
		{"fewer", 107, 0, time.Minute, false},
		{"sooner", 200, 0, time.Minute - 1, false},
		{"a message has waited for long", 108, 15 * time.Minute, time.Minute, false},
	} {
		if got := b.mayRise(tt.handled, tt.age, time.Hour, now.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %v", tt.rule, got)
		}
	}
	if b.of(70) != 1 || !b.mayAwait(time.Hour) {
		t.Error("one message at a time: its handler keeps no other from being handled")
	}
	b.rise(70, 200, now)
	if b.of(70) != 2 || !b.mayAwait(7*time.Second) || b.mayAwait(8*time.Second) {
		t.Errorf("two messages at a time: %+v, and all keys may stand still for an eighth of a minute", b)
	}
	b.stay(now)
	if b.mayRise(1000, 0, time.Hour, now.Add(time.Minute)) || !b.mayRise(1000, 0, time.Hour, now.Add(2*time.Minute)) || !b.mayAwait(14*time.Second) {
		t.Errorf("after handlers that took too long: %+v, want a try in twice the time", b)
	}
	b.set(40, 0, now)
	if b.rise(70, 0, now); b.of(70) != 70 || b.mayRise(1000, 0, time.Hour, now.Add(time.Hour)) {
		t.Errorf("the whole prefetch: %+v", b)
	}
}

func TestAPrefetchThatGrowsPastKeys(t *testing.T) {
	for _, tt := range []struct {
		rule string
		base int
		in   hand.Counts
		want int
	}{
		{"as many as there are", 66, hand.Counts{Unsettled: 66, Bytes: 660}, 66},
		{"and again", 66, hand.Counts{Unsettled: 132}, 132},
		{"the rest, if it is no more than twice as many", 66, hand.Counts{Unsettled: 3334}, 6666},
		{"not yet", 66, hand.Counts{Unsettled: 3333}, 3333},
		{"up to so many in all", 66, hand.Counts{Unsettled: 7500}, 2500},
		{"no more are worth it", 66, hand.Counts{Unsettled: 8100}, 0},
		{"none", 66, hand.Counts{Unsettled: 10_100}, 0},
		{"up to so many bytes in all", 66, hand.Counts{Unsettled: 100, Bytes: maxBytesInHand / 2}, 100},
		{"fewer, because they are large", 66, hand.Counts{Unsettled: 300, Bytes: maxBytesInHand / 4 * 3}, 100},
		{"none, because they are large", 66, hand.Counts{Unsettled: 66, Bytes: maxBytesInHand}, 0},
	} {
		if got := pastKeys(tt.base, tt.in); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.rule, got, tt.want)
		}
	}
}
