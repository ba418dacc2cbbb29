package rehoptest

import (
	"strings"
	"time"

	"github.com/rehop/rehop/rehoptest/internal/model"
	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// CutAll cuts all connections, as a network that fails: no AMQP close is sent.
// Messages that a client has not settled go back to their queues.
func (b *Broker) CutAll() { b.Cut("") }

// Cut cuts the connections whose names contain a text, and returns how many. A
// connection.Conn names its own after Config.Name, followed by " publish" or
// " consume".
func (b *Broker) Cut(name string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		if strings.Contains(c.name, name) {
			c.cut()
			n++
		}
	}
	return n
}

// Disconnect closes the connections whose names contain a text, as an operator
// does: 320 CONNECTION_FORCED with the reason. It returns how many.
func (b *Broker) Disconnect(name, reason string) int {
	b.enter()
	defer b.leave()
	return b.disconnect(name, reason)
}

func (b *Broker) disconnect(name, reason string) (n int) {
	for c := range b.conns {
		if !strings.Contains(c.name, name) {
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
// everything. Its clock goes on, and it handles what it had read before.
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

// Slow makes whatever the broker sends later by d; 0 ends it.
func (b *Broker) Slow(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latency = d
}

// Refuse makes a queue of the first virtual host stop answering, as a quorum
// queue without a leader: publishes to it are not confirmed, its messages stay
// where they are. With refuse false it answers again, and takes what was
// published in the meantime. It reports whether there is such a queue.
func (b *Broker) Refuse(queue string, refuse bool) bool {
	b.enter()
	defer b.leave()
	return b.vhost().Refuse(queue, refuse)
}

// Loss says what a broker loses when it ends.
type Loss int

const (
	// LoseMost is the worst that was seen of RabbitMQ: what LoseLeast says, dead
	// letters that an at-most-once queue has handed to a classic queue within the
	// last second, and those that expire in an at-most-once queue while the
	// broker is away and go to a quorum queue, which has no leader when it is
	// back.
	LoseMost Loss = iota

	// LoseLeast is what is not meant to outlive a broker: queues and exchanges
	// that are not durable, and transient messages in classic queues.
	LoseLeast
)

// Kill ends the broker as kill -9 does. Dial fails until Start; what clients
// had not settled counts as a failed delivery.
func (b *Broker) Kill(loss Loss) {
	b.enter()
	defer b.leave()
	b.stop(loss)
}

// Stop ends the broker in good order: clients are told 320 CONNECTION_FORCED,
// and only what LoseLeast says is lost. Dial fails until Start.
func (b *Broker) Stop() {
	b.enter()
	defer b.leave()
	b.disconnect("", "broker forced connection closure with reason 'shutdown'")
	b.stop(LoseLeast)
}

func (b *Broker) stop(loss Loss) {
	if b.stopped {
		return
	}
	b.stopped, b.loss = true, loss
	for c := range b.conns {
		if !c.dead && !c.isEnding() {
			c.cut()
		}
		c.channels, c.dead = map[uint16]*channel{}, true
	}
	for _, v := range b.vhosts {
		v.Stop(loss == LoseMost)
	}
}

// Start starts the broker again after Kill or Stop, with what it has kept.
func (b *Broker) Start() {
	b.mu.Lock()
	defer b.leave()
	if !b.stopped || b.closed {
		return
	}
	b.stopped = false
	for _, v := range b.vhosts {
		v.Start(time.Now(), b.loss == LoseMost)
	}
}
