package rehoptest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

func TestProtocol(t *testing.T) { testRules(t, protocol) }

var protocol = []rule{
	{"user-id: that of the login", "", func(c *client, _ string) {
		c.declare("q", "classic", nil)
		m := persistent("m")
		m.UserId = "guest"
		c.publish("q", m).Wait()
		m.UserId = "somebody"
		c.refused(c.failed(func() error { return c.ch.Publish("", "q", false, false, m) }), 406, "user_id property set to 'somebody' but authenticated user was 'guest'")
		c.wantReady("q", "m")
	}},
	{"expiration: a number", "", func(c *client, _ string) {
		for _, expiration := range []string{"abc", "-1", "1.5", "315360000001"} {
			m := persistent("m")
			m.Expiration = expiration
			c.refused(c.failed(func() error { return c.ch.Publish("", "q", false, false, m) }), 406, "invalid expiration '"+expiration+"'")
		}
	}},
	{"an exchange that is missing", "", func(c *client, _ string) {
		c.refused(c.failed(func() error { return c.ch.Publish("missing", "", false, false, persistent("m")) }), 404, "no exchange 'missing' in vhost '/'")
	}},
	{"immediate, a prefetch in bytes", "", func(c *client, _ string) {
		c.refused(c.failed(func() error { return c.ch.Publish("", "q", false, true, persistent("m")) }), 540, "immediate=true")
		c.refused(c.ch.Qos(0, 1, false), 540, "prefetch_size!=0 (1)")
	}},
	{"unknown types", "", func(c *client, version string) {
		code := 406
		if version == "3.10" {
			code = 503
		}
		c.refused(c.ch.ExchangeDeclare("x", "x-delayed-message", true, false, false, false, nil), code, "unknown exchange type 'x-delayed-message'")
		c.refused(c.queueFor("q", "delayed", nil), 406, "unsupported queue type 'delayed'")
	}},
	{"headers beyond a frame", "", func(c *client, _ string) {
		m := persistent("m")
		m.Headers = amqp.Table{"long": strings.Repeat("a", 132_000)}
		c.refused(c.failed(func() error { return c.ch.Publish("", "q", false, false, m) }), 501, "frame_too_large")
	}},
	{"flow: a server is not stopped by it", "", func(c *client, _ string) {
		c.must(c.ch.Flow(true))
		c.refused(c.ch.Flow(false), 540, "active=false")
	}},
	{"frames that nobody expects", "", func(c *client, _ string) {
		for _, test := range []struct {
			channel uint16
			frame   []byte // its type, then its payload
			code    int
			text    string
		}{
			{77, []byte{1, 0, 60, 0, 10, 0, 0, 0, 0, 0, 1, 0}, 504, "expected 'channel.open'"},
			{1, []byte{1, 0, 20, 0, 10, 0}, 503, "second 'channel.open' seen"},
			{1, []byte{2, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 505, "expected method frame, got non method frame instead"},
		} {
			frames := c.record()
			c.refused(c.failed(func() error {
				b := binary.BigEndian.AppendUint16(test.frame[:1:1], test.channel)
				b = binary.BigEndian.AppendUint32(b, uint32(len(test.frame)-1))
				_, err := frames.Conn.Write(append(append(b, test.frame[1:]...), 0xCE))
				return err
			}), test.code, test.text)
		}
	}},
	{"a message that is cut short while its channel closes", "", func(c *client, _ string) {
		publish := func(exchange string) []byte { // with its id, a reserved field, no key and no flags
			return append(append([]byte{1, 0, 60, 0, 40, 0, 0, byte(len(exchange))}, exchange...), 0, 0)
		}
		header := func(size byte) []byte { return []byte{2, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, size, 0, 0} }
		frames, closed := c.record(), c.conn.NotifyClose(make(chan *amqp.Error, 1))
		var b []byte
		for _, f := range [][]byte{publish("missing"), header(0), publish(""), header(5), {1, 0, 20, 0, 41}} {
			b = append(b, f[0], 0, 1, 0, 0, 0, byte(len(f)-1))
			b = append(append(b, f[1:]...), 0xCE)
		}
		_, err := frames.Conn.Write(b)
		c.must(err)
		c.refused(<-closed, 505, "expected content body, got non content body frame instead")
	}},
	{"channels beyond channel_max", "", func(c *client, _ string) {
		frames := c.recordWith(amqp.Config{ChannelMax: 1}) // the client's own channel
		c.refused(c.failed(func() error {
			_, err := frames.Conn.Write([]byte{1, 0, 2, 0, 0, 0, 5, 0, 20, 0, 10, 0, 0xCE})
			return err
		}), 530, "number of channels opened (1) has reached the negotiated channel_max (1)")
	}},
	{"acks of several publishes are one", "", func(c *client, _ string) {
		c.declare("q", "classic", nil)
		frames := c.record()
		c.broker.Stall()
		var confirms []*amqp.DeferredConfirmation
		for range 100 {
			confirms = append(confirms, c.publish("q", persistent("m")))
		}
		synctest.Wait()
		c.broker.Resume()
		for _, confirm := range confirms {
			if !confirm.Wait() {
				c.Error("nacked")
			}
		}
		single, multiple := frames.acks()
		if multiple == 0 || single+multiple > 50 {
			c.Errorf("100 publishes have %d single and %d multiple acks", single, multiple)
		}
	}},
	{"a client that says nothing is cut", "", func(c *client, _ string) {
		frames := c.record()
		time.Sleep(time.Hour) // heartbeats keep the connection
		if frames.ended.Load() {
			c.Fatal("the connection is gone")
		}
		start := time.Now()
		frames.mute.Store(true)
		<-c.conn.NotifyClose(make(chan *amqp.Error, 1))
		if took := time.Since(start); !frames.ended.Load() || took > 30*time.Second {
			c.Errorf("by the broker: %v, after %v", frames.ended.Load(), took)
		}
		c.connect()
	}},
}

// recorder is the network of a client, with what the broker has sent.
type recorder struct {
	net.Conn
	received []byte
	mute     atomic.Bool // nothing is sent
	ended    atomic.Bool // by the broker
}

// record connects anew by a recorder.
func (c *client) record() *recorder {
	c.Helper()
	return c.recordWith(amqp.Config{})
}

func (c *client) recordWith(cfg amqp.Config) *recorder {
	c.Helper()
	r := &recorder{}
	cfg.Heartbeat = 10 * time.Second
	cfg.Dial = func(network, address string) (net.Conn, error) {
		var err error
		r.Conn, err = c.broker.Dial(context.Background(), network, address)
		return r, err
	}
	conn, err := amqp.DialConfig("amqp://guest:guest@broker/", cfg)
	c.must(err)
	c.must(c.conn.Close())
	c.conn = conn
	c.reopen()
	return r
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.received = append(r.received, p[:n]...)
	if errors.Is(err, io.EOF) {
		r.ended.Store(true)
	}
	return n, err
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.mute.Load() {
		return len(p), nil
	}
	return r.Conn.Write(p)
}

// acks counts those that the broker has sent.
func (r *recorder) acks() (single, multiple int) {
	synctest.Wait()
	for b := r.received; len(b) > 7; {
		size := binary.BigEndian.Uint32(b[3:])
		payload := b[7 : 7+size]
		if b[0] == 1 && [4]byte(payload) == [4]byte{0, 60, 0, 80} {
			if payload[12] == 1 {
				multiple++
			} else {
				single++
			}
		}
		b = b[8+size:]
	}
	return single, multiple
}

func TestMessagesHaveALimit(t *testing.T) {
	inBubble(t, rehoptest.Config{MaxMessageSize: 1000}, func(c *client) {
		c.declare("q", "classic", nil)
		m := amqp.Publishing{Body: make([]byte, 1000)}
		c.publish("q", m).Wait()
		m.Body = make([]byte, 1001)
		c.refused(c.failed(func() error { return c.ch.Publish("", "q", false, false, m) }), 406, "message size 1001 is larger than configured max size 1000")
		if q, _ := c.broker.Queue("q"); len(q.Ready) != 1 {
			c.Errorf("%d messages, want 1", len(q.Ready))
		}
	})
}

func TestStopTellsWhy(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		c.declare("q", "classic", nil)
		c.numbered("q", 2)
		closed := c.conn.NotifyClose(make(chan *amqp.Error, 1))
		c.broker.Stop()
		if err := <-closed; err == nil || err.Code != 320 || err.Reason != "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'" {
			c.Errorf("told %v", err)
		}
		if _, err := c.broker.Dial(c.Context(), "tcp", "broker"); err == nil {
			c.Error("a broker that was stopped takes connections")
		}
		c.broker.Start()
		c.connect()
		c.wantReady("q", "1", "2")
	})
}

