package schedule

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/flight"
)

// Limits of a lane.
type Limits struct {
	Slots int           // grants at a time; a grant ends when its messages are settled, or about to be
	Share int           // 0: strict
	Every time.Duration // between the starts of two messages; 0: no limit

	// PerKey is how many messages of one key have a slot at a time; 0: no limit. Key
	// returns the key of a message that comes.
	PerKey int
	Key    func(*flight.Message) string

	// Ordered says that messages that were sent ahead stay while the gate is closed. If they
	// went back, another process could get them out of their order, or while handlers here
	// have earlier ones.
	Ordered bool

	Batch  Batch
	Outage Outage
}

// Lane is the messages of one queue that wait for a worker, in their order.
type Lane struct {
	Limits
	schedule *Schedule
	run      func(*Grant) int

	queue      []*flight.Message // from head on
	head       int
	bytes      int // of the bodies in the queue
	alone      int // messages in the queue that go alone
	keys       keys
	gate       gate
	turn       chan struct{}  // closed, and made anew, when a held message may have its turn
	held       int            // messages that wait for it
	byHold     int            // held messages whose handler said Hold
	inPlace    int            // held messages that wait for their next attempt
	triable    int            // held messages that may find out whether an outage is over
	wereHeld   int            // grants whose messages are held, or were
	full       time.Time      // when such grants had taken all slots; zero: they have not
	changed    chan struct{}  // an element: Wants may say something else
	heldLately atomic.Bool    // some of the last runs said Hold, or there is an outage
	signalled  bool           // that the gate is not open
	wanting    time.Time      // since when a closed gate waits for a message, if the lane has none
	busy       int            // slots taken
	granted    int            // messages of grants
	working    int            // grants that a worker has
	latest     *flight.Ledger // of the latest session

	// Of several lanes.
	due   time.Time // when the next grant may start, by Every
	end   float64   // of its last messages, on the scale of offer.start
	moved time.Time // when a slot was last taken or freed
	feed
}

// feed is what is known of the queue of one of several lanes.
type feed struct {
	session  *flight.Ledger // that consumes the queue, nil for none
	prefetch int            // of that
	delay    time.Duration  // the longest time that a message takes from the queue to here
	expected time.Time      // until then a message may be on its way
	more     bool           // the queue may have messages that the broker has not sent
	heard    time.Time      // when a message came last, or room was made for one
	ask      func()         // asks the queue; the answer comes to Answered
	asking   bool           // an answer is to come
	refuses  bool           // to answer
}

const (
	// openingFor is how long lower lanes wait for a higher one that is about to
	// consume.
	openingFor = 3 * time.Second

	// onItsWay is how long, beside round trips, a lane waits for the broker to send a
	// message when there is room again. Then it asks the queue whether it has any.
	onItsWay = 50 * time.Millisecond

	// nothingFor is how long lower lanes wait for a higher one whose queue says that
	// it has messages and sends none.
	nothingFor = 3 * time.Second

	// settlingFor is how long lower lanes wait for a higher one whose slots are taken
	// by copies that are not confirmed.
	settlingFor = time.Second
)

// onItsWayAfter returns how long a message may be on its way, given how long two round
// trips took.
func onItsWayAfter(trips time.Duration) time.Duration { return min(onItsWay+10*trips, settlingFor) }

// Push queues a message.
func (l *Lane) Push(m *flight.Message) {
	if l.PerKey > 0 {
		m.Key = l.Key(m)
	}
	m.Alone = l.Batch.Size > 1 && l.Batch.Alone(m)
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	l.heard = m.Received
	if l.keys.push(m) {
		l.enqueue(m)
	}
	l.schedule.call()
}

