package confirm

import (
	"sync"
	"sync/atomic"
	"time"
)

// The first message of a channel to a quorum queue waits, within the broker's
// channel, for the leader of that queue, and everything behind it on the channel
// waits too, for minutes if there is none. So a target whose message has no
// answer for about a second keeps its channel for itself, and all others get a
// new one. Messages of others that were written behind the first message to a target
// are sent again there: half a second later if the broker answers on the new channel,
// and two seconds later if nothing was published on it. Behind a later message they are
// not: the broker's channel does not wait for a queue that it knows. Then the broker is
// slow, and a second copy would double them.

// target is where messages are published to.
type target struct{ exchange, key string }

// silentTarget is a target that has a channel for itself, or shares one with other
// silent targets.
type silentTarget struct {
	target  target
	every   bool // for every key of the exchange
	since   time.Time
	channel *channel
	renewed int // times
}

func (t target) matches(m *Message) bool { return t.exchange == m.Exchange && t.key == m.RoutingKey }

func (s *silentTarget) matches(m *Message) bool {
	return s.target.exchange == m.Exchange && (s.every || s.target.key == m.RoutingKey)
}

func matchesAny(targets []*silentTarget, m *Message) bool {
	for _, t := range targets {
		if t.matches(m) {
			return true
		}
	}
	return false
}

const (
	// maxApart bounds the channels that targets have for themselves. Further
	// ones share them.
	maxApart = 16

	// maxKeys of one exchange are set apart one by one. Further ones are taken
	// for keys of the same queue, and the whole exchange is set apart.
	maxKeys = 4

	// maxChannels bounds all channels. Those that a silent target holds up
	// cannot be closed.
	maxChannels = 32

	// apartShare is the divisor of the limits for a target that is set apart.
	apartShare = 8
)

// silentTargets are those of a Publisher.
type silentTargets struct {
	n   atomic.Int32
	mu  sync.Mutex
	all []*silentTarget
}

func (s *silentTargets) any() bool { return s.n.Load() > 0 }

// find returns a target if it is set apart, or nil.
func (s *silentTargets) find(exchange, key string) *silentTarget {
	if !s.any() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		if t.target.exchange == exchange && (t.every || t.target.key == key) {
			return t
		}
	}
	return nil
}

// oldest returns the target that was set apart first, or nil.
func (s *silentTargets) oldest() (oldest *silentTarget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		if oldest == nil || t.since.Before(oldest.since) {
			oldest = t
		}
	}
	return oldest
}

// of returns the channel of a target that is set apart, or nil.
func (s *silentTargets) of(exchange, key string) *channel {
	t := s.find(exchange, key)
	if t == nil {
		return nil
	}
	if t.channel.session.Err() != nil {
		s.dissolve(t.channel)
		return nil
	}
	return t.channel
}

// on returns the targets that have a channel for themselves.
func (s *silentTargets) on(c *channel) (targets []*silentTarget) {
	if !s.any() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		if t.channel == c {
			targets = append(targets, t)
		}
	}
	return targets
}

// set sets a target apart on c, or on the channel of another one if there are
// too many. It returns the channel.
func (s *silentTargets) set(t target, c *channel, since time.Time) *channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	channels, keys := map[*channel]bool{}, 0
	for _, other := range s.all {
		channels[other.channel] = true
		if other.target.exchange == t.exchange {
			keys++
		}
	}
	if len(channels) >= maxApart {
		c = s.all[len(s.all)%maxApart].channel
	}
	s.all = append(s.all, &silentTarget{target: t, every: t.exchange != "" && keys >= maxKeys, since: since, channel: c})
	s.n.Store(int32(len(s.all))) //nolint:gosec // few
	return c
}

// dissolve ends the setting apart of the targets of a channel.
func (s *silentTargets) dissolve(c *channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.all[:0]
	for _, t := range s.all {
		if t.channel != c {
			kept = append(kept, t)
		}
	}
	clear(s.all[len(kept):])
	s.all = kept
	s.n.Store(int32(len(kept))) //nolint:gosec // few
}

// move moves the targets of one channel to another.
func (s *silentTargets) move(from, to *channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, old := range s.all {
		if old.channel == from {
			moved := *old
			moved.channel, moved.renewed = to, old.renewed+1
			s.all[i] = &moved
		}
	}
}
