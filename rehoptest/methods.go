package rehoptest

import (
	"github.com/rehop/rehop/rehoptest/internal/model"
	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// method carries out a method.
func (c *channel) method(f wire.Frame) error {
	if f.Type != wire.FrameMethod {
		return failed(model.Fail(model.UnexpectedFrame, "expected method frame, got non method frame instead"), wire.ID{})
	}
	id, m, err := wire.DecodeMethod(f.Payload)
	if err != nil {
		return unreadable(err, id)
	}
	switch m := m.(type) {
	case *wire.Publish:
		c.publish = m
		return nil
	case *wire.ChannelOpen:
		return failed(model.Fail(model.CommandInvalid, "second 'channel.open' seen"), id)
	case *wire.ChannelClose:
		c.model.Close()
		delete(c.conn.channels, c.id)
		c.ok(false, wire.ClassChannel, 41)
		return nil
	case *wire.ChannelFlow:
		if !m.Active {
			return failed(model.Fail(model.NotImplemented, "active=false"), id)
		}
		c.conn.send(func(b []byte) []byte { return wire.AppendFlowOk(b, c.id, true) })
		return nil
	case *wire.ChannelFlowOk, *wire.ChannelCloseOk, *wire.CancelOk:
		return nil
	case *wire.ConfirmSelect:
		c.model.ConfirmSelect()
		c.ok(m.NoWait, wire.ClassConfirm, 11)
		return nil
	case *wire.Unknown:
		if m.Class == wire.ClassTx {
			return failed(model.Fail(model.NotImplemented, "rehoptest has no transactions"), id)
		}
		return failed(model.Fail(model.CommandInvalid, "unknown method %d.%d", m.Class, m.Method), id)
	}
	if fault, known := c.topology(m); known {
		return failed(fault, id)
	}
	return failed(c.basic(m), id)
}

// ok answers, unless the client did not ask.
func (c *channel) ok(noWait bool, class, method uint16) {
	if !noWait {
		c.conn.send(func(b []byte) []byte { return wire.AppendOk(b, c.id, class, method) })
	}
}

// topology carries out methods about exchanges and queues, and tells whether the
// method does.
func (c *channel) topology(m any) (*model.Error, bool) {
	switch m := m.(type) {
	case *wire.ExchangeDeclare:
		var err *model.Error
		if m.Passive {
			err = c.conn.model.CheckExchange(m.Name)
		} else {
			err = c.conn.model.DeclareExchange(model.ExchangeSpec{
				Name: m.Name, Kind: m.Kind, Durable: m.Durable, AutoDelete: m.AutoDelete, Internal: m.Internal, Arguments: m.Arguments,
			})
		}
		return c.done(err, m.NoWait, wire.ClassExchange, 11), true
	case *wire.ExchangeDelete:
		return c.done(c.conn.model.DeleteExchange(m.Name, m.IfUnused), m.NoWait, wire.ClassExchange, 21), true
	case *wire.ExchangeBind:
		err := c.model.Bind(model.BindSpec{Source: m.Source, Destination: m.Destination, Key: m.Key, ToExchange: true, Arguments: m.Arguments})
		return c.done(err, m.NoWait, wire.ClassExchange, 31), true
	case *wire.ExchangeUnbind:
		err := c.model.Unbind(model.BindSpec{Source: m.Source, Destination: m.Destination, Key: m.Key, ToExchange: true, Arguments: m.Arguments})
		return c.done(err, m.NoWait, wire.ClassExchange, 51), true
	case *wire.QueueBind:
		err := c.model.Bind(model.BindSpec{Source: m.Exchange, Destination: m.Queue, Key: m.Key, Arguments: m.Arguments})
		return c.done(err, m.NoWait, wire.ClassQueue, 21), true
	case *wire.QueueUnbind:
		err := c.model.Unbind(model.BindSpec{Source: m.Exchange, Destination: m.Queue, Key: m.Key, Arguments: m.Arguments})
		return c.done(err, false, wire.ClassQueue, 51), true
	case *wire.QueueDeclare:
		return c.declareQueue(m), true
	case *wire.QueuePurge:
		n, err := c.model.PurgeQueue(m.Queue)
		return c.counted(n, err, m.NoWait, 31), true
	case *wire.QueueDelete:
		n, err := c.model.DeleteQueue(m.Queue, m.IfUnused, m.IfEmpty)
		return c.counted(n, err, m.NoWait, 41), true
	}
	return nil, false
}

func (c *channel) done(err *model.Error, noWait bool, class, method uint16) *model.Error {
	if err == nil {
		c.ok(noWait, class, method)
	}
	return err
}

func (c *channel) counted(n int, err *model.Error, noWait bool, method uint16) *model.Error {
	if err == nil && !noWait {
		c.conn.send(func(b []byte) []byte { return wire.AppendCountOk(b, c.id, method, uint32(n)) })
	}
	return err
}

func (c *channel) declareQueue(m *wire.QueueDeclare) *model.Error {
	var (
		name                string
		messages, consumers int
		err                 *model.Error
	)
	if m.Passive {
		name, messages, consumers, err = c.model.CheckQueue(m.Name)
	} else {
		name, messages, consumers, err = c.model.DeclareQueue(model.QueueSpec{
			Name: m.Name, Durable: m.Durable, Exclusive: m.Exclusive, AutoDelete: m.AutoDelete, Arguments: m.Arguments,
		})
	}
	if err == nil && !m.NoWait {
		c.conn.send(func(b []byte) []byte {
			return wire.AppendQueueDeclareOk(b, c.id, name, uint32(messages), uint32(consumers))
		})
	}
	return err
}

// basic carries out methods about messages.
func (c *channel) basic(m any) *model.Error {
	switch m := m.(type) {
	case *wire.Ack:
		return c.model.Ack(m.Tag, m.Multiple)
	case *wire.Nack:
		return c.model.Nack(m.Tag, m.Multiple, m.Requeue)
	case *wire.Reject:
		return c.model.Reject(m.Tag, m.Requeue)
	case *wire.Qos:
		if m.Size != 0 {
			return model.Fail(model.NotImplemented, "prefetch_size!=0 (%d)", m.Size)
		}
		c.model.Qos(int(m.Count), m.Global)
		c.ok(false, wire.ClassBasic, 11)
	case *wire.Consume:
		return c.model.Consume(model.ConsumeSpec{
			Queue: m.Queue, Tag: m.Tag, NoAck: m.NoAck, Exclusive: m.Exclusive, Arguments: m.Arguments,
		}, func(tag string) {
			if !m.NoWait {
				c.conn.send(func(b []byte) []byte { return wire.AppendTagOk(b, c.id, 21, tag) })
			}
		})
	case *wire.Cancel:
		c.model.Cancel(m.Tag)
		if !m.NoWait {
			c.conn.send(func(b []byte) []byte { return wire.AppendTagOk(b, c.id, 31, m.Tag) })
		}
	case *wire.Get:
		return c.get(m)
	case *wire.Recover:
		if !m.Requeue {
			return model.Fail(model.NotImplemented, "requeue=false")
		}
		c.model.Recover()
		if !m.Async {
			c.ok(false, wire.ClassBasic, 111)
		}
	default:
		return model.Fail(model.CommandInvalid, "unexpected method")
	}
	return nil
}

func (c *channel) get(m *wire.Get) *model.Error {
	d, err := c.model.Get(m.Queue, m.NoAck)
	if err != nil {
		return err
	}
	c.conn.send(func(b []byte) []byte {
		if d == nil {
			return wire.AppendGetEmpty(b, c.id)
		}
		b = wire.AppendGetOk(b, c.id, d.Tag, d.Redelivered, d.Exchange, d.Key, uint32(d.Left))
		return wire.AppendContent(b, c.id, c.conn.maxFrame, d.Properties, d.Body)
	})
	return nil
}
