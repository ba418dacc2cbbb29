package hand

import (
	"slices"
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
