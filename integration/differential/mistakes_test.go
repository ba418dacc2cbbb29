package differential

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// user is a client that does something wrong.
type user struct {
	url    *url.URL
	dialer func(ctx context.Context, network, address string) (net.Conn, error)
	socket net.Conn
	conn   *amqp.Connection
	ch     *amqp.Channel
	queue  string
}

// login connects to a virtual host.
func (u *user) login(vhost, password string) (*amqp.Connection, error) {
	return u.loginWith(amqp.Config{}, vhost, password)
}

func (u *user) loginWith(cfg amqp.Config, vhost, password string) (*amqp.Connection, error) {
	at := *u.url
	at.Path, at.User = "/"+vhost, url.UserPassword("guest", password)
	cfg.Dial = func(network, address string) (net.Conn, error) {
		c, err := u.dialer(context.Background(), network, address)
		u.socket = c
		return c, err
	}
	return amqp.DialConfig(at.String(), cfg)
}

// other does something on a connection of its own, which ends with the test.
func (u *user) other(t *testing.T, do func(*amqp.Channel) error) error {
	conn, err := u.login("", "guest")
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}

func (u *user) declare(args amqp.Table) error {
	_, err := u.ch.QueueDeclare(u.queue, true, false, false, false, args)
	return err
}

// consume consumes a classic queue with arguments.
func (u *user) consume(args amqp.Table) error {
	if err := u.declare(nil); err != nil {
		return err
	}
	_, err := u.ch.Consume(u.queue, "", false, false, false, false, args)
	return err
}

// topic binds a classic queue to a topic exchange.
func (u *user) topic(key string) error {
	if err := u.declare(nil); err != nil {
		return err
	}
	return u.ch.QueueBind(u.queue, key, "amq.topic", false, nil)
}

