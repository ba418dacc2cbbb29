package rehoptest

import (
	"strings"
	"time"

	"github.com/rehop/rehop/rehoptest/internal/model"
	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// Cut cuts each connection whose name contains name, all if name is "", and returns
// how many. It acts as a network that fails: the broker sends no AMQP close, and
// messages that a client has not settled go back to their queues. A connection.Conn
// names its connections after Config.Name, followed by " publish" or " consume".
func (b *Broker) Cut(name string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		if strings.Contains(c.name, name) && !c.isCut() {
			c.cut()
			n++
		}
	}
	return n
}

// Disconnect closes each connection whose name contains name, all if name is
// "", as an operator does: 320 CONNECTION_FORCED with the reason. It returns
// how many.
func (b *Broker) Disconnect(name, reason string) int {
	b.enter()
	defer b.leave()
	return b.disconnect(name, reason)
}

func (b *Broker) disconnect(name, reason string) (n int) {
	for c := range b.conns {
		if !strings.Contains(c.name, name) || c.dead || c.isCut() {
			continue
		}
		n++
		c.closeChannels()
		c.dead = true
		err := model.Fail(model.ConnectionForced, "%s", reason)
		c.send(func(b []byte) []byte { return wire.AppendClose(b, err.Code, err.Reply(), wire.ID{}) })
		time.AfterFunc(closing, c.cut) // unless the client answers before
	}
	return n
}

// Block blocks publishers, as a memory or disk alarm does. A client that publishes
// is told the reason, and its connection is not read until Unblock.
func (b *Broker) Block(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blocked == "" {
		b.unblocked = make(chan struct{})
	}
	if b.blocked = reason; reason == "" {
		b.blocked = "low on memory"
	}
}

// Unblock ends Block.
func (b *Broker) Unblock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blocked == "" {
		return
	}
	b.blocked = ""
	close(b.unblocked)
	for c := range b.conns {
		c.unblock()
	}
}

// Stall stops the broker's reading and writing until Resume, while connections
// stay open: it sends no heartbeats either, as behind a network that drops
// everything. Its clock goes on, and it handles the frames that it had read before.
func (b *Broker) Stall() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stalled == nil {
		b.stalled = make(chan struct{})
	}
}

// Resume ends Stall.
func (b *Broker) Resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stalled != nil {
		close(b.stalled)
		b.stalled = nil
	}
}

// Slow delays everything that the broker sends by d; 0 ends it.
func (b *Broker) Slow(d time.Duration) {
	b.latency.Store(int64(d))
}

// Refuse makes a queue of the first virtual host stop answering, as a quorum queue
// without a leader: publishes to it are not confirmed, its messages stay where they
// are. With refuse false it answers again, and takes the messages that were published
// meanwhile, except those whose channel has closed. Refuse reports whether there is
// such a queue.
func (b *Broker) Refuse(queue string, refuse bool) bool {
	b.enter()
	defer b.leave()
	return b.vhost().Refuse(queue, refuse)
}

// Kill ends the broker as kill -9 does. Dial fails until Start, and every message
// that a client had not settled counts as a failed delivery.
//
// The broker loses as much as RabbitMQ has been seen to lose:
//   - as after Stop, queues and exchanges that are not durable, and transient messages
//     in classic queues;
//   - dead letters that an at-most-once queue has handed to a classic queue within the
//     last second;
//   - dead letters for a quorum queue that expire in an at-most-once queue while the
//     broker is away, because the quorum queue has no leader when the broker is back.
func (b *Broker) Kill() {
	b.enter()
	defer b.leave()
	b.stop(true)
}

// Stop ends the broker in good order: it tells clients 320 CONNECTION_FORCED, and
// loses only queues and exchanges that are not durable, and transient messages in
// classic queues. Dial fails until Start.
func (b *Broker) Stop() {
	b.enter()
	defer b.leave()
	b.disconnect("", "broker forced connection closure with reason 'shutdown'")
	b.stop(false)
}

func (b *Broker) stop(killed bool) {
	if b.stopped {
		return
	}
	b.stopped, b.killed = true, killed
	for c := range b.conns {
		if !c.dead && !c.isEnding() {
			c.cut()
		}
		c.channels, c.dead = map[uint16]*channel{}, true
	}
	for _, v := range b.vhosts {
		v.Stop(killed)
	}
}

// Start starts the broker again after Kill or Stop, with everything that it has kept.
func (b *Broker) Start() {
	b.mu.Lock()
	defer b.leave()
	if !b.stopped || b.closed {
		return
	}
	b.stopped = false
	for _, v := range b.vhosts {
		v.Start(time.Now(), b.killed)
	}
}
