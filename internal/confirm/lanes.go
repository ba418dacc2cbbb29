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
// fresh one. Messages of others that were written behind it are sent there again.

// target is where messages are published to.
type target struct{ exchange, key string }

// lane is a target that has a channel for itself, or shares one with other silent
// targets.
type lane struct {
	target  target
	every   bool // for every key of the exchange
	since   time.Time
	channel *channel
	renewed int // times
}

func (t target) matches(m *Message) bool { return t.exchange == m.Exchange && t.key == m.Key }

func (l *lane) matches(m *Message) bool {
	return l.target.exchange == m.Exchange && (l.every || l.target.key == m.Key)
}

func matchesAny(lanes []*lane, m *Message) bool {
	for _, l := range lanes {
		if l.matches(m) {
			return true
		}
	}
	return false
}

const (
	// maxLanes bounds the channels that targets have for themselves. Further
	// ones share them.
	maxLanes = 16

	// maxKeys of one exchange are set apart one by one. Further ones are taken
	// for keys of the same queue, and the whole exchange is set apart.
	maxKeys = 4

	// maxChannels bounds all channels. Those that a silent target holds up
	// cannot be closed.
	maxChannels = 32

	// laneShare is the divisor of the limits for a target that is set apart.
	laneShare = 8
)

type lanes struct {
	n   atomic.Int32
	mu  sync.Mutex
	all []*lane
}

func (l *lanes) any() bool { return l.n.Load() > 0 }

// lane returns the lane of a target, or nil.
func (l *lanes) lane(exchange, key string) *lane {
	if !l.any() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.all {
		if lane.target.exchange == exchange && (lane.every || lane.target.key == key) {
			return lane
		}
	}
	return nil
}

// of returns the channel of a target that is set apart, or nil.
func (l *lanes) of(exchange, key string) *channel {
	lane := l.lane(exchange, key)
	if lane == nil {
		return nil
	}
	if lane.channel.session.Err() != nil {
		l.dissolve(lane.channel)
		return nil
	}
	return lane.channel
}

// on returns the lanes of a channel.
func (l *lanes) on(c *channel) (lanes []*lane) {
	if !l.any() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.all {
		if lane.channel == c {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// set sets a target apart on c, or on the channel of another one if there are
// too many. It returns the channel.
func (l *lanes) set(t target, c *channel, since time.Time) *channel {
	l.mu.Lock()
	defer l.mu.Unlock()
	channels, keys := map[*channel]bool{}, 0
	for _, lane := range l.all {
		channels[lane.channel] = true
		if lane.target.exchange == t.exchange {
			keys++
		}
	}
	if len(channels) >= maxLanes {
		c = l.all[len(l.all)%maxLanes].channel
	}
	l.all = append(l.all, &lane{target: t, every: t.exchange != "" && keys >= maxKeys, since: since, channel: c})
	l.n.Store(int32(len(l.all))) //nolint:gosec // few
	return c
}

// dissolve removes the lanes of a channel.
func (l *lanes) dissolve(c *channel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.all[:0]
	for _, lane := range l.all {
		if lane.channel != c {
			kept = append(kept, lane)
		}
	}
	clear(l.all[len(kept):])
	l.all = kept
	l.n.Store(int32(len(kept))) //nolint:gosec // few
}

// move moves the lanes of one channel to another.
func (l *lanes) move(from, to *channel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, old := range l.all {
		if old.channel == from {
			fresh := *old
			fresh.channel, fresh.renewed = to, old.renewed+1
			l.all[i] = &fresh
		}
	}
}
