package consumer

import (
	"fmt"
	"sync"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
)

// channels counts the channels that the consumers of a Conn keep open.
type channels struct {
	mu    sync.Mutex
	taken int
}

// channelsKey is the key of a Conn's channels.
type channelsKey struct{}

func channelsOf(conn *connection.Conn) *channels {
	return transport.Inside.Conn(conn).Keep(channelsKey{}, func() any { return new(channels) }).(*channels)
}

// take takes n channels, until release, and returns how many are taken then. If these
// are more than the limit, nothing is taken and release is nil.
func (c *channels) take(n, limit int) (release func(), needed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if needed = c.taken + n; needed > limit {
		return nil, needed
	}
	c.taken = needed
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.taken -= n
	}, needed
}

// channelsFor returns how many channels a consumer needs that carries so many waits. It
// consumes on one, asks on another whether its queue is alive, and looks at its parts on
// a third. On one more, the consumer of a lane asks whether its queue has messages. With
// waits it looks for further ones on another.
func channelsFor(lane bool, carried int) int {
	n := 3
	if lane {
		n++
	}
	if carried > 0 {
		n += 1 + carried
	}
	return n
}

// takeChannels returns an error if the socket cannot have enough channels for the
// consumers of the Conn, this one included. Without one for each wait, messages would
// stay in the waits, and Run would try for ever.
func (r *run) takeChannels(found route.Facts, channel *connection.Session) (release func(), err error) {
	limit := transport.Inside.Session(channel).ChannelMax()
	release, needed := channelsOf(r.conn).take(channelsFor(r.source.Lane != "", len(found.Carried)), limit)
	if release != nil {
		return release, nil
	}
	return nil, rehop.WithClass(fmt.Errorf("consumer: queue %q: the consumers of this Conn need %d channels or more, and channel_max of their socket is %d: this consumer needs %d, one of them for each of the %d waits that it carries; raise channel_max, of the broker or in the URL, or give the consumer a Conn of its own",
		r.queue, needed, limit, channelsFor(r.source.Lane != "", len(found.Carried)), len(found.Carried)), rehop.ClassConfiguration)
}
