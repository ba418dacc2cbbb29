package rehoptest

import (
	"errors"
	"github.com/rehop/rehop/rehoptest/internal/model"
	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// channel is one channel of a connection, with its state in the protocol. All
// its methods are called with the broker's mutex held.
type channel struct {
	conn    *conn
	id      uint16
	model   *model.Channel
	closing bool // waits for the client's close-ok

	publish *wire.Publish // whose content is under way
	header  *wire.ContentHeader
	body    []byte

	busy     bool // with a frame of the client
	confirms []confirm
	answered uint64              // every publish up to it is
	beyond   map[uint64]struct{} // answered ones above
}

// frame takes the next frame of the channel.
func (c *channel) frame(f wire.Frame) error {
	if c.closing {
		return c.discard(f)
	}
	var err error
	c.busy = true
	if c.publish != nil {
		err = c.content(f)
	} else {
		err = c.method(f)
	}
	c.busy = false
	return c.failed(err)
}

// discard takes the frames of a channel that waits for the client's close-ok. Like
// RabbitMQ it puts messages together all the same, and wants each of them whole.
func (c *channel) discard(f wire.Frame) error {
	if c.publish != nil {
		return c.content(f)
	}
	_, m, _ := decode(f)
	switch m := m.(type) {
	case *wire.Publish:
		c.publish = m
	case *wire.ChannelCloseOk:
		delete(c.conn.channels, c.id)
	case *wire.ChannelClose:
		c.conn.send(func(b []byte) []byte { return wire.AppendOk(b, c.id, wire.ClassChannel, 41) })
		delete(c.conn.channels, c.id)
	}
	return nil
}

// failed closes the channel where the exception allows it; any other is
// returned.
func (c *channel) failed(err error) error {
	var f *fault
	ok := errors.As(err, &f)
	if !ok || f.exception.Connection() {
		return err
	}
	c.flush()
	c.conn.send(func(b []byte) []byte {
		return wire.AppendChannelClose(b, c.id, f.exception.Code, f.exception.Reply(), f.method)
	})
	c.closing = true
	c.model.Close()
	return nil
}

// content takes the header and the body of a publish.
func (c *channel) content(f wire.Frame) error {
	switch {
	case c.header == nil && f.Type == wire.FrameHeader:
		h, err := wire.DecodeContentHeader(f.Payload)
		if err != nil {
			return failed(model.Fail(model.SyntaxError, "%v", err), wire.IDPublish)
		}
		c.header = &h
		if limit := c.conn.b.cfg.MaxMessageSize; h.Size <= uint64(limit) {
			c.body = make([]byte, 0, h.Size)
		}
	case c.header == nil:
		return failed(model.Fail(model.UnexpectedFrame, "expected content header for class 60, got non content header frame instead"), wire.IDPublish)
	case f.Type == wire.FrameBody:
		if uint64(len(c.body)+len(f.Payload)) > c.header.Size {
			return failed(model.Fail(model.UnexpectedFrame, "content body longer than its header says"), wire.IDPublish)
		}
		c.body = append(c.body, f.Payload...)
	default:
		return failed(model.Fail(model.UnexpectedFrame, "expected content body, got non content body frame instead"), wire.IDPublish)
	}
	if uint64(len(c.body)) < c.header.Size {
		return nil
	}
	if c.closing {
		c.publish, c.header, c.body = nil, nil, nil
		return nil
	}
	p := model.Publishing{
		Exchange: c.publish.Exchange, Key: c.publish.Key, Mandatory: c.publish.Mandatory, Immediate: c.publish.Immediate,
		User: c.conn.user, Properties: c.header.Properties, Body: c.body, Encoded: c.header.Encoded,
	}
	c.publish, c.header, c.body = nil, nil, nil
	return failed(c.model.Publish(p), wire.IDPublish)
}
