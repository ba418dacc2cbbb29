package conformance

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// only43Quorum: a consumer timeout of a queue, to the millisecond, has a quorum
// queue of 4.3 alone.
func only43Quorum(version, queueType string) string {
	if version != "4.3" {
		return "queues have a consumer timeout from 4.3 on"
	}
	return matrix.OnlyQuorum(version, queueType)
}

// A handler takes longer than the broker waits, and does not heed its ctx. Its
// message is taken away and comes again, until that has cost it all its attempts; the
// others are handled meanwhile, and no connection is lost. 4.3.6 sometimes forgets to set
// the timer of a timeout, and looks again when the queue has something to do: so it has,
// all the time. Where a message is left to its handler all the same, which then is done,
// another message has to show it.
func TestConsumerTimeout(t *testing.T) {
	everywhere(t, func(e *env) {
		const timeout, tries = 2400 * time.Millisecond, 6
		w := topology.WorkQueue{Name: e.name("work"), Type: e.queue, Waits: scaled[:2], Existing: true}
		e.rawQueue(w.Name, map[string]any{"x-consumer-timeout": int64(timeout / time.Millisecond)})
		e.declare(w)
		var connects atomic.Int64
		conn, err := connection.Open(e.Context(), connection.Config{URLs: []string{e.node.AMQPURL()}, Name: e.prefix, OpenTimeout: patience,
			OnConnect: func(context.Context, *connection.Conn) error { connects.Add(1); return nil }})
		if err != nil {
			e.Fatal(err)
		}
		defer conn.Close()
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Type == "slow" {
				<-time.After(2 * timeout) // how long the work takes
			}
			return nil
		})
		j.countCopies()
		r := e.consumeOn(conn, w, j, consumer.Config{Concurrency: 4})
		var slows, letters []string
		for range tries {
			slow := e.publish(producer.Message{RoutingKey: w.Name, Type: "slow"})
			quick, sent := e.send(w.Name, 20), time.Now()
			e.until("it is a dead letter, or done", func() bool {
				if time.Since(sent) > timeout/10 {
					quick, sent = append(quick, e.send(w.Name, 1)...), time.Now()
				}
				return j.reached(slow, consumer.DispositionDone) || j.reached(slow, consumer.DispositionDeadLetter)
			})
			quick = append(quick, e.send(w.Name, 20)...)
			for _, id := range quick {
				e.until("the others are done", func() bool { return j.reached(id, consumer.DispositionDone) })
				if n := len(j.of(id)); n > 2 {
					e.Errorf("message %q was handled %d times", id, n)
				}
			}
			slows = append(slows, slow)
			if j.reached(slow, consumer.DispositionDeadLetter) {
				letters = append(letters, slow)
				if !j.unconfirmed()[slow] {
					break // else another message has to show it
				}
			}
		}
		e.halt(r) // its handlers have ended then
		// A broker that answers nothing for a quarter of the timeout has a copy sent again.
		doubled := j.unconfirmed()
		if len(doubled) == 0 && len(letters) == 0 {
			e.Errorf("none of %d messages was taken away as often as it has attempts", tries)
		}
		for _, id := range slows {
			got := j.attempts(id)
			if doubled[id] {
				e.Logf("message %q may be doubled: a copy was not confirmed", id)
				continue
			}
			// Two runs in which the timeout is learned, and one for each attempt.
			if len(got) > 2+len(w.Waits)+1 || !slices.IsSorted(got) {
				e.Errorf("the handler ran %d times, as attempts %v", len(got), got)
			}
			if last := got[len(got)-1]; slices.Contains(letters, id) && last != len(w.Waits)+1 {
				e.Errorf("a dead letter after attempts %v, want 1 to %d", got, len(w.Waits)+1)
			}
		}
		if n := connects.Load(); n != 1 {
			e.Errorf("the socket was made %d times, want once", n)
		}
		if len(doubled) > 0 { // another copy may be anywhere
			e.until("each letter is there", func() bool { return e.count(w.DeadLetterQueue().Name) >= len(letters) })
			return
		}
		e.checkOnce(w.DeadLetterQueue().Name, letters)
		e.atRest(w, 0)
	}, "consumer timeout: counted and bounded, no socket lost")
}

// Two copies of a message, which nothing but the broker's counters tells apart, are taken away
// at the same time, again and again.
func TestConsumerTimeoutOfTwoCopies(t *testing.T) {
	everywhere(t, func(e *env) {
		const timeout = 2400 * time.Millisecond
		w := topology.WorkQueue{Name: e.name("work"), Type: e.queue, Waits: scaled[:2], Existing: true}
		e.rawQueue(w.Name, map[string]any{"x-consumer-timeout": int64(timeout / time.Millisecond)})
		e.declare(w)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Type == "slow" {
				<-time.After(2 * timeout)
			}
			return nil
		})
		j.countCopies()
		r := e.consume(w, j, consumer.Config{Concurrency: 4})
		slow := e.prefix + "-slow"
		for range 2 {
			e.publish(producer.Message{RoutingKey: w.Name, Type: "slow", ID: slow})
		}
		ends := func() (n int) {
			for _, s := range j.settlements(slow) {
				if s.Disposition == consumer.DispositionDone || s.Disposition == consumer.DispositionDeadLetter {
					n++
				}
			}
			return n
		}
		sent := time.Now()
		e.until("both are dead letters, or done", func() bool {
			if time.Since(sent) > timeout/10 { // so that the queue looks at its timer
				e.send(w.Name, 1)
				sent = time.Now()
			}
			return ends() >= 2
		})
		e.halt(r)
		// For each, two runs in which the timeout is learned, and two for each attempt: on 4.3 the
		// timeout of one copy cancels the consumer of both, and the other, which is younger, begins
		// the same attempt again.
		if runs := len(j.of(slow)); runs > 2*(2+2*(len(w.Waits)+1)) && !j.unconfirmed()[slow] {
			e.Errorf("the handler ran %d times:%s", runs, j.story(slow))
		}
	}, "consumer timeout: counted for each of two copies")
}
