package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
)

// Ends of a consumer, wanted and unwanted, with handlers running.

func TestDrain(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		const running = 10
		ids := e.send(w.Name, 60)
		var began atomic.Int64
		release := make(chan struct{})
		j := newJournal(func(ctx context.Context, _ *consumer.Delivery) error {
			began.Add(1)
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		r := e.consume(w, j, consumer.Config{Concurrency: running})
		e.until("as many handlers run as may", func() bool { return began.Load() == running })
		stopped := make(chan error, 1)
		go func() { stopped <- r.stop() }()
		// Run must go on as long as its handlers: a bound for what should not happen.
		select {
		case err := <-stopped:
			e.Errorf("Run returned %v while %d handlers ran", err, running)
		case <-time.After(500 * time.Millisecond):
		}
		close(release)
		if err := <-stopped; err != nil {
			e.Errorf("Run: %v", err)
		}
		if got := len(j.of("")); got != running {
			e.Errorf("%d handlers ran, want the %d that ran when Run was told to stop", got, running)
		}
		for _, run := range j.of("") {
			if run.err != nil || !j.reached(run.ID, consumer.DispositionDone) {
				e.Errorf("message %q: handler returned %v, settled %v; want nil, done", run.ID, run.err, j.settlements(run.ID))
			}
		}
		e.until("the others are back", func() bool { return e.count(w.Name) == len(ids)-running })
		rest := newJournal(succeed)
		e.consume(w, rest, consumer.Config{})
		e.until("they are done", func() bool { return rest.done() >= len(ids)-running })
		for _, id := range ids {
			if got := append(j.attempts(id), rest.attempts(id)...); !slices.Equal(got, []int{1}) {
				e.Errorf("message %q was handled as attempts %v, want [1]", id, got)
			}
		}
		e.atRest(w, 0)
	}, "drain")
}

// While the queue stands still, the broker's channel keeps acks back. The oldest
// message is done last, so that each of the others has a frame of its own.
func TestAcksOfAStopArrive(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		const messages = 300
		ids := e.send(w.Name, messages)
		var began, ended atomic.Int64
		release, last := make(chan struct{}), make(chan struct{})
		j := newJournal(func(context.Context, *consumer.Delivery) error {
			if began.Add(1) == 1 {
				<-last
				return nil
			}
			<-release
			if ended.Add(1) == messages-1 {
				close(last)
			}
			return nil
		})
		// rabbitmqctl takes longer than the default on a busy machine.
		r := e.consume(w, j, consumer.Config{Concurrency: messages, Prefetch: messages, DrainTimeout: patience})
		e.until("all handlers run", func() bool { return began.Load() == messages })
		stopped := make(chan error, 1)
		go func() { stopped <- r.stop() }()
		e.until("it stops", func() bool { return strings.Contains(fmt.Sprint(r.Health()), "stopping") })
		e.suspendFor(2*time.Second, w.Name)
		close(release)
		e.noError("run the consumer", <-stopped)
		if got := j.done(); got != len(ids) {
			e.Errorf("%d messages are said to be done, want all %d", got, len(ids))
		}
		rest := newJournal(succeed)
		e.consume(w, rest, consumer.Config{})
		next := e.send(w.Name, 1)[0] // behind what has come back
		e.until("a message is done", func() bool { return rest.reached(next, consumer.DispositionDone) })
		if n := len(rest.settlements("")) - 1; n > 0 {
			e.Errorf("%d of %d messages that were done came back", n, messages)
		}
	}, "stop: what was acked does not come back")
}

func TestDrainTimeout(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(scaled[0], scaled[1]))
		e.declare(w)
		ids := e.send(w.Name, 5)
		slow := newJournal(func(ctx context.Context, _ *consumer.Delivery) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		var began atomic.Int64
		does := slow.does
		slow.does = func(ctx context.Context, d *consumer.Delivery) error {
			began.Add(1)
			return does(ctx, d)
		}
		r := e.consume(w, slow, consumer.Config{Concurrency: 5, DrainTimeout: 200 * time.Millisecond})
		e.until("the handlers run", func() bool { return int(began.Load()) == len(ids) })
		e.halt(r)
		for _, run := range slow.of("") {
			if !errors.Is(run.cause, consumer.ErrStopped) {
				e.Errorf("the cause of the handler's ctx is %v, want ErrStopped", run.cause)
			}
		}
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Attempt == 3 {
				return nil
			}
			return errBroken
		})
		e.consume(w, j, consumer.Config{})
		for _, id := range ids {
			e.until("it is done", func() bool {
				return j.reached(id, consumer.DispositionDone) || j.reached(id, consumer.DispositionDeadLetter)
			})
			e.checkAttempts(j, w, id, 3) // the interrupted run has spent none
		}
		e.atRest(w, 0)
	}, "drain timeout spends no attempt")
}

