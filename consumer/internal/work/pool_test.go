package work

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/hand"
)

// handler is the Lane of a test.
type handler struct {
	*hands
	handle func(w *hand.Worker, g *hand.Grant) // has the messages settled; nil: nothing is handled
	ends   [][]uint64                          // tags of each call of Copy
	outage int                                 // calls of OutageBegan
}

func (l *handler) Handle(w *hand.Worker, g *hand.Grant) (*hand.Grant, bool) {
	l.handle(w, g)
	return l.Handled(w, g, time.Now())
}

func (l *handler) Copy(ms []*hand.Message) {
	var tags []uint64
	for _, m := range ms {
		tags = append(tags, m.Raw.DeliveryTag)
	}
	l.ends = append(l.ends, tags)
}

func (l *handler) OutageBegan() { l.outage++ }

func (l *handler) Blocked() {}

func (l *handler) TurnBegan() {}

// handle adds the handler of the lane.
func (h *hands) handle(handle func(w *hand.Worker, g *hand.Grant)) *handler {
	l := &handler{hands: h, handle: handle}
	h.pool.Add(l)
	return l
}

// lanes returns hands with a lane of each of the limits; the first is that of hands.
func lanes(slots int, limits ...hand.Limits) *hands {
	h := hand.New(slots, true)
	for _, l := range limits {
		h.Lane(l)
	}
	return &hands{Hand: h, pool: NewPool(h)}
}

// message is a message that comes now.
func (s *opened) message(tag uint64) *hand.Message {
	return &hand.Message{Raw: amqp.Delivery{DeliveryTag: tag}, Received: time.Now(), Observer: &observer{s.ends, tag}}
}

// come has messages come, and the Pool do what is to be done.
func (s *opened) come(tags ...uint64) {
	for _, tag := range tags {
		var out hand.Out
		s.Delivered(s.message(tag), &out)
		s.hands.pool.Do(&out)
	}
}

// closes closes the Pool, and fails the test if a worker does not end.
func (h *hands) closes(t *testing.T) {
	t.Helper()
	h.pool.Close()
	ended := make(chan struct{})
	go func() { h.pool.Wait(); close(ended) }()
	synctest.Wait()
	select {
	case <-ended:
	default:
		t.Error("a worker has not ended after Close")
	}
}

// The message is settled by the Lane, as package consumer does.
func TestAWorkerWhoseHandlerEndsItsGoroutineIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		limits hand.Limits
		runs   bool // the handler says how it has run before its goroutine ends: Hold of the first message
	}{
		"with one slot": {limits: hand.Limits{Slots: 1}},
		"with two":      {limits: hand.Limits{Slots: 2}},
		// What the worker's own Out has from before is carried out: nobody else would.
		"after a run that began an outage, and one that ended it": {limits: hand.Limits{Slots: 2, Outage: hand.Outage{Of: 1, From: 1, MaxPause: time.Second}}, runs: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := lanes(c.limits.Slots)
				h.lane = h.Lane(c.limits)
				s := h.open(t, &channel{}, nil, nil)
				defer s.writer.Close()
				h.handle(func(w *hand.Worker, g *hand.Grant) {
					m := g.Of[0]
					if c.runs {
						h.lane.Note(g, m.Raw.DeliveryTag == 1, time.Now(), &w.Out)
					}
					h.settle(hand.Ack, m)
					runtime.Goexit()
				})
				s.come(1)
				synctest.Wait()
				s.come(2, 3, 4)
				time.Sleep(time.Second)
				synctest.Wait()
				if n := s.count(); n != 4 {
					t.Errorf("%d messages are handled, want 4", n)
				}
				h.free(t)
				s.come(5)
				synctest.Wait()
				if n := s.count(); n != 5 {
					t.Error("a message that comes later is not handled")
				}
				h.closes(t)
			})
		})
	}
}

func TestCloseOfAPoolEndsItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHands(3, 0)
		s := h.open(t, &channel{}, nil, nil)
		defer s.writer.Close()
		goOn := make(chan struct{})
		h.handle(func(_ *hand.Worker, g *hand.Grant) {
			if g.Of[0].Raw.DeliveryTag == 3 {
				<-goOn
			} else {
				time.Sleep(time.Second)
			}
			h.settle(hand.Ack, g.Of...)
		})
		s.come(1, 2, 3)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n, busy := s.count(), h.lane.Busy(); n != 2 || busy != 1 {
			t.Fatalf("%d messages are handled, %d are not; want 2 with workers that are idle by now, and 1", n, busy)
		}
		h.pool.Close()
		ended := make(chan struct{})
		go func() { h.pool.Wait(); close(ended) }()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("a worker ends before its handler has returned")
		default:
		}
		close(goOn)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("a worker has not ended, though its handler has returned")
		}
		h.free(t)
	})
}

// A lane whose batch waits for more messages is looked at when its time is over.
func TestDueIsCalledAtOutWake(t *testing.T) {
	lingers := []time.Duration{10 * time.Second, 3 * time.Second, 5 * time.Second} // of lanes
	for name, c := range map[string]struct {
		come []int         // the lanes in which a message comes, in this order
		wake time.Duration // of one more Out, after those; 0: none
	}{
		"one":                                {come: []int{0}},
		"an earlier one replaces a later":    {come: []int{0, 1}},
		"a later one replaces no earlier":    {come: []int{1, 0}},
		"each of three":                      {come: []int{0, 1, 2}},
		"a later one that nobody else knows": {come: []int{1}, wake: time.Hour},
		"one that is too early":              {come: []int{1, 2}, wake: time.Second},
		"one that is past":                   {come: []int{2}, wake: -time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := lanes(len(lingers))
				began := time.Now()
				handled := map[int]time.Duration{}
				var sessions []*opened
				for i, linger := range lingers {
					h.lane = h.Lane(hand.Limits{Slots: 1, Batch: hand.Batch{Size: 2, Bytes: 1, Linger: linger}})
					h.handle(func(_ *hand.Worker, g *hand.Grant) {
						handled[i] = time.Since(began)
						h.settle(hand.Ack, g.Of...)
					})
					sessions = append(sessions, h.open(t, &channel{}, nil, nil))
					defer sessions[i].writer.Close()
				}
				want := map[int]time.Duration{}
				for _, i := range c.come {
					sessions[i].come(1)
					want[i] = lingers[i]
				}
				if c.wake != 0 {
					h.pool.Do(&hand.Out{Wake: time.Now().Add(c.wake)})
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if !maps.Equal(handled, want) {
					t.Errorf("lanes are handled after %v, want %v", handled, want)
				}
				h.closes(t)
			})
		})
	}
}

// gone is an Observer whose hook ends its goroutine.
type gone struct{ *observer }

func (o gone) Settled(v hand.Verb, err error) {
	o.observer.Settled(v, err)
	runtime.Goexit()
}

// asking is an Observer that asks how many messages are unsettled when it is told.
type asking struct {
	*observer
	lane *hand.Lane
	left []int
}

func (o *asking) Settled(v hand.Verb, err error) {
	o.left = append(o.left, o.lane.Unsettled())
	o.observer.Settled(v, err)
}

