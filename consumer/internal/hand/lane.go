package hand

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/durations"
)

// Limits of a lane.
type Limits struct {
	Slots int           // grants at a time; a grant ends when its messages are settled, or about to be
	Share int           // 0: strict
	Every time.Duration // between the starts of two messages; 0: no limit

	// Shard says that a free worker takes a message of another lane rather than wait for one of
	// this lane that may be on its way.
	Shard bool

	PerKey int // messages of one key that have a slot at a time; 0: no limit

	// Ordered says that messages that were sent ahead stay while the gate is closed. If they
	// went back, another process could handle them out of their order, or beside earlier ones
	// that handlers here have.
	Ordered bool

	Batch  Batch
	Outage Outage
}

// Lane is one queue of the consumer: its messages that wait, in their order, its slots and its gate.
type Lane struct {
	Limits
	Number int // of the lanes, from 0 for the highest

	// Changed is set when Room, Asks, Ends or AwaitsTurn may say something else,
	// and Busy while the gate is not open. None is set when no message of any session is unsettled any more.
	Changed, None Signal

	hand *Hand

	queue      []*Message // from head on
	head       int
	bytes      int // of the bodies in the queue
	alone      int // messages in the queue that go alone
	keys       keys
	gate       gate
	holding    []*Grant    // whose messages are held, in the order of their holding
	byHold     int         // of them, whose handler said Hold
	triable    int         // of them, that may find out whether an outage is over
	wereHeld   int         // grants whose messages are held, or were
	full       lasting     // such grants have taken all slots
	heldLately atomic.Bool // some of the last runs said Hold, or there is an outage
	wanting    time.Time   // since when a closed gate waits for a message, if the lane has none
	busy       int         // slots taken
	granted    int         // messages of grants
	working    int         // grants that a worker has, or whose messages are held
	unsettled  int         // messages of all sessions, until their Observers have been told
	copying    copying
	blocked    blocked
	latest     *Session

	// Of several lanes.
	due   time.Time // when the next grant may start, by Every
	end   float64   // of its last messages, on the scale of offer.start
	moved time.Time // when a slot was last taken or freed
	feed

	starved bool // it waits for its turn, see Turn
	deaths  int  // of the suspect with the fewest that it has met; 0: it has met none, or none is left
}

// feed is what is known of the queue of one of several lanes.
type feed struct {
	session  *Session      // that consumes the queue, nil for none
	prefetch int           // of that
	delay    time.Duration // the longest time that a message takes from the queue to here
	expected time.Time     // until then a message may be on its way
	more     bool          // the queue may have messages that the broker has not sent
	heard    time.Time     // when a message came last, or room was made for one
	question question      // whether the queue has messages; the answer comes to Answered
	asked    time.Time     // when it was to be asked
}

// question is how far a question to a queue has come.
type question uint8

const (
	notAsked question = iota
	toBeAsked
	unanswered
	refused // to answer: the queue is not asked again
)

// isOpen reports whether an answer is to come.
func (q question) isOpen() bool { return q == toBeAsked || q == unanswered }

// onItsWayAfter returns how long a message may be on its way, given how long two round
// trips took.
func onItsWayAfter(trips time.Duration) time.Duration {
	return min(durations.LaneOnItsWay+10*trips, durations.LaneSettling)
}