// mistakes are what the random programs do not do.
var mistakes = []struct {
	name   string
	except string // the versions that take it for none
	do     func(t *testing.T, u *user) error
}{
	{"an exclusive queue of another connection", "", func(t *testing.T, u *user) error {
		err := u.other(t, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(u.queue, false, false, true, false, nil)
			return err
		})
		if err != nil {
			return err
		}
		_, err = u.ch.QueueDeclarePassive(u.queue, false, false, false, false, nil)
		return err
	}},
	{"a queue that another consumes exclusively", "", func(t *testing.T, u *user) error {
		err := u.declare(nil)
		if err == nil {
			err = u.other(t, func(ch *amqp.Channel) error {
				_, err := ch.Consume(u.queue, "", false, true, false, false, nil)
				return err
			})
		}
		if err != nil {
			return err
		}
		_, err = u.ch.Consume(u.queue, "", false, false, false, false, nil)
		return err
	}},
	{"another durability", "", func(_ *testing.T, u *user) error {
		if err := u.declare(nil); err != nil {
			return err
		}
		_, err := u.ch.QueueDeclare(u.queue, false, false, true, false, nil)
		return err
	}},
	{"a consumer tag again", "", func(_ *testing.T, u *user) error {
		if err := u.declare(nil); err != nil {
			return err
		}
		if _, err := u.ch.Consume(u.queue, "tag", false, false, false, false, nil); err != nil {
			return err
		}
		_, err := u.ch.Consume(u.queue, "tag", false, false, false, false, nil)
		return err
	}},
	{"immediate", "", func(_ *testing.T, u *user) error {
		return u.ch.Publish("", u.queue, false, true, amqp.Publishing{})
	}},
	{"a prefetch in bytes", "", func(_ *testing.T, u *user) error { return u.ch.Qos(1, 100, false) }},
	{"a shared prefetch of a quorum queue", "4.3", func(_ *testing.T, u *user) error {
		if err := errors.Join(u.declare(amqp.Table{"x-queue-type": "quorum"}), u.ch.Qos(1, 0, true)); err != nil {
			return err
		}
		_, err := u.ch.Consume(u.queue, "", false, false, false, false, nil)
		return err
	}},
	{"a quorum queue that is not durable", "", func(_ *testing.T, u *user) error {
		_, err := u.ch.QueueDeclare(u.queue, false, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		return err
	}},
	{"a quorum queue that is exclusive", "", func(_ *testing.T, u *user) error {
		_, err := u.ch.QueueDeclare(u.queue, true, false, true, false, amqp.Table{"x-queue-type": "quorum"})
		return err
	}},
	{"a quorum queue that the broker is to name", "", func(_ *testing.T, u *user) error {
		_, err := u.ch.QueueDeclare("", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		return err
	}},
	{"an exclusive consumer of a quorum queue is none: only the exchange is missing", "", func(t *testing.T, u *user) error {
		err := u.declare(amqp.Table{"x-queue-type": "quorum"})
		for range 2 {
			if err == nil {
				_, err = u.ch.Consume(u.queue, "", false, true, false, false, nil)
			}
		}
		if err != nil {
			return err
		}
		return u.ch.ExchangeDeclarePassive("missing", "direct", true, false, false, false, nil)
	}},
	{"an exclusive consumer of a queue with a single active one", "", func(_ *testing.T, u *user) error {
		if err := u.declare(amqp.Table{"x-single-active-consumer": true}); err != nil {
			return err
		}
		_, err := u.ch.Consume(u.queue, "", false, true, false, false, nil)
		return err
	}},
	{"three hashes in a topic", "3.10 4.0", func(_ *testing.T, u *user) error {
		return u.topic("#.a.#.#")
	}},
	{"two hashes in a topic are none: only the exchange is missing", "", func(_ *testing.T, u *user) error {
		if err := u.topic("#.a.#"); err != nil {
			return err
		}
		return u.ch.ExchangeDeclarePassive("missing", "direct", true, false, false, false, nil)
	}},
	{"frames that are too small", "3.10 4.0", func(_ *testing.T, u *user) error {
		_, err := u.loginWith(amqp.Config{FrameSize: 4096}, "", "guest")
		return err
	}},
	{"a leader locator that is none, of a quorum queue", "", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-queue-type": "quorum", "x-queue-leader-locator": "nearest"})
	}},
	{"a leader locator that is none, of a classic queue", "", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-queue-leader-locator": "nearest"})
	}},
	{"a leader locator of a classic queue", "4.0 4.3", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-queue-leader-locator": "balanced"})
	}},
	{"a master locator that is none", "4.0 4.3", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-queue-master-locator": "nearest"})
	}},
	{"a master locator that is a number", "4.0 4.3", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-queue-master-locator": 1})
	}},
	{"an empty name of a queue to look at", "", func(_ *testing.T, u *user) error {
		if err := u.declare(nil); err != nil {
			return err
		}
		_, err := u.ch.QueueDeclarePassive("", true, false, false, false, nil)
		return err
	}},
	{"an empty name before a queue was declared", "", func(_ *testing.T, u *user) error {
		_, err := u.ch.QueuePurge("", false)
		return err
	}},
	{"a queue mode that is none", "4.3", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-queue-mode": "odd"})
	}},
	{"a queue mode that is a number", "4.3", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-queue-mode": 1})
	}},
	{"a queue mode of a quorum queue", "", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-queue-type": "quorum", "x-queue-mode": "lazy"})
	}},
	{"a group of none", "", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 0})
	}},
	{"a consumer timeout below zero, of a quorum queue", "3.10 4.0", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-queue-type": "quorum", "x-consumer-timeout": -1})
	}},
	{"a consumer timeout of a classic queue", "3.10 4.0", func(_ *testing.T, u *user) error {
		return u.declare(amqp.Table{"x-consumer-timeout": 60_000})
	}},
	{"a consumer priority that is text", "", func(_ *testing.T, u *user) error {
		return u.consume(amqp.Table{"x-priority": "high"})
	}},
	{"a consumer timeout that is text", "3.10 4.0", func(_ *testing.T, u *user) error {
		if err := u.declare(amqp.Table{"x-queue-type": "quorum"}); err != nil {
			return err
		}
		_, err := u.ch.Consume(u.queue, "", false, false, false, false, amqp.Table{"x-consumer-timeout": "long"})
		return err
	}},
	{"an offset of what is no stream", "", func(_ *testing.T, u *user) error {
		return u.consume(amqp.Table{"x-stream-offset": "first"})
	}},
	{"a filter of what is no stream", "3.10", func(_ *testing.T, u *user) error {
		return u.consume(amqp.Table{"x-stream-filter": "a"})
	}},
	{"a virtual host that is missing", "", func(_ *testing.T, u *user) error {
		_, err := u.login("missing", "guest")
		return err
	}},
	{"a wrong password", "", func(_ *testing.T, u *user) error {
		_, err := u.login("", "wrong")
		return err
	}},
	{"a wrong new secret is none: only the exchange is missing", "", func(_ *testing.T, u *user) error {
		if err := u.conn.UpdateSecret("wrong", "it is time"); err != nil {
			return err
		}
		return u.ch.ExchangeDeclarePassive("missing", "direct", true, false, false, false, nil)
	}},
	{"a channel that is not open", "", func(_ *testing.T, u *user) error {
		return u.frame(77, 60, 10, 0, 0, 0, 0, 0, 1, 0)
	}},
	{"a frame larger than agreed", "", func(_ *testing.T, u *user) error {
		_, err := u.socket.Write([]byte{1, 0, 1, 0, 4, 0, 0})
		return err
	}},
}

