package hand

import (
	"slices"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

// keys has the messages of a lane that wait for their keys: as many messages of the key as
// are allowed are ahead of them. All other messages are in the queue of the lane, so a
// worker takes the first of the queue, whatever its key is.
type keys struct {
	limit   int // messages of one key at a time; 0: keys do not matter
	of      map[string]*key
	waiting int // of all keys
}

// key is one key of which a message is in the queue of the lane or has a slot.
type key struct {
	taken   int        // messages in the queue, or with a slot
	waiting []*Message // behind them, in their order
}

// push reports whether a message may go to the queue of the lane. If not, it waits for
// its key.
func (k *keys) push(m *Message) bool {
	if k.limit == 0 || m.Key == "" {
		m.comes(isNext)
		return true
	}
	one := k.of[m.Key]
	if one == nil {
		one = &key{}
		if k.of == nil {
			k.of = map[string]*key{}
		}
		k.of[m.Key] = one
	}
	if one.taken < k.limit {
		one.taken++
		m.comes(isNext)
		return true
	}
	m.comes(waitsForKey)
	one.waiting = append(one.waiting, m)
	k.waiting++
	return false
}

// free returns the message that waited for the key of one that has left its slot, or
// the queue, nil if none did.
func (k *keys) free(m *Message) *Message {
	if k.limit == 0 || m.Key == "" {
		return nil
	}
	one := k.of[m.Key]
	if len(one.waiting) == 0 {
		if one.taken--; one.taken == 0 {
			delete(k.of, m.Key)
		}
		return nil
	}
	next := one.waiting[0]
	one.waiting = slices.Delete(one.waiting, 0, 1)
	k.waiting--
	return next
}

// takeBack removes all messages that wait for a key, and returns them in no order.
func (k *keys) takeBack() (all []*Message) {
	if k.waiting == 0 {
		return nil
	}
	for _, one := range k.of {
		all = append(all, one.waiting...)
		one.waiting = nil
	}
	k.waiting = 0
	return all
}

// blocked says that no message of another key can come, see Lane.isBlocked.
type blocked struct {
	lasting
	tells   time.Time // when Out tells of it; zero: it has, or there is nothing to tell
	key     string    // of a gap: that most messages waited for before it
	waiting int       // and how many did
}

// breaksBlocked notes that the messages that wait for their keys are about to come again. It needs
// mu held.
func (l *Lane) breaksBlocked(now time.Time) {
	if l.blocked.isNow() {
		l.blocked.key, l.blocked.waiting = l.keys.longest()
		l.blocked.tells = time.Time{}
		l.blocked.breaks(now)
	}
}

// isBlocked reports whether slots are free, and all messages that may be in hand have one or wait
// for their keys: the broker sends no message of another key then. It needs mu held.
func (l *Lane) isBlocked() bool {
	s := l.latest
	return l.keys.waiting > 0 && l.waiting() == 0 && l.busy < l.Slots && l.gate.isOpen() && s != nil && s.counts.Recent >= l.prefetch
}

// lookAtKeys notes since when the lane is blocked. The session is told at once, and Out after
// durations.StandsStill. A message that is settled makes room for one more, likely one of the same key, and
// that is no end of it: a message that need not wait is, or a queue that has no more. It needs mu
// held.
func (l *Lane) lookAtKeys(now time.Time, out *Out) {
	if l.keys.limit == 0 {
		return
	}
	s := l.latest
	switch {
	case l.gate.stall != "": // the session is to begin anew
		l.breaksBlocked(now)
	case !l.gate.isOpen(), l.blocked.isNow() && (l.keys.waiting == 0 || s == nil || s.counts.Recent < l.prefetch-l.Slots):
		l.blocked = blocked{}
	case !l.blocked.isNow() && l.isBlocked():
		l.blocked.begins(now)
		l.blocked.tells = now.Add(durations.StandsStill)
		l.hand.wakeAt(l.blocked.tells, out)
		l.Changed.set()
		l.hand.slotsAreGone(now, out)
	}
}

// blockedDue needs mu held.
func (l *Lane) blockedDue(now time.Time, out *Out) {
	switch {
	case l.blocked.tells.IsZero():
	case now.Before(l.blocked.tells):
		l.hand.wakeAt(l.blocked.tells, out)
	default:
		l.blocked.tells = time.Time{}
		out.Blocked = append(out.Blocked, l)
	}
}

// longest returns the key that most messages wait for, and how many do. It needs mu held.
func (k *keys) longest() (name string, waiting int) {
	for n, one := range k.of {
		if len(one.waiting) > waiting || len(one.waiting) == waiting && n < name {
			name, waiting = n, len(one.waiting)
		}
	}
	return name, waiting
}