func TestAHandlerThatIgnoresItsCtx(t *testing.T) {
	onNewest(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		id := e.send(w.Name, 1)[0]
		began, release := make(chan struct{}), make(chan struct{})
		const drain, promised = 200 * time.Millisecond, 200*time.Millisecond + 5*time.Second
		c, err := consumer.New(e.conn, w, func(context.Context, *consumer.Delivery) error {
			close(began)
			<-release
			return nil
		}, consumer.Config{DrainTimeout: drain})
		if err != nil {
			e.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		<-began
		cancel()
		select {
		case err = <-ended:
		case <-time.After(3 * promised):
			err = errors.New("nothing")
		}
		if err == nil || !strings.Contains(err.Error(), "1 message;") || !strings.Contains(err.Error(), "handlers did not return") {
			e.Errorf("Run returned %v within %v, want that a handler did not return", err, 3*promised)
		}
		close(release)
		j := newJournal(succeed)
		e.consume(w, j, consumer.Config{})
		e.until("its message is handled again", func() bool { return j.reached(id, consumer.DispositionDone) })
		if got := j.attempts(id); !slices.Equal(got, []int{1}) {
			e.Errorf("it came back as attempts %v, want [1]", got)
		}
	}, "drain: a handler that ignores its ctx is named")
}

func TestLateSettleAfterCut(t *testing.T) {
	everywhere(t, func(e *env) {
		p := e.startProxy()
		lateSettle(e, e.connect(p.url), p.cut)
	}, "late settle after a cut")
}

func TestLateSettleAfterClose(t *testing.T) {
	everywhere(t, func(e *env) {
		name := e.name("late")
		conn, err := connection.Open(e.Context(), connection.Config{URLs: []string{e.node.AMQPURL()}, Name: name, OpenTimeout: patience})
		if err != nil {
			e.Fatal(err)
		}
		e.closeLater(conn)
		lateSettle(e, conn, func() { e.closeByBroker(name) })
	}, "late settle after a close by the broker")
}

// lateSettle ends the connection while every handler runs. What the handlers
// return then comes too late, whatever it is, and must settle nothing.
func lateSettle(e *env, conn *connection.Conn, end func()) {
	w := e.workQueue("work", waits(100*time.Millisecond))
	e.declare(w)
	returns := map[string]error{
		"success": nil, "failure": errBroken, "permanent": consumer.DeadLetter(errBroken),
		"later": consumer.RetryAfter(time.Millisecond, errBroken), "held": consumer.Hold(errBroken), "discarded": consumer.Discard("unwanted"),
	}
	kinds := map[string]string{}
	var messages []producer.Message
	for kind := range returns {
		for range 4 {
			messages = append(messages, producer.Message{RoutingKey: w.Name, Type: kind})
		}
	}
	for i, id := range e.publishAll(messages) {
		kinds[id] = messages[i].Type
	}
	late := make(chan struct{})
	var began atomic.Int64
	j := newJournal(func(ctx context.Context, d *consumer.Delivery) error {
		if began.Add(1) <= int64(len(kinds)) { // the first run of each
			<-late
			<-ctx.Done()
			return returns[d.Type]
		}
		if d.Type == "held" {
			return nil
		}
		return returns[d.Type]
	})
	e.consumeOn(conn, w, j, consumer.Config{Concurrency: len(kinds)})
	e.until("all handlers run", func() bool { return began.Load() == int64(len(kinds)) })
	end()
	close(late)
	ends := map[string]consumer.Disposition{
		"success": consumer.DispositionDone, "held": consumer.DispositionDone, "discarded": consumer.DispositionDone,
		"failure": consumer.DispositionDeadLetter, "permanent": consumer.DispositionDeadLetter, "later": consumer.DispositionDeadLetter,
	}
	letters := 0
	for id, kind := range kinds {
		want := []int{1, 1} // interrupted, and once more
		switch kind {
		case "failure", "later":
			want = []int{1, 1, 2}
			letters++
		case "permanent":
			letters++
		}
		e.until("it has reached its end", func() bool { return len(j.of(id)) >= len(want) && j.settledAs(id, len(want), ends[kind]) })
		runs := j.of(id)
		if got := j.attempts(id); !slices.Equal(got, want) {
			e.Errorf("message %q (%s) was handled as attempts %v, want %v", id, kind, got, want)
		}
		if !errors.Is(runs[0].cause, connection.ErrSessionLost) {
			e.Errorf("message %q: the cause of the first handler's ctx is %v, want ErrSessionLost", id, runs[0].cause)
		}
		// That an ack came too late, its sender need not learn: acks are not confirmed.
		if got := j.settlements(id)[0].Disposition; got != consumer.DispositionRequeued && ends[kind] != consumer.DispositionDone {
			e.Errorf("message %q (%s) was settled as %v at first, want that it is back in its queue", id, kind, got)
		}
	}
	e.atRest(w, letters)
	for _, d := range e.take(w.DeadLetterQueue().Name, letters) {
		if kind := kinds[d.MessageId]; ends[kind] != consumer.DispositionDeadLetter {
			e.Errorf("message %q (%s) is a dead letter", d.MessageId, kind)
		}
	}
}

