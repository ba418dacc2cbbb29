package rehoptest

import (
	"bytes"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest/internal/model"
	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// handshaking bounds the handshake, as the broker does.
const handshaking = 10 * time.Second

// handshake logs the client in, and tells whether it goes on.
func (c *conn) handshake() bool {
	_ = c.net.SetReadDeadline(time.Now().Add(handshaking))
	if p, err := c.frames.Preamble(); err != nil || p != wire.Protocol {
		if err == nil {
			c.send(func(b []byte) []byte { return append(b, wire.Protocol[:]...) })
		}
		return false
	}
	c.send(func(b []byte) []byte { return wire.AppendStart(b, c.b.properties(), c.b.mechanisms()) })
	for _, step := range []func(wire.ID, any) error{c.start, c.tune, c.open} {
		f, err := c.frames.Next(c.maxFrame)
		for err == nil && f.Type == wire.FrameHeartbeat {
			f, err = c.frames.Next(c.maxFrame)
		}
		if err != nil {
			c.refuseFrame(err)
			return false
		}
		id, m, err := decode(f)
		if err != nil {
			c.end(failed(model.Fail(model.SyntaxError, "%v", err), id))
			return false
		}
		if _, ok := m.(*wire.Close); ok {
			c.send(func(b []byte) []byte { return wire.AppendOk(b, 0, wire.ClassConnection, 51) })
			return false
		}
		if err := step(id, m); err != nil {
			c.end(err)
			return false
		}
	}
	_ = c.net.SetReadDeadline(time.Time{})
	return true
}

func (b *Broker) properties() amqp.Table {
	return amqp.Table{
		"capabilities": amqp.Table{
			"publisher_confirms": true, "exchange_exchange_bindings": true, "basic.nack": true,
			"consumer_cancel_notify": true, "connection.blocked": true, "consumer_priorities": true,
			"authentication_failure_close": true, "per_consumer_qos": true, "direct_reply_to": true,
		},
		"cluster_name": "rehoptest", "copyright": "", "information": "",
		"platform": "rehoptest", "product": "RabbitMQ", "version": b.release,
	}
}

func (b *Broker) mechanisms() string {
	if b.cfg.External != "" {
		return "PLAIN EXTERNAL"
	}
	return "PLAIN"
}

// start logs in.
func (c *conn) start(id wire.ID, m any) error {
	s, ok := m.(*wire.StartOk)
	if !ok {
		return failed(model.Fail(model.CommandInvalid, "expected 'connection.start-ok'"), id)
	}
	can, _ := s.Properties["capabilities"].(amqp.Table)
	c.wantsTo.cancels, _ = can["consumer_cancel_notify"].(bool)
	c.wantsTo.blocks, _ = can["connection.blocked"].(bool)
	c.wantsTo.authFailure, _ = can["authentication_failure_close"].(bool)
	c.b.mu.Lock()
	c.name, _ = s.Properties["connection_name"].(string)
	c.b.mu.Unlock()
	switch {
	case s.Mechanism == "EXTERNAL" && c.b.cfg.External != "":
		c.user = c.b.cfg.External
	case s.Mechanism == "PLAIN":
		parts := bytes.Split(s.Response, []byte{0})
		if len(parts) == 3 {
			password, known := c.b.cfg.Users[string(parts[1])]
			if known && password == string(parts[2]) {
				c.user = string(parts[1])
				break
			}
		}
		if !c.wantsTo.authFailure {
			return errDone
		}
		return failed(model.Fail(model.AccessRefused, "Login was refused using authentication mechanism PLAIN. For details see the broker logfile."), wire.ID{})
	default:
		return failed(model.Fail(model.CommandInvalid, "unknown authentication mechanism '%s'", s.Mechanism), id)
	}
	c.send(func(b []byte) []byte {
		return wire.AppendTune(b, wire.TuneOk{ChannelMax: 2047, FrameMax: 131072, Heartbeat: uint16(c.b.cfg.Heartbeat / time.Second)})
	})
	return nil
}

// tune agrees on limits.
func (c *conn) tune(id wire.ID, m any) error {
	t, ok := m.(*wire.TuneOk)
	if !ok {
		return failed(model.Fail(model.CommandInvalid, "expected 'connection.tune-ok'"), id)
	}
	least := uint32(4096)
	if c.b.version.AtLeast(4, 1) {
		least = 8192
	}
	switch {
	case t.FrameMax != 0 && t.FrameMax < least:
		return errDone // without a word, as the broker does
	case t.FrameMax == 0 || t.FrameMax > 131072:
		return failed(model.Fail(model.NotAllowed, "negotiated frame_max = %d is higher than the maximum allowed value (131072)", t.FrameMax), id)
	case t.ChannelMax == 0:
		return failed(model.Fail(model.NotAllowed, "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"), id)
	case t.ChannelMax > 2047:
		return failed(model.Fail(model.NotAllowed, "negotiated channel_max = %d is higher than the maximum allowed value (2047)", t.ChannelMax), id)
	}
	c.maxFrame, c.maxChan = t.FrameMax, t.ChannelMax
	c.mu.Lock()
	c.beat = time.Duration(t.Heartbeat) * time.Second
	c.mu.Unlock()
	c.signal()
	return nil
}

// open enters the virtual host.
func (c *conn) open(id wire.ID, m any) error {
	o, ok := m.(*wire.ConnectionOpen)
	if !ok {
		return failed(model.Fail(model.CommandInvalid, "expected 'connection.open'"), id)
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.model = c.b.vhosts[o.Vhost]; c.model == nil {
		return failed(model.Fail(model.NotAllowed, "vhost %s not found", o.Vhost), id)
	}
	c.send(wire.AppendConnectionOpenOk)
	return nil
}