// enqueue puts a message where its session has delivered it: one that has waited for
// its key goes ahead of later ones. It needs mu held.
func (l *Lane) enqueue(m *Message) {
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

// TakeBack gives messages back that no worker has: all queued ones but the first keep, and with
// keep 0 those that wait for their keys, too. With scarcely, those that should not go back more
// often are in Out.Copy instead, but no suspects that wait for those of another lane. It returns the messages that go back, in their order.
func (l *Lane) TakeBack(keep int, scarcely bool, now time.Time, out *Out) (back []*Message) {
	h := l.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range l.takeBack(keep, now) {
		if scarcely && m.Scarce && (!m.IsSuspect() || !l.isKept()) { // a copy would have no deaths behind it, and a crash loop no end
			m.settle(Copy, now, out)
			out.Copy = append(out.Copy, m)
			continue
		}
		m.In.giveBack(m, out)
		back = append(back, m)
	}
	h.call(now, out)
	return back
}

// takeBack removes those messages from the lane. It needs mu held.
func (l *Lane) takeBack(keep int, now time.Time) []*Message {
	var taken []*Message
	if keep == 0 {
		l.breaksBlocked(now)
		taken = l.keys.takeBack()
	}
	if keep < l.waiting() {
		queued := l.queue[l.head:]
		for _, m := range queued[keep:] {
			l.count(m, -1)
			for next := l.keys.free(m); next != nil; next = l.keys.free(m) { // only with keep above 0; else keys.takeBack had them
				taken = append(taken, next)
			}
		}
		taken = append(taken, queued[keep:]...)
		clear(queued[keep:])
		l.queue = l.queue[:l.head+keep]
	}
	slices.SortFunc(taken, func(a, b *Message) int { return cmp.Compare(a.Raw.DeliveryTag, b.Raw.DeliveryTag) })
	return taken
}

// Busy returns how many slots are taken.
func (l *Lane) Busy() int {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	return l.busy
}

// waiting needs mu held.
func (l *Lane) waiting() int { return len(l.queue) - l.head }

// take removes the message at the head for a worker. It needs mu held.
func (l *Lane) take() *Message {
	m := l.queue[l.head]
	l.queue[l.head] = nil
	if l.head++; l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
	}
	l.count(m, -1)
	return m
}

// Opening says that the consuming of the lane's queue is about to begin.
func (l *Lane) Opening(now time.Time, out *Out) {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	l.session, l.expected, l.more = nil, now.Add(durations.LaneOpening), false
	l.hand.nothingCame(now, out)
	l.hand.call(now, out)
}

// Opened says that it has begun, with which prefetch, and how long two round trips took.
func (s *Session) Opened(prefetch int, trips time.Duration, now time.Time, out *Out) {
	l := s.lane
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	l.setStall("", now, out)
	l.latest = s
	s.consumers++
	s.counts.Recent, s.counts.Retained = 0, 0
	l.breaksBlocked(now)
	l.wants(now)
	l.session, l.prefetch, l.delay = s, prefetch, onItsWayAfter(trips)
	l.mayCome(now)
	l.hand.nothingCame(now, out)
	l.lookAtKeys(now, out)
	l.hand.call(now, out)
}

// Closed says that it is over. The queue is not asked any more.
func (l *Lane) Closed(now time.Time, out *Out) {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	l.session, l.expected, l.more = nil, time.Time{}, false
	l.hand.nothingCame(now, out)
	if l.question == refused {
		l.question = notAsked
	}
	l.hand.call(now, out)
}

// mayCome notes that there is room for messages that the broker could not send. It
// needs mu held.
func (l *Lane) mayCome(now time.Time) { l.expected, l.more, l.heard = now.Add(l.delay), true, now }

// Asks reports, once, whether the queue is to be asked how many messages it has.
func (l *Lane) Asks() (asks bool) {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	if asks = l.question == toBeAsked; asks {
		l.question = unanswered
	}
	return asks
}

// Answered takes the answer of the queue: how many messages it has, and how long it
// took to say so. A message that it has sent before may still be on its way. A queue
// that cannot answer is taken for an empty one, and one that refuses is not asked
// again.
func (l *Lane) Answered(has int, took time.Duration, err error, now time.Time, out *Out) {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	l.question = notAsked
	switch {
	case l.session == nil:
	case err != nil:
		if l.more = false; rehop.ClassOf(err) != rehop.ClassTransient {
			l.question = refused
		}
	default:
		silent := now.Sub(l.heard) // less than took: the answer is older than what was heard
		l.more = silent < took || has > 0 && silent < durations.LaneNothing
		l.delay = onItsWayAfter(took)
		l.expected = now.Add(l.delay)
	}
	l.hand.call(now, out)
}

// Unsettled returns how many messages of all sessions are unsettled.
func (l *Lane) Unsettled() int {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	return l.unsettled
}
