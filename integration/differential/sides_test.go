package differential

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// inProcess is the broker of rehoptest, in a bubble.
type inProcess struct{ *rehoptest.Broker }

func (s inProcess) open() (*link, error) {
	return newLink(amqp.DialConfig("amqp://guest:guest@rehoptest", amqp.Config{Dial: func(network, address string) (net.Conn, error) {
		return s.Dial(context.Background(), network, address)
	}}))
}

func (s inProcess) release(l *link) { l.close() }

func (s inProcess) settle(r *runner, _, got *seen) {
	synctest.Wait()
	got.chance = s.meets(r)
	for n := 0; ; n++ {
		before := s.lengths()
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the bubble's time
		synctest.Wait()
		if maps.Equal(before, s.lengths()) {
			break
		}
		got.timed = true
		if n == 10 { // a message goes round for ever, and its counts depend on the moment
			got.chance = true
			break
		}
	}
	for name := range r.queues {
		if q, ok := s.Queue(name); ok {
			got.ready[name] = fmt.Sprintf("%d messages, %d consumers", len(q.Ready), q.Consumers)
		}
	}
	for before := -1; before != count(got.delivered); {
		before = count(got.delivered)
		r.drain(got.delivered)
		synctest.Wait()
	}
}

func count(delivered map[string][]string) (n int) {
	for _, list := range delivered {
		n += len(list)
	}
	return n
}

// meets tells whether a message has met its own dead letter in a quorum queue.
// RabbitMQ's order is open: the first message of a channel waits until the queue
// knows the channel, and a dead letter of its copy in another queue may be faster.
func (s inProcess) meets(r *runner) bool {
	for name := range r.quorum {
		q, _ := s.Queue(name)
		seen := map[string]bool{}
		for _, m := range append(q.Ready, q.Unacked...) {
			if seen[string(m.Body)] && string(m.Body) == r.published {
				return true
			}
			seen[string(m.Body)] = true
		}
	}
	return false
}

// lengths is all that time may change.
func (s inProcess) lengths() map[string]string {
	all := map[string]string{}
	for _, name := range s.Queues() {
		q, _ := s.Queue(name)
		list := ""
		for _, m := range append(append(append(q.Ready, q.Dead...), q.Delayed...), q.Unacked...) {
			list += fmt.Sprintf("%s %d %v,", m.Body, len(m.Headers), m.Headers["x-death"])
		}
		all[name] = list
	}
	return all
}

// real is a RabbitMQ.
type real struct {
	url      string
	links    chan *link   // that nobody uses
	chance   atomic.Int64 // operations that were not run
	failures atomic.Int64 // programs that were not run to their end
}

func newReal(url string) *real { return &real{url: url, links: make(chan *link, *workers)} }

func (s *real) open() (*link, error) {
	for {
		select {
		case l := <-s.links:
			if !l.conn.IsClosed() {
				return l, nil
			}
			l.close()
		default:
			return newLink(amqp.Dial(s.url))
		}
	}
}

func (s *real) release(l *link) {
	select {
	case s.links <- l:
	default:
		l.close()
	}
}

// close closes what nobody uses.
func (s *real) close() {
	for len(s.links) > 0 {
		(<-s.links).close()
	}
}

// remove deletes what a program may have left. It does not wait for it unless the
// same names are to be used again; the channel keeps the order.
func (s *real) remove(p program, again bool) {
	l, err := s.open()
	if err != nil {
		return
	}
	defer s.release(l)
	if l.sweep == nil || l.sweep.IsClosed() {
		if l.sweep, err = l.conn.Channel(); err != nil {
			return
		}
	}
	_ = l.sweep.Qos(1, 0, false) // what was to be removed before is gone with this answer
	for _, name := range p.queues {
		_, _ = l.sweep.QueueDelete(name, false, false, true)
	}
	for _, name := range p.exchanges {
		_ = l.sweep.ExchangeDelete(name, false, true)
	}
	if again {
		_ = l.sweep.Qos(1, 0, false)
	}
}

// patience is how long the real broker may take for what is expected.
const patience = 2 * time.Second

func (s *real) settle(r *runner, expected, got *seen) {
	if expected.timed || r.timed {
		time.Sleep(2 * short * time.Millisecond) //nolint:forbidigo // until it has expired
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for tag, want := range expected.delivered {
		if r.streams == nil || r.streams[tag] == nil {
			continue
		}
	stream:
		for range want {
			select {
			case d, ok := <-r.streams[tag]:
				if !ok {
					delete(r.streams, tag)
					got.delivered[tag] = append(got.delivered[tag], "end")
					break stream
				}
				r.took(tag, d, got.delivered)
			case <-deadline.C:
				deadline.Reset(0)
				break stream
			}
		}
	}
	if err := r.open(); err != nil {
		r.err = err
		return
	}
	for {
		same := true
		for name, want := range expected.ready {
			q, err := r.link.look.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				got.ready[name] = err.Error()
				r.link.look = nil
				if err := r.open(); err != nil {
					r.err = err
					return
				}
				same = false
				break
			}
			got.ready[name] = fmt.Sprintf("%d messages, %d consumers", q.Messages, q.Consumers)
			same = same && got.ready[name] == want
		}
		if same {
			break
		}
		pause := time.NewTimer(2 * time.Millisecond)
		select {
		case <-pause.C:
			continue
		case <-deadline.C:
		}
		break
	}
	r.drain(got.delivered)
}

// inBubble runs a program on a broker in the process.
func inBubble(t *testing.T, p program) (all []seen, err error) {
	synctest.Test(t, func(t *testing.T) {
		b, e := rehoptest.NewBroker(rehoptest.Config{Version: p.version})
		if e != nil {
			err = e
			return
		}
		defer b.Close()
		all, _, err = run(inProcess{b}, p, nil)
	})
	return all, err
}
