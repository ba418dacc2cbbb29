package rehoptest_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// client is a plain client of a broker, in a bubble.
type client struct {
	*testing.T
	broker *rehoptest.Broker
	conn   *amqp.Connection
	ch     *amqp.Channel
}

// inBubble runs a test with a client of a broker.
func inBubble(t *testing.T, cfg rehoptest.Config, test func(c *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := rehoptest.NewBroker(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		c := &client{T: t, broker: b}
		c.connect()
		defer func() { _ = c.conn.Close() }()
		test(c)
	})
}

func (c *client) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *client) connect() {
	c.Helper()
	var err error
	c.conn, err = c.login("amqp://guest:guest@broker/", amqp.Config{})
	c.must(err)
	c.ch, err = c.conn.Channel()
	c.must(err)
	c.must(c.ch.Confirm(false))
}

func (c *client) login(url string, cfg amqp.Config) (*amqp.Connection, error) {
	cfg.Dial = func(network, address string) (net.Conn, error) {
		return c.broker.Dial(context.Background(), network, address)
	}
	cfg.Properties = amqp.NewConnectionProperties()
	cfg.Properties.SetClientConnectionName("plain")
	return amqp.DialConfig(url, cfg)
}

func (c *client) declare(name, kind string, args amqp.Table) {
	c.Helper()
	if args == nil {
		args = amqp.Table{}
	}
	args["x-queue-type"] = kind
	_, err := c.ch.QueueDeclare(name, true, false, false, false, args)
	c.must(err)
}

func (c *client) publish(queue string, p amqp.Publishing) *amqp.DeferredConfirmation {
	c.Helper()
	d, err := c.ch.PublishWithDeferredConfirm("", queue, true, false, p)
	c.must(err)
	return d
}

func (c *client) ready(queue string) (bodies []string) {
	c.Helper()
	q, ok := c.broker.Queue(queue)
	if !ok {
		c.Fatalf("no queue %s", queue)
	}
	for _, m := range q.Ready {
		bodies = append(bodies, string(m.Body))
	}
	return bodies
}

func (c *client) wantReady(queue string, want ...string) {
	c.Helper()
	synctest.Wait()
	if got := c.ready(queue); !slices.Equal(got, want) {
		c.Errorf("%s holds %v, want %v", queue, got, want)
	}
}

func persistent(body string) amqp.Publishing {
	return amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent, MessageId: body}
}

func code(err error) int {
	var e *amqp.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func TestStopAndKillKeepAndLose(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*rehoptest.Broker)
		dead []string
	}{
		"Stop": {(*rehoptest.Broker).Stop, []string{"dead"}},
		"Kill": {(*rehoptest.Broker).Kill, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rehoptest.Config{Version: "4.0"}, func(c *client) {
				c.declare("classic", "classic", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
				c.declare("dead", "classic", nil)
				c.declare("quorum", "quorum", nil)
				for _, q := range []string{"classic", "quorum"} {
					c.publish(q, persistent("kept"))
					c.publish(q, amqp.Publishing{Body: []byte("transient")})
				}
				time.Sleep(time.Minute)
				c.publish("classic", amqp.Publishing{Body: []byte("dead"), DeliveryMode: 2, Expiration: "0"})
				kept, _, err := c.ch.Get("classic", false)
				c.must(err)
				_, _, err = c.ch.Get("classic", false) // the transient one
				c.must(err)
				c.wantReady("dead", "dead")

				test.end(c.broker)
				if _, err := c.broker.Dial(c.Context(), "tcp", "broker"); err == nil {
					c.Error("a broker that has ended takes connections")
				}
				c.broker.Start()
				c.connect()
				c.wantReady("classic", "kept")
				c.wantReady("quorum", "kept", "transient")
				c.wantReady("dead", test.dead...)
				again, _, err := c.ch.Get("classic", true)
				if err != nil || !again.Redelivered || string(again.Body) != string(kept.Body) {
					c.Errorf("%v, redelivered %v: %s", err, again.Redelivered, again.Body)
				}
			})
		})
	}
}