// frame writes a method that the library would not write.
func (u *user) frame(channel, class, method uint16, args ...byte) error {
	b := binary.BigEndian.AppendUint16([]byte{1}, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(args)))
	b = binary.BigEndian.AppendUint16(b, class)
	b = binary.BigEndian.AppendUint16(b, method)
	_, err := u.socket.Write(append(append(b, args...), 0xCE))
	return err
}

// changing is what differs from run to run.
var changing = regexp.MustCompile(`127\.0\.0\.1:\d+|<[\d.]+>`)

// answer returns the exception that a mistake leads to.
func (u *user) answer(t *testing.T, do func(*testing.T, *user) error) string {
	var err error
	if u.conn, err = u.login("", "guest"); err != nil {
		t.Fatal(err)
	}
	defer u.conn.Close()
	if u.ch, err = u.conn.Channel(); err != nil {
		t.Fatal(err)
	}
	closed, lost := u.ch.NotifyClose(make(chan *amqp.Error, 1)), u.conn.NotifyClose(make(chan *amqp.Error, 1))
	err = do(t, u)
	if err == nil {
		timeout := time.NewTimer(30 * time.Second)
		defer timeout.Stop()
		var e *amqp.Error
		select {
		case e = <-closed:
		case e = <-lost:
		case <-timeout.C:
			return "nothing"
		}
		if e == nil {
			return "the end of the socket"
		}
		err = e
	}
	return changing.ReplaceAllString(fmt.Sprint(err), "...")
}

// compareMistakes makes each mistake on both brokers.
func compareMistakes(t *testing.T, address, version string) {
	real, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b, err := rehoptest.NewBroker(rehoptest.Config{Version: version})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, m := range mistakes {
		if slices.Contains(strings.Fields(m.except), version) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			queue := "mistake " + m.name
			ours := &user{url: real, dialer: b.Dial, queue: queue}
			theirs := &user{url: real, dialer: new(net.Dialer).DialContext, queue: queue}
			got, want := ours.answer(t, m.do), theirs.answer(t, m.do)
			if got != want {
				t.Errorf("\n  rehoptest: %s\n  RabbitMQ:  %s", got, want)
			}
			if !strings.Contains(want, "Exception") {
				t.Errorf("RabbitMQ answers %s", want)
			}
			conn, err := theirs.login("", "guest")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if ch, err := conn.Channel(); err == nil {
				_, _ = ch.QueueDelete(queue, false, false, false) // refused while it is exclusive: it goes with its connection
			}
		})
	}
}
