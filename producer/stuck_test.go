package producer

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/stucktest"
)

// The first message to a queue without a leader holds back the channel that it was
// sent on. What goes elsewhere is confirmed all the same, in whichever way it is
// published.
func TestAStuckQueueHoldsUpOnlyWhatGoesThere(t *testing.T) {
	for _, tt := range ways {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				h := stucktest.New(s.broker.Dial)
				conn, err := connection.Open(s.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker/"}, Dial: h.Dial})
				if err != nil {
					s.Fatal(err)
				}
				defer conn.Close()
				p, err := New(conn, Config{Timeout: time.Minute})
				if err != nil {
					s.Fatal(err)
				}
				defer p.Close()
				s.declare("stuck", nil)
				h.Hold("stuck")
				var waiting sync.WaitGroup
				waiting.Go(func() {
					if r, err := tt.publish(s.Context(), p, Message{RoutingKey: "stuck"}); err != nil || r.Place != PlaceQueue {
						s.Errorf("to the queue that was stuck: %+v, %v", r, err)
					}
				})
				synctest.Wait() // the message is on its way
				for _, elsewhere := range []struct {
					rule string
					most time.Duration
				}{
					{"behind the stuck one, until that is known", 4 * time.Second},
					{"after that", 0},
				} {
					began := time.Now()
					r, err := tt.publish(s.Context(), p, Message{RoutingKey: "open"})
					if took := time.Since(began); err != nil || r.Place != PlaceQueue || took > elsewhere.most {
						s.Errorf("%s: %+v, %v after %v, want within %v", elsewhere.rule, r, err, took, elsewhere.most)
					}
				}
				h.Release("stuck")
				waiting.Wait()
			})
		})
	}
}

// The window is full of messages to two queues without a leader. A message that finds no room tells of its own queue,
// or that another one takes the room.
func TestAFullWindowTellsWhichQueueDoesNotAnswer(t *testing.T) {
	inBubble(t, func(s *fixture) {
		h := stucktest.New(s.broker.Dial)
		conn, err := connection.Open(s.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker/"}, Dial: h.Dial})
		if err != nil {
			s.Fatal(err)
		}
		defer conn.Close()
		p, err := New(conn, Config{Window: 2})
		if err != nil {
			s.Fatal(err)
		}
		defer p.Close()
		for _, queue := range []string{"stuck1", "stuck2"} {
			s.declare(queue, nil)
			h.Hold(queue)
			defer h.Release(queue)
			p.PublishAsync(s.Context(), Message{RoutingKey: queue}, nil)
			time.Sleep(10 * time.Second)
		}
		const advice = "publish more slowly"
		for _, tt := range []struct {
			queue     string
			says, not []string
		}{
			{"stuck1", []string{`queue "stuck1" has not answered`}, []string{"stuck2", advice}},
			{"stuck2", []string{`queue "stuck2" has not answered`}, []string{"stuck1", advice}},
			{"open", []string{advice, `; perhaps because of messages elsewhere: queue "stuck1" has not answered`}, nil},
		} {
			ctx, cancel := context.WithTimeout(s.Context(), time.Second)
			told := make(chan bool)
			p.PublishAsync(ctx, Message{RoutingKey: tt.queue}, func(_ Receipt, err error) {
				defer close(told)
				for _, says := range tt.says {
					if err == nil || !strings.Contains(err.Error(), says) {
						s.Errorf("to %s: %v, want %q", tt.queue, err, says)
					}
				}
				for _, not := range tt.not {
					if err != nil && strings.Contains(err.Error(), not) {
						s.Errorf("to %s: %v, want no %q", tt.queue, err, not)
					}
				}
			})
			<-told
			cancel()
		}
	})
}