func TestExpiredWhileTheBrokerIsAway(t *testing.T) {
	for _, killed := range []bool{true, false} {
		inBubble(t, rehoptest.Config{Version: "3.10"}, func(c *client) {
			c.declare("work", "quorum", nil)
			c.declare("wait", "quorum", amqp.Table{"x-message-ttl": int64(60_000), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"})
			c.publish("wait", persistent("m"))
			synctest.Wait()
			if killed {
				c.broker.Kill()
			} else {
				c.broker.Stop()
			}
			time.Sleep(2 * time.Minute)
			c.broker.Start()
			c.connect()
			if killed {
				c.wantReady("work")
				if story := c.broker.Story("m"); !strings.Contains(story, "lost") {
					c.Errorf("the story does not tell of the loss:\n%s", story)
				}
				return
			}
			c.wantReady("work", "m")
		})
	}
}

func TestBlockedPublishersWait(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		c.declare("q", "classic", nil)
		blocked := c.conn.NotifyBlocked(make(chan amqp.Blocking, 2))
		c.broker.Block("low on disk")
		confirm := c.publish("q", persistent("m"))
		if b := <-blocked; !b.Active || b.Reason != "low on disk" {
			c.Errorf("told %+v", b)
		}
		time.Sleep(time.Hour)
		c.wantReady("q")
		c.broker.Unblock()
		if b := <-blocked; b.Active {
			c.Errorf("told %+v", b)
		}
		if !confirm.Wait() {
			c.Error("nacked")
		}
		c.wantReady("q", "m")
	})
}

func TestRefusingQueueConfirmsLater(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		c.declare("q", "quorum", nil)
		c.declare("other", "quorum", nil)
		if !c.broker.Refuse("q", true) || c.broker.Refuse("nowhere", true) {
			c.Error("Refuse does not say whether there is such a queue")
		}
		first, second := c.publish("q", persistent("m")), c.publish("other", persistent("n"))
		if !second.Wait() {
			c.Error("the other queue nacks")
		}
		time.Sleep(time.Minute)
		select {
		case <-first.Done():
			c.Error("confirmed by a queue that does not answer")
		default:
		}
		c.broker.Refuse("q", false)
		if !first.Wait() {
			c.Error("nacked")
		}
		c.wantReady("q", "m")
	})
}

// Time does not stand while a queue that does not answer has something to do, and
// it does it when it answers again.
func TestRefusingQueueExpiresLater(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		c.declare("letters", "quorum", nil)
		c.declare("q", "quorum", amqp.Table{
			"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
		})
		c.publish("q", persistent("a")).Wait()
		c.broker.Refuse("q", true)
		time.Sleep(2 * time.Second)
		c.broker.Kill()
		time.Sleep(time.Second)
		c.broker.Start()
		c.wantReady("letters")
		c.broker.Refuse("q", false)
		c.wantReady("letters", "a")
	})
}

func TestStalledBrokerIsNoticed(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		closed := c.conn.NotifyClose(make(chan *amqp.Error, 1))
		time.Sleep(time.Hour) // heartbeats keep the connection
		start := time.Now()
		c.broker.Stall()
		if err := <-closed; err == nil || time.Since(start) > 20*time.Second {
			c.Errorf("%v after %v", err, time.Since(start))
		}
		c.broker.Resume()
		c.connect()
	})
}

func TestSlowAnswers(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		c.broker.Slow(time.Second)
		start := time.Now()
		c.declare("q", "classic", nil)
		if took := time.Since(start); took < time.Second || took > 2*time.Second {
			c.Errorf("an answer took %v, want 1 s", took)
		}
		c.broker.Slow(0)
	})
}

func TestDisconnectAndCut(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		closed := c.conn.NotifyClose(make(chan *amqp.Error, 1))
		if n := c.broker.Disconnect("somebody else", "no"); n != 0 {
			c.Errorf("%d connections closed, want none", n)
		}
		if n := c.broker.Disconnect("plain", "enough"); n != 1 {
			c.Errorf("%d connections closed, want 1", n)
		}
		if n := c.broker.Disconnect("plain", "enough"); n != 0 {
			c.Errorf("%d connections closed once more, want none", n)
		}
		if err := <-closed; err == nil || err.Code != 320 || !strings.Contains(err.Reason, "enough") {
			c.Errorf("told %v", err)
		}
		synctest.Wait() // the broker has seen the end of it too
		c.connect()
		closed = c.conn.NotifyClose(make(chan *amqp.Error, 1))
		if n := c.broker.Cut("plain"); n != 1 {
			c.Errorf("%d connections cut, want 1", n)
		}
		if n := c.broker.Cut("plain") + c.broker.Disconnect("plain", "enough"); n != 0 {
			c.Errorf("%d connections cut or closed once more, want none", n)
		}
		if err := <-closed; err == nil || err.Server {
			c.Errorf("told %v", err)
		}
	})
}

// take fetches a message, which may have to expire elsewhere first.
func (c *client) take(queue string) amqp.Delivery {
	c.Helper()
	c.sleepUntilExpired()
	d, ok, err := c.ch.Get(queue, false)
	c.must(err)
	if !ok {
		c.Fatalf("%s is empty", queue)
	}
	return d
}

func (c *client) sleepUntilExpired() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}
