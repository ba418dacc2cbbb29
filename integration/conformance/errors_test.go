package conformance

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// What a user reads when something is wrong: what, where, and what to do.
// Run with -v to read them.
func TestErrorTexts(t *testing.T) {
	everywhere(t, func(e *env) {
		const secret = "s3cret%40of-ours"
		open := func(timeout time.Duration, change func(*url.URL)) func() error {
			u, err := url.Parse(e.node.AMQPURL())
			if err != nil {
				e.Fatal(err)
			}
			change(u)
			return func() error {
				conn, err := connection.Open(e.Context(), connection.Config{URLs: []string{u.String()}, OpenTimeout: timeout})
				if err == nil {
					e.noError("close", conn.Close())
				}
				return err
			}
		}
		declare := func(specs ...topology.Spec) func() error {
			return func() error {
				err := topology.Declare(e.Context(), e.conn, specs...)
				if err == nil {
					e.Error("nothing of this should have been declared")
				}
				return err
			}
		}
		closed := e.closedPort()
		foreign := e.rawQueue(e.name("work"), amqp.Table{"x-max-length": int64(7)})
		long := strings.Repeat("n", 256)
		for _, test := range []struct {
			what   string
			do     func() error
			within time.Duration // 0: at once
			want   []string
		}{
			{"broker not running", open(time.Second, func(u *url.URL) {
				u.Host = closed
				u.User = url.UserPassword("guest", "s3cret@of-ours")
			}), 5 * time.Second, []string{closed, "refused", "no connection within"}},
			{"wrong password", open(patience, func(u *url.URL) { u.User = url.UserPassword(e.node.user, "s3cret@of-ours") }),
				patience / 2, []string{e.node.user, "password", "403 ACCESS_REFUSED"}},
			{"unknown vhost", open(patience, func(u *url.URL) { u.Path = "/no-such" }),
				patience / 2, []string{`vhost "no-such"`, "does not exist", e.node.user}},
			{"queue exists with other arguments", declare(topology.WorkQueue{Name: foreign, Type: e.queue}),
				0, []string{foreign, "exists with another", "wanted ", "found ", "delete_queue"}},
			{"negative wait", declare(topology.WorkQueue{Name: e.name("w"), Type: e.queue, Waits: []time.Duration{time.Second, -time.Second}}),
				0, []string{e.name("w"), "Waits", "wait 2 is -1s", "1ms to 87600h"}},
			{"empty name", declare(topology.WorkQueue{Type: e.queue}), 0, []string{"WorkQueue.Name", "empty"}},
			{"long name", declare(topology.WorkQueue{Name: long, Type: e.queue}), 0, []string{"WorkQueue.Name", "256 bytes", "230"}},
			{"several faults", declare(topology.Exchange{}, topology.WorkQueue{Name: "amq.mine", Type: "stream", Engine: "9"}, topology.DeadLetterQueue{Name: long, MaxAge: -1}),
				0, []string{"Exchange.Name is empty", "amq.mine", "belong to the broker", `Type is "stream"`, "Engine is \"9\"", "DeadLetterQueue.Name", "MaxAge"}},
			{"binding to an exchange that is missing", declare(topology.WorkQueue{Name: e.name("b"), Type: e.queue, Bindings: []topology.Binding{{Exchange: e.name("none"), RoutingKey: "k"}}}),
				0, []string{e.name("b"), e.name("none"), "does not exist", "declare it before"}},
			{"consumer of a queue that is missing", func() error {
				c, err := consumer.New(e.conn, topology.Route{Queue: e.name("none")}, succeed, consumer.Config{})
				if err != nil {
					return err
				}
				return c.Run(e.Context())
			}, 0, []string{e.name("none"), "does not exist", "declare it first"}},
			{"faulty consumer", func() error {
				_, err := consumer.New(nil, topology.Route{}, nil, consumer.Config{Concurrency: -1, DrainTimeout: -1})
				return err
			}, 0, []string{"conn is nil", "handler is nil", "Route.Queue is empty", "Concurrency is -1", "DrainTimeout"}},
			{"faulty producer", func() error {
				_, err := producer.New(nil, producer.Config{Window: -1, Timeout: -1})
				return err
			}, 0, []string{"conn is nil", "Window is -1", "Timeout"}},
		} {
			began := time.Now()
			err := test.do()
			e.Logf("%s:\n\t%v", test.what, err)
			if err == nil {
				e.Errorf("%s: no error", test.what)
				continue
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					e.Errorf("%s: %v\nwant %q in it", test.what, err, want)
				}
			}
			if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), secret) {
				e.Errorf("%s: %v\nwant no password in it", test.what, err)
			}
			if took := time.Since(began); test.within > 0 && took > test.within {
				e.Errorf("%s: said after %v, want within %v", test.what, took, test.within)
			}
		}
		e.deleteAtEnd([]string{e.name("b")}, nil)
		e.deleteLater(e.mustPlan(topology.WorkQueue{Name: e.name("b"), Type: e.queue}))
		e.deleteLater(e.mustPlan(topology.WorkQueue{Name: foreign, Type: e.queue}))
	}, "errors say what to do")
}

// A conflict can be asked for by type, and holds the broker's own error.
func TestConflictError(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits())
		e.deleteLater(e.mustPlan(w))
		e.rawQueue(w.Name, amqp.Table{"x-dead-letter-exchange": "elsewhere"})
		err := topology.Declare(e.Context(), e.conn, w)
		var conflict *topology.ConflictError
		var reply *amqp.Error
		if !errors.As(err, &conflict) || !errors.As(err, &reply) || reply.Code != amqp.PreconditionFailed {
			e.Fatalf("Declare: %v, want a *ConflictError over the broker's 406", err)
		}
		if conflict.Kind != "queue" || conflict.Name != w.Name || conflict.Argument == "" || conflict.Want == "" || conflict.Have == "" || conflict.Advice == "" {
			e.Errorf("conflict is %+v, want queue %s and every field", *conflict, w.Name)
		}
		// The connection lives on.
		other := e.workQueue("other")
		e.declare(other)
		j := newJournal(succeed)
		id := e.send(other.Name, 1)[0]
		e.consume(other, j, consumer.Config{})
		e.until("a message is done", func() bool { return j.reached(id, consumer.DispositionDone) })
	}, "errors say what to do")
}

func (e *env) mustPlan(w topology.WorkQueue) topology.Plan {
	e.Helper()
	plan, err := topology.NewPlan(e.node.version, w)
	if err != nil {
		e.Fatal(err)
	}
	return plan
}

// closedPort returns an address where nobody listens.
func (e *env) closedPort() string {
	e.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		e.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
