package rehoptest

import (
	"github.com/rehop/rehop/rehoptest/internal/model"
	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// confirm is an answer to a publish that is not sent yet.
type confirm struct {
	seq uint64
	ack bool
}

func (c *channel) Deliver(d model.Delivery) {
	c.conn.send(func(b []byte) []byte {
		b = wire.AppendDeliver(b, c.id, d.Consumer, d.Tag, d.Redelivered, d.Exchange, d.Key)
		return wire.AppendContent(b, c.id, c.conn.maxFrame, d.Properties, d.Body)
	})
}

func (c *channel) CancelConsumer(tag string) {
	if c.conn.wantsTo.cancels && !c.closing {
		c.conn.send(func(b []byte) []byte { return wire.AppendCancel(b, c.id, tag) })
	}
}

func (c *channel) Return(r model.Returned) {
	c.conn.send(func(b []byte) []byte {
		b = wire.AppendReturn(b, c.id, r.Code, r.Text, r.Exchange, r.Key)
		return wire.AppendContent(b, c.id, c.conn.maxFrame, r.Properties, r.Body)
	})
}

func (c *channel) Confirm(seq uint64, ack bool) {
	c.confirms = append(c.confirms, confirm{seq, ack})
	switch {
	case !c.busy || len(c.confirms) >= 64:
		c.flush()
	case len(c.confirms) == 1:
		c.conn.unsent = append(c.conn.unsent, c)
	}
}

func (c *channel) Close(err *model.Error) {
	_ = c.failed(failed(err, wire.ID{}))
}

// flush sends the confirms that have gathered, acks with nothing unanswered
// below them as one.
func (c *channel) flush() {
	if len(c.confirms) == 0 {
		return
	}
	if c.beyond == nil {
		c.beyond = map[uint64]struct{}{}
	}
	for _, f := range c.confirms {
		c.beyond[f.seq] = struct{}{}
	}
	for len(c.beyond) > 0 {
		if _, ok := c.beyond[c.answered+1]; !ok {
			break
		}
		c.answered++
		delete(c.beyond, c.answered)
	}
	var upTo uint64 // acks up to here are one
	several := false
	c.conn.send(func(b []byte) []byte {
		for _, f := range c.confirms {
			switch {
			case !f.ack:
				b = wire.AppendConfirm(b, c.id, f.seq, false, false)
			case f.seq <= c.answered:
				several = upTo > 0
				upTo = max(upTo, f.seq)
			default:
				b = wire.AppendConfirm(b, c.id, f.seq, false, true)
			}
		}
		if upTo > 0 {
			b = wire.AppendConfirm(b, c.id, upTo, several, true)
		}
		return b
	})
	c.confirms = c.confirms[:0]
}
