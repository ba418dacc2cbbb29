package consumer

import (
	"fmt"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
)

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

// takeChannels takes the channels of a consumer, until release. It returns an error if the socket
// cannot have enough for the consumers of the Conn, this one included. Without one for each wait,
// messages would stay in the waits, and Run would try for ever.
func (r *run) takeChannels(found route.Facts, channel *connection.Session) (release func(), err error) {
	s, n, limit := r.sharing, channelsFor(r.source.Lane != "", len(found.Carried)), transport.Inside.Session(channel).ChannelMax()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels+n > limit {
		return nil, rehop.WithClass(fmt.Errorf("consumer: queue %q: the consumers of this Conn need %d channels or more, and channel_max of their socket is %d: this consumer needs %d, one of them for each of the %d waits that it carries; raise channel_max, of the broker or in the URL, or give the consumer a Conn of its own",
			r.queue, s.channels+n, limit, n, len(found.Carried)), rehop.ClassConfiguration)
	}
	s.channels += n
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.channels -= n
	}, nil
}