func TestStoryTellsEveryStep(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		c.declare("dead", "classic", nil)
		c.declare("q", "quorum", until(60_000, to("dead")))
		c.bind("q", "key", "amq.direct", nil)
		c.send("amq.direct", "key", persistent("m"))
		time.Sleep(1500 * time.Millisecond)
		c.must(c.get("q").Nack(false, true))
		time.Sleep(time.Hour)
		c.must(c.get("dead").Ack(false))
		synctest.Wait()
		want := `2000-01-01 00:00:00.000  published to amq.direct with the key key
                    +0s  in q
                  +1.5s  delivered from q to basic.get
                  +1.5s  given back to q
                  +1m0s  dead-lettered from q: expired
                  +1m0s  in dead
               +1h0m1.5s  delivered from dead to basic.get
               +1h0m1.5s  acked, gone from dead
`
		if got := c.broker.Story("m"); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			c.Errorf("the story is\n%s", got)
		}
		if got := c.broker.Story("nobody"); got != "" {
			c.Errorf("the story of nobody is\n%s", got)
		}
	})
}

// A port works without a bubble, and goes with the broker.
func TestListen(t *testing.T) {
	b, err := rehoptest.NewBroker(rehoptest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	address, err := b.Listen()
	if err != nil {
		t.Fatal(err)
	}
	url := "amqp://guest:guest@" + address
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	b.Kill()
	if err := <-closed; err == nil {
		t.Error("a killed broker closes in good order")
	}
	if _, err := amqp.Dial(url); err == nil {
		t.Error("a killed broker takes connections")
	}
	b.Start()
	if conn, err = amqp.Dial(url); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("a closed broker listens")
	}
	if _, err := b.Listen(); err == nil {
		t.Error("a closed broker opens a port")
	}
	_ = conn.Close()
}