// enqueue puts a message where its session has delivered it: one that has waited for
// its key goes ahead of later ones. It needs mu held.
func (l *Lane) enqueue(m *flight.Message) {
	if l.head > 64 && l.head*2 > len(l.queue) {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	at := len(l.queue)
	for at > l.head && l.queue[at-1].In == m.In && l.queue[at-1].Raw.DeliveryTag > m.Raw.DeliveryTag {
		at--
	}
	l.queue = slices.Insert(l.queue, at, m)
	l.count(m, 1)
}

// TakeBack removes all queued messages but the first keep and returns them in their
// order, and with keep 0 those that wait for their keys, too.
func (l *Lane) TakeBack(keep int) []*flight.Message {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	var taken []*flight.Message
	if keep == 0 {
		taken = l.keys.takeBack()
	}
	if keep < l.waiting() {
		queued := l.queue[l.head:]
		for _, m := range queued[keep:] {
			l.count(m, -1)
			for next := l.keys.free(m); next != nil; next = l.keys.free(m) { // keep is not 0
				taken = append(taken, next)
			}
		}
		taken = append(taken, queued[keep:]...)
		clear(queued[keep:])
		l.queue = l.queue[:l.head+keep]
	}
	slices.SortFunc(taken, func(a, b *flight.Message) int { return cmp.Compare(a.Raw.DeliveryTag, b.Raw.DeliveryTag) })
	return taken
}

// Busy returns how many slots are taken.
func (l *Lane) Busy() int {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	return l.busy
}

// Running returns the messages that a handler is at work on, the oldest first.
func (l *Lane) Running() (ms []*flight.Message) {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	for _, g := range l.schedule.every {
		if g.lane != l {
			continue
		}
		for _, m := range g.Of {
			if m.Running.Load() {
				ms = append(ms, m)
			}
		}
	}
	flight.OldestFirst(ms)
	return ms
}

// Oldest returns when the message came that waits longest for a worker, the zero
// time if none waits.
func (l *Lane) Oldest() time.Time {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	if l.waiting() == 0 {
		return time.Time{}
	}
	return l.queue[l.head].Received
}

// waiting needs mu held.
func (l *Lane) waiting() int { return len(l.queue) - l.head }

// take removes the message at the head for a worker. It needs mu held, so that the message
// has begun, or does not begin any more, when BeginNoMore returns.
func (l *Lane) take() *flight.Message {
	m := l.queue[l.head]
	m.Begun.Store(true)
	l.queue[l.head] = nil
	if l.head++; l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
	}
	l.count(m, -1)
	return m
}

// lookAgain calls a worker at that time, unless one is called sooner. It needs s.mu
// held.
func (s *Schedule) lookAgain(now, at time.Time) {
	if at.IsZero() || s.closed || !s.lookAt.IsZero() && !at.Before(s.lookAt) {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.lookAt = at
	s.timer = time.AfterFunc(at.Sub(now), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lookAt = time.Time{}
		s.call()
	})
}

// Opening says that the consuming of the lane's queue is about to begin.
func (l *Lane) Opening() {
	l.change(func(now time.Time) { l.session, l.expected, l.more = nil, now.Add(openingFor), false })
}

// Opened says that it has begun, with which session and prefetch, how long two
// round trips took, and how the queue is asked whether it has messages.
func (l *Lane) Opened(in *flight.Ledger, prefetch int, trips time.Duration, ask func()) {
	l.setEnds(false)
	l.schedule.mu.Lock()
	l.latest = in
	l.wants()
	l.schedule.mu.Unlock()
	l.change(func(now time.Time) {
		l.session, l.prefetch, l.delay, l.ask = in, prefetch, onItsWayAfter(trips), ask
		l.room(now)
	})
}

// Closed says that it is over. The queue is not asked any more.
func (l *Lane) Closed() {
	l.change(func(time.Time) { l.session, l.expected, l.more, l.refuses = nil, time.Time{}, false, false })
}

// Settles says that a message of a session is settled, and is about to be counted.
func (l *Lane) Settles(in *flight.Ledger) {
	l.change(func(now time.Time) {
		if l.session == in && in.Unsettled() >= l.prefetch {
			l.room(now)
		}
	})
}

// room notes that there is room for messages that the broker could not send. It
// needs mu held.
func (l *Lane) room(now time.Time) { l.expected, l.more, l.heard = now.Add(l.delay), true, now }

// Answered takes the answer of the queue: how many messages it has, and how long it
// took to say so. A message that it has sent before may still be on its way. A queue
// that cannot answer is taken for an empty one, and one that refuses is not asked
// again.
func (l *Lane) Answered(has int, took time.Duration, err error) {
	l.change(func(now time.Time) {
		l.asking = false
		switch {
		case l.session == nil:
		case err != nil:
			l.more, l.refuses = false, rehop.ClassOf(err) != rehop.ClassTransient
		default:
			silent := now.Sub(l.heard) // less than took: the answer is older than what was heard
			l.more = silent < took || has > 0 && silent < nothingFor
			l.delay = onItsWayAfter(took)
			l.expected = now.Add(l.delay)
		}
	})
}

func (l *Lane) change(do func(now time.Time)) {
	if len(l.schedule.lanes) == 1 {
		return
	}
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	do(time.Now())
	l.schedule.call()
}

// Waiting returns how many messages wait for a worker.
func (l *Lane) Waiting() int {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	return l.waiting()
}