// A message that its session cannot tell the broker of counts as unsettled until its Observer
// has been told.
func TestAMessageOfASessionThatIsOverIsToldOnce(t *testing.T) {
	for name, settle := range map[string]func(h *hands, s *opened, m *hand.Message, out *hand.Out){
		"settled after the end": func(h *hands, s *opened, m *hand.Message, out *hand.Out) {
			s.writer.Close()
			h.Settle(time.Now(), out, hand.Told{Message: m, Verb: hand.Ack})
		},
		"given back after the end": func(h *hands, s *opened, m *hand.Message, out *hand.Out) {
			s.writer.Close()
			h.Settle(time.Now(), out, hand.Told{Message: m, Verb: hand.Requeue})
		},
		"its copy confirmed after the end": func(h *hands, s *opened, m *hand.Message, out *hand.Out) {
			h.Settle(time.Now(), out, hand.Told{Message: m, Verb: hand.Copy})
			s.writer.Close()
			h.CopyEnded(hand.Ack, time.Now(), out, m)
		},
		"kept until the end": func(h *hands, s *opened, m *hand.Message, out *hand.Out) {
			h.lane.Ordered = true
			s.BeginNoMore(hand.ErrHeld, time.Now(), out)
			h.Settle(time.Now(), out, hand.Told{Message: m, Verb: hand.Requeue})
			s.Close(out)
			s.writer.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHands(1, 0)
			l := &channel{}
			s := h.open(t, l, nil, nil)
			m := s.message(1)
			o := &asking{observer: &observer{s.ends, 1}, lane: h.lane}
			m.Observer = o
			var out hand.Out
			s.Delivered(m, &out)
			out.Clear()
			h.take(t)
			settle(h, s, m, &out)
			if len(out.Over) != 1 || len(o.left) > 0 || h.lane.Unsettled() != 1 {
				t.Fatalf("before the Out is carried out: %d in it, told %d times, %d unsettled; want 1, none and 1", len(out.Over), len(o.left), h.lane.Unsettled())
			}
			h.pool.Do(&out)
			h.pool.Do(&out) // it is empty by now
			if told, err := s.of(1); !told || !errors.Is(err, ErrSessionOver) || !slices.Equal(o.left, []int{1}) {
				t.Errorf("told %t, %v, with %v unsettled each time; want once, by %v, with 1", told, err, o.left, ErrSessionOver)
			}
			if left := h.lane.Unsettled(); left != 0 {
				t.Errorf("%d messages count as unsettled afterwards, want none", left)
			}
			select {
			case <-h.lane.None:
			default:
				t.Error("who waits for the last message is not told")
			}
			if len(l.frames) > 0 {
				t.Errorf("frames %v, want none", l.frames)
			}
		})
	}
}

// A hook that ends its goroutine keeps no Run from ending.
func TestAnObserverThatEndsItsGoroutineHasBeenTold(t *testing.T) {
	h := newHands(1, 0)
	s := h.open(t, &channel{}, nil, nil)
	m := s.message(1)
	m.Observer = gone{&observer{s.ends, 1}}
	var out hand.Out
	s.Delivered(m, &out)
	h.take(t)
	s.writer.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.settle(hand.Ack, m)
	}()
	<-ended
	if left := h.lane.Unsettled(); left != 0 {
		t.Errorf("%d messages count as unsettled, want none", left)
	}
}

// Each lane gets its own messages that go to the end of their queue, and is told of its own outage.
func TestAnOutIsCarriedOutByItsLanes(t *testing.T) {
	h := lanes(2)
	var out hand.Out
	var handlers []*handler
	for range 2 {
		h.lane = h.Lane(hand.Limits{Slots: 2})
		handlers = append(handlers, h.handle(nil))
		s := h.open(t, &channel{}, nil, nil)
		defer s.writer.Close()
		var arriving hand.Out
		for tag := range uint64(2) {
			m := s.message(tag + 1)
			m.Scarce = true
			s.Delivered(m, &arriving)
		}
		h.lane.TakeBack(0, true, time.Now(), &out)
	}
	out.Start = false // the test is the worker
	out.Outages = append(out.Outages, h.lane)
	h.pool.Do(&out)
	h.pool.Do(&out) // it is empty by now
	for i, l := range handlers {
		if want := [][]uint64{{1, 2}}; !slices.EqualFunc(l.ends, want, slices.Equal) {
			t.Errorf("lane %d sends %v to the end, want %v", i, l.ends, want)
		}
		if l.outage != i {
			t.Errorf("lane %d is told of %d outages, want %d", i, l.outage, i)
		}
	}
}
