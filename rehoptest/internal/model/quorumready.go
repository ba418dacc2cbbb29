package model

import "time"

// quorumReady is a quorum queue: what came back is handed out first, then the
// rest by the priorities of its version.
type quorumReady struct {
	returns fifo
	levels  []fifo
	strict  bool // highest level first; otherwise level 0 has every third turn
	toTail  bool // what a client gives back goes to the tail
	turn    int  // 0, 1, 2, of what was taken from the levels, dropped and expired too
	index   uint64
}

func newQuorumReady(v Version, limit int64) *quorumReady {
	switch {
	case v.AtLeast(4, 3):
		return &quorumReady{levels: make([]fifo, 32), strict: true}
	case v.AtLeast(4, 0):
		return &quorumReady{levels: make([]fifo, 2), toTail: limit < 0}
	default:
		return &quorumReady{levels: make([]fifo, 1), strict: true, toTail: limit < 0}
	}
}

// quorumLevel is the level of a message by its priority.
func quorumLevel(v Version, priority int, present bool) int {
	switch {
	case v.AtLeast(4, 3) && !present:
		return 4
	case v.AtLeast(4, 3):
		return min(priority, 31)
	case v.AtLeast(4, 0) && priority > 4:
		return 1
	}
	return 0
}

func (q *quorumReady) push(e *entry) {
	if e.index == 0 {
		q.index++
		e.index = q.index
	}
	q.levels[e.level].push(e)
}

func (q *quorumReady) giveBack(e *entry, w why) {
	if q.toTail && w != returnedByClose {
		e.level, e.index = 0, 0
		q.push(e)
		return
	}
	q.returns.push(e)
}

// next is the list that the next message comes from.
func (q *quorumReady) next() *fifo {
	if q.returns.len() > 0 {
		return &q.returns
	}
	if !q.strict {
		hi, no := &q.levels[1], &q.levels[0]
		// On the third turn a high message still goes first if it is older.
		if hi.len() > 0 && (no.len() == 0 || q.turn < 2 || hi.head().index < no.head().index) {
			return hi
		}
		return no
	}
	for i := len(q.levels) - 1; i > 0; i-- {
		if q.levels[i].len() > 0 {
			return &q.levels[i]
		}
	}
	return &q.levels[0]
}

func (q *quorumReady) head() *entry { return q.next().head() }

func (q *quorumReady) pop() *entry {
	from := q.next()
	if from != &q.returns {
		q.turn = (q.turn + 1) % 3
	}
	return from.pop()
}

func (q *quorumReady) drop() *entry { return q.pop() }

// dropExpired looks at the message that is next; since 4.3, where levels are
// strict, at the head of every level.
func (q *quorumReady) dropExpired(expired func(*entry) bool) (dropped []*entry) {
	if len(q.levels) > 2 {
		dropped = q.returns.dropExpired(expired)
		for i := len(q.levels) - 1; i >= 0; i-- {
			dropped = append(dropped, q.levels[i].dropExpired(expired)...)
		}
		return dropped
	}
	for e := q.head(); e != nil && expired(e); e = q.head() {
		dropped = append(dropped, q.drop())
	}
	return dropped
}

func (q *quorumReady) nextExpiry() time.Time {
	if len(q.levels) <= 2 {
		return q.next().nextExpiry()
	}
	at := q.returns.nextExpiry()
	for i := range q.levels {
		at = earlier(at, q.levels[i].nextExpiry())
	}
	return at
}

func (q *quorumReady) len() int {
	n := q.returns.len()
	for i := range q.levels {
		n += q.levels[i].len()
	}
	return n
}

func (q *quorumReady) bytes() int {
	n := q.returns.bytes()
	for i := range q.levels {
		n += q.levels[i].bytes()
	}
	return n
}

func (q *quorumReady) all() []*entry {
	if !q.strict {
		return q.inTurn()
	}
	list := q.returns.all()
	for i := len(q.levels) - 1; i >= 0; i-- {
		list = append(list, q.levels[i].all()...)
	}
	return list
}

// inTurn is all that is ready in the order in which two levels take turns.
func (q *quorumReady) inTurn() []*entry {
	rest := quorumReady{returns: fifo{list: q.returns.all()}, turn: q.turn}
	for i := range q.levels {
		rest.levels = append(rest.levels, fifo{list: q.levels[i].all()})
	}
	list := make([]*entry, 0, rest.len())
	for rest.len() > 0 {
		list = append(list, rest.pop())
	}
	return list
}

func (q *quorumReady) clear() {
	q.turn = 0
	q.returns.clear()
	for i := range q.levels {
		q.levels[i].clear()
	}
}

// earlier returns the earlier of two times of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
