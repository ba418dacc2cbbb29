package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/topology"
)

// stuckPlan is a message that the broker cannot hand over, as one of AMQP 1.0 with a property that it cannot
// convert: each delivery of it ends the socket.
type stuckPlan struct {
	n     int           // its number; 0: there is none
	until time.Duration // then it can be handed over, as after an upgrade
}

// stuckMessage has one message that the broker cannot hand over, in one queue of several of the process. Nothing else
// breaks. A quorum queue gets rid of it by its delivery limit, and a classic one keeps it.
func (m maker) stuckMessage(p *plan) {
	m.crashes(p, pick(m, 0, 0, 1, 1, 2))
	p.stuck.n, p.crasher = p.crasher, 0
	p.kind = pick(m, topology.Quorum, topology.Classic)
	p.engine = pick(m, m.engines(*p)...)
	if m.chance(70) {
		p.bound, p.shards = false, pick(m, 2, 3, 8)
		p.single = p.turns || m.chance(50)
	}
	p.stuck.until = p.begunIn() + m.between(time.Minute, 30*time.Minute)
}

// begunIn is how long the messages of other queues take at most until handlers have had all of them.
func (p plan) begunIn() time.Duration { return 10*time.Minute + p.handling(p.messages()) }

// isStuck reports whether the broker cannot hand a message over now.
func (w *trial) isStuck(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isPlannedStuck(id) && time.Since(w.began) < w.stuck.until
}

// wasStuck reports whether there was a time when the broker could not hand a message over.
func (w *trial) wasStuck(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isPlannedStuck(id)
}

// isPlannedStuck needs w.mu held.
func (w *trial) isPlannedStuck(id string) bool { return w.stuck.n > 0 && w.planned[id].n == w.stuck.n }

// othersGoOn looks, when the message is about to be handed over, for messages of other queues that no handler has had.
func (w *trial) othersGoOn(ctx context.Context) {
	if w.stuck.n == 0 || w.shards < 2 || !sleep(ctx, w.stuck.until-time.Second) {
		return
	}
	w.mu.Lock()
	var waiting []string
	queue := ""
	for id := range w.planned {
		if w.isPlannedStuck(id) {
			queue = w.queueOf(id)
		}
	}
	for id, at := range w.published {
		if w.runs[id] == 0 && time.Since(at) > w.begunIn() && w.queueOf(id) != queue {
			waiting = append(waiting, id)
		}
	}
	w.mu.Unlock()
	if queue == "" {
		return
	}
	slices.Sort(waiting)
	for _, id := range waiting {
		w.violate("message %s waits in %s beside %s, whose message cannot be handed over", id, w.queueOf(id), queue)
	}
}

// queueOf returns the shard of a message.
func (w *trial) queueOf(id string) string {
	return w.spread(0, w.shards).Queue(w.orderKey(w.acct.Number(id)))
}

// handsOver returns dial, for a process that consumes: its sockets end where the broker cannot hand over a message.
func (w *trial) handsOver(name string, dial dial) dial {
	if w.stuck.n == 0 || !strings.HasPrefix(name, consumerName(0)[:1]) {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &refusing{Conn: conn, trial: w, name: name, deliver: map[uint16]bool{}}, nil
	}
}

// refusing is the broker's end of a connection on which it cannot hand over a message.
type refusing struct {
	net.Conn
	trial   *trial
	name    string
	deliver map[uint16]bool // channels whose latest method was basic.deliver
	rest    []byte          // of a frame
	ended   atomic.Bool     // the broker has ended the connection
}

// internalError is the frame of a connection.close, 541.
const internalError = "\x01\x00\x00\x00\x00\x00\x19\x00\x0a\x00\x32\x02\x1d\x0eINTERNAL_ERROR\x00\x00\x00\x00\xce"

// Write has no error once the broker has ended the connection: the client is to see the reason.
func (c *refusing) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.ended.Load() {
		return len(p), nil
	}
	return n, err
}

func (c *refusing) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.ended.Load() {
			return 0, io.EOF
		}
		head := make([]byte, 7)
		if _, err := io.ReadFull(c.Conn, head); err != nil {
			return 0, err
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(c.Conn, payload); err != nil {
			return 0, err
		}
		c.rest = append(head, payload...)
		if c.refuses(head[0], binary.BigEndian.Uint16(head[1:]), payload) {
			c.ended.Store(true)
			now := time.Now()
			c.trial.troubled("a message cannot be handed over to "+c.name, now, now)
			_ = c.Conn.Close()
			c.rest = []byte(internalError)
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// refuses reports whether a frame is the header of a delivery that cannot be handed over.
func (c *refusing) refuses(kind byte, channel uint16, payload []byte) bool {
	switch kind {
	case 1:
		c.deliver[channel] = bytes.HasPrefix(payload, []byte{0, 60, 0, 60})
	case 2:
		return c.deliver[channel] && slices.ContainsFunc(ids.FindAllString(string(payload), -1), c.trial.isStuck)
	}
	return false
}
