package rehoptest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// rule is one thing that RabbitMQ does, as clients see it.
type rule struct {
	name     string
	versions string // all if empty
	test     func(c *client, version string)
}

// testRules tests rules on each version that they hold for, in bubbles.
func testRules(t *testing.T, rules []rule) {
	t.Helper()
	for _, r := range rules {
		versions := r.versions
		if versions == "" {
			versions = "3.10 4.0 4.3"
		}
		for _, version := range strings.Fields(versions) {
			t.Run(r.name+" "+version, func(t *testing.T) {
				inBubble(t, rehoptest.Config{Version: version}, func(c *client) { r.test(c, version) })
			})
		}
	}
}

// kinds are the types of queues.
var kinds = []string{"classic", "quorum"}

// reopen opens another channel, after an error has closed the one before.
func (c *client) reopen() {
	c.Helper()
	var err error
	c.ch, err = c.conn.Channel()
	c.must(err)
	c.must(c.ch.Confirm(false))
}

// refused wants an exception with a text that contains part, and opens another
// channel, on another connection if it needs one.
func (c *client) refused(err error, code int, part string) {
	c.Helper()
	var e *amqp.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Reason, part) {
		c.Errorf("%v, want %d and %q", err, code, part)
	}
	synctest.Wait() // for the connection to end too
	if c.conn.IsClosed() {
		c.connect()
		return
	}
	c.reopen()
}

// failed waits for the exception that closes the channel or its connection.
func (c *client) failed(do func() error) error {
	c.Helper()
	closed := c.ch.NotifyClose(make(chan *amqp.Error, 1))
	err := do() // it may see the end before its reason
	if why := <-closed; why != nil {
		return why
	}
	return err
}

// queueFor declares a queue with arguments, and returns the error.
func (c *client) queueFor(name, kind string, args amqp.Table) error {
	all := amqp.Table{"x-queue-type": kind}
	for k, v := range args {
		all[k] = v
	}
	_, err := c.ch.QueueDeclare(name, true, false, false, false, all)
	return err
}

// send publishes by an exchange, and waits for the confirm.
func (c *client) send(exchange, key string, p amqp.Publishing) bool {
	c.Helper()
	d, err := c.ch.PublishWithDeferredConfirm(exchange, key, false, false, p)
	c.must(err)
	return d.Wait()
}

// get takes a message that is ready, or returns one without a body.
func (c *client) get(queue string) amqp.Delivery {
	c.Helper()
	d, _, err := c.ch.Get(queue, false)
	c.must(err)
	return d
}

func (c *client) bind(queue, key, exchange string, args amqp.Table) {
	c.Helper()
	c.must(c.ch.QueueBind(queue, key, exchange, false, args))
}

func (c *client) exchange(name, kind string, args amqp.Table) {
	c.Helper()
	c.must(c.ch.ExchangeDeclare(name, kind, true, false, false, false, args))
}

// numbered publishes n messages to a queue, called 1, 2 and so on, and tells which
// the queue took.
func (c *client) numbered(queue string, n int) (taken string) {
	c.Helper()
	for i := range n {
		if c.publish(queue, persistent(fmt.Sprint(i+1))).Wait() {
			taken += fmt.Sprint(i + 1)
		}
	}
	return taken
}

// inbox is what a consumer was given.
type inbox struct {
	stream <-chan amqp.Delivery
	got    []amqp.Delivery
}

func (c *client) consume(queue, tag string, autoAck, exclusive bool, args amqp.Table) *inbox {
	c.Helper()
	stream, err := c.ch.Consume(queue, tag, autoAck, exclusive, false, false, args)
	c.must(err)
	return &inbox{stream: stream}
}

// bodies waits until nothing more comes, and returns all that has come.
func (i *inbox) bodies() string {
	synctest.Wait()
	for more := true; more; {
		select {
		case d, ok := <-i.stream:
			if more = ok; ok {
				i.got = append(i.got, d)
			}
		default:
			more = false
		}
		synctest.Wait()
	}
	var all []string
	for _, d := range i.got {
		all = append(all, string(d.Body))
	}
	return strings.Join(all, " ")
}

func (c *client) wantGot(i *inbox, want string) {
	c.Helper()
	if got := i.bodies(); got != want {
		c.Errorf("a consumer got %q, want %q", got, want)
	}
}