// Connections that are cut again and again while messages stream through.
func TestCutsUnderLoad(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(50*time.Millisecond, 100*time.Millisecond))
		e.declare(w)
		p := e.startProxy()
		conn := e.connect(p.url)
		kinds := map[string]string{}
		var messages []producer.Message
		const each = 100
		for range each {
			for _, kind := range []string{"succeeds", "fails once", "fails"} {
				messages = append(messages, producer.Message{RoutingKey: w.Name, Type: kind})
			}
		}
		for i, id := range e.publishAll(messages) {
			kinds[id] = messages[i].Type
		}
		j := newJournal(func(ctx context.Context, d *consumer.Delivery) error {
			select { // some handlers are always running
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if d.Type == "fails" || d.Type == "fails once" && d.Attempt == 1 {
				return errBroken
			}
			return nil
		})
		r := e.consumeOn(conn, w, j, consumer.Config{Concurrency: 20, CopyTimeout: 20 * time.Second}) // or a busy broker gets each copy several times
		for cut := range 4 {
			e.until("some more are handled", func() bool { return len(j.of("")) > 60*(cut+1) })
			p.cut()
		}
		letters := map[string]bool{}
		e.until("all have reached their end", func() bool {
			for id, kind := range kinds {
				if end := map[bool]consumer.Disposition{true: consumer.DispositionDeadLetter, false: consumer.DispositionDone}[kind == "fails"]; !j.reached(id, end) {
					return false
				}
			}
			return true
		})
		dlq := w.DeadLetterQueue().Name
		e.until("queue and waits are empty", func() bool {
			return e.count(w.Name)+e.count(route.WaitQueue(w.Name, 1))+e.count(route.WaitQueue(w.Name, 2)) == 0
		})
		e.halt(r) // a last duplicate may be in a handler's hands
		ch := e.channel()
		defer ch.Close()
		e.until("each message that fails is in the DLQ", func() bool { // a busy broker counts no messages at times
			for _, d := range e.takeAll(ch, dlq) {
				letters[d.MessageId] = true
				if kinds[d.MessageId] != "fails" {
					e.Errorf("message %q, which %s, is a dead letter", d.MessageId, kinds[d.MessageId])
				}
				if h := e.parse(d); h.FinalAttempts != 3 {
					e.Errorf("letter %q has %d attempts, want 3: a cut connection spends none", d.MessageId, h.FinalAttempts)
				}
			}
			return len(letters) >= each
		})
		for id, kind := range kinds {
			if kind == "fails" && !letters[id] {
				e.Errorf("message %q, which fails always, is not in the DLQ: lost", id)
			}
		}
	}, "late settle after a cut")
}

func exceptManagement(_, _ string) string {
	if os.Getenv("AMQP_URL") != "" && os.Getenv("RABBITMQ_MANAGEMENT_URL") == "" {
		return "RABBITMQ_MANAGEMENT_URL is not set"
	}
	return ""
}

// closeByBroker has the broker close the connections of a Conn by that name.
func (e *env) closeByBroker(name string) {
	e.Helper()
	if b := e.node.process; b != nil {
		b.Disconnect(name, "Closed via management plugin")
		return
	}
	type listed struct {
		Name             string `json:"name"`
		ClientProperties struct {
			ConnectionName string `json:"connection_name"`
		} `json:"client_properties"`
	}
	var found []string
	e.until("the management API lists the connection of the consumer", func() bool { // it learns of each connection late
		var all []listed
		e.manage(e.Context(), http.MethodGet, "connections", nil, &all)
		found = nil
		consumes := false
		for _, c := range all {
			if of := c.ClientProperties.ConnectionName; strings.HasPrefix(of, name+" ") {
				found = append(found, c.Name)
				consumes = consumes || of == name+" "+string(connection.Consume)
			}
		}
		return consumes
	})
	for _, c := range found {
		e.manage(e.Context(), http.MethodDelete, "connections/"+url.PathEscape(c), nil, nil)
	}
}
