package model

import (
	"slices"
	"time"
)

// why a message comes back, or leaves.
type why int

const (
	returnedByNack why = iota
	returnedByReject
	returnedByClose
	returnedByTimeout
	returnedByRecover
	discardedByNack
	discardedByReject
)

// Ack settles one tag or all up to it; multiple and 0 is all there are.
func (c *Channel) Ack(tag uint64, multiple bool) *Error {
	return c.settle(tag, multiple, func(h *handed) {
		h.e.step(c.b, stepAcked, h.q.name, "")
		h.q.tell()
	})
}

// Nack settles negatively.
func (c *Channel) Nack(tag uint64, multiple, requeue bool) *Error {
	if requeue {
		return c.settle(tag, multiple, func(h *handed) { h.q.giveBack(h, returnedByNack) })
	}
	return c.settle(tag, multiple, func(h *handed) { h.q.discard(h, discardedByNack) })
}

// Reject is Nack of one, with counts of its own since 4.3.
func (c *Channel) Reject(tag uint64, requeue bool) *Error {
	if requeue {
		return c.settle(tag, false, func(h *handed) { h.q.giveBack(h, returnedByReject) })
	}
	return c.settle(tag, false, func(h *handed) { h.q.discard(h, discardedByReject) })
}

// Recover takes back all that the channel has.
func (c *Channel) Recover() {
	c.finish(c.take(c.nextTag, true), func(h *handed) { h.q.giveBack(h, returnedByRecover) })
}

func (c *Channel) settle(tag uint64, multiple bool, do func(*handed)) *Error {
	if tag == 0 && multiple {
		tag = c.nextTag
	} else if c.unacked[tag] == nil {
		return Fail(PreconditionFailed, "unknown delivery tag %d", tag)
	}
	c.finish(c.take(tag, multiple), do)
	return nil
}

// finish settles messages, group by group: the consumer of a group has room for others
// before its queue goes on, and the queue hands out what it can before it hears of the next
// group. A global prefetch has room only after the last group.
func (c *Channel) finish(all []*handed, do func(*handed)) {
	for _, group := range grouped(all) {
		for _, h := range group {
			c.released(h)
			h.q.unblock()
		}
		for _, h := range group {
			switch {
			case h.timedOut:
				h.settledLate()
			case !h.q.deleted:
				do(h)
			}
		}
		group[0].q.pump()
	}
	c.share(all)
	c.b.work()
}

// giveBack puts a message back into its queue, which counts it and may have
// had enough of it.
func (q *Queue) giveBack(h *handed, w why) {
	e := h.e
	if w == returnedByClose {
		h.release()
	}
	if q.deleted || h.timedOut {
		return
	}
	e.returned = true
	e.step(q.b, stepReturned, q.name, "")
	failed := q.count(e, w)
	q.b.touch(q)
	if q.args.quorum && q.args.limit >= 0 && q.counted(e) > q.args.limit {
		if h.consumer != nil && !q.b.atLeast(4, 0) {
			h.consumer.extra++ // 3.10 gives the credit for such a message back twice
		}
		q.deadLetter(e, "delivery_limit")
		return
	}
	if d := q.retryDelay(e, failed); d > 0 {
		e.delayed = q.b.now.Add(d)
		i, _ := slices.BinarySearchFunc(q.delayed, e.delayed, func(e *entry, at time.Time) int {
			if e.delayed.After(at) {
				return 1
			}
			return -1
		})
		q.delayed = slices.Insert(q.delayed, i, e)
		q.limit()
		return
	}
	q.idle, q.unseen = nil, false
	q.ready.giveBack(e, w)
}

// discard dead-letters a message that a consumer refuses.
func (q *Queue) discard(h *handed, w why) {
	e := h.e
	q.count(e, w)
	e.step(q.b, stepRejected, q.name, "")
	q.deadLetter(e, "rejected")
}

// count moves the counts of a message as its version does, and tells whether
// it counts as a failure.
func (q *Queue) count(e *entry, w why) (failed bool) {
	b := q.b
	switch {
	case !q.args.quorum:
		failed = b.atLeast(4, 3) && (w == returnedByReject || w == returnedByClose || w == discardedByReject)
	case !b.atLeast(4, 0):
		failed = w != discardedByNack && w != discardedByReject
	case !b.atLeast(4, 3):
		e.returns++
		failed = w == returnedByClose || w == discardedByNack || w == discardedByReject
	default:
		e.returns++
		failed = w == returnedByReject || w == returnedByClose || w == discardedByReject
	}
	if failed {
		e.failures++
	}
	return failed
}

// counted is what the delivery limit is compared with.
func (q *Queue) counted(e *entry) int64 {
	if q.b.atLeast(4, 0) && !q.b.atLeast(4, 3) {
		return int64(e.returns)
	}
	return int64(e.failures)
}

// retryDelay is that of the delayed retry of 4.3.
func (q *Queue) retryDelay(e *entry, failed bool) time.Duration {
	a := &q.args
	if a.retryMin <= 0 || !q.b.atLeast(4, 3) {
		return 0
	}
	switch a.retryType {
	case "all":
	case "failed":
		if !failed {
			return 0
		}
	case "returned":
		if failed {
			return 0
		}
	default:
		return 0
	}
	limit := a.retryMax
	if limit <= 0 {
		limit = a.retryMin
	}
	return min(a.retryMin*time.Duration(max(1, e.failures)), limit)
}
