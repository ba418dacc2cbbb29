package differential

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
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
	began := time.Now() // the bubble's clock stands until all is done
	synctest.Wait()
	got.chance = s.meets(r) || r.crashes() || s.endless(r) || r.overtakes(got.result) || s.divides(r)
	r.idle = (r.idle || r.did == "cancel") && s.idles(r)
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
	got.chance = got.chance || s.races(r, began)
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

// meets tells whether a message has come to a quorum queue together with a dead letter,
// of its own copy in another queue or of one that this copy has driven out. RabbitMQ's
// order is open: the first message of a channel waits until the queue knows the
// channel, and the dead letter may be faster.
func (s inProcess) meets(r *runner) (meets bool) {
	for name := range r.quorum {
		q, _ := s.Queue(name)
		has, came, published := map[string]int{}, 0, false
		for _, m := range append(q.Ready, q.Unacked...) {
			key := fmt.Sprintf("%s %v", m.Body, m.Headers["x-death"])
			if has[key]++; has[key] > r.had[name][key] {
				came++
				published = published || string(m.Body) == r.published
			}
		}
		meets = meets || published && came > 1
		r.had[name] = has
	}
	return meets
}

// races tells whether a queue has got dead letters of two queues at one moment, or one at
// the moment at which messages of its own expired: on a RabbitMQ either may come first. It
// also does so where 3.10 leaves open how much room a queue has: in a queue with a length
// limit that sends dead letters to itself, at-least-once.
func (s inProcess) races(r *runner, since time.Time) bool {
	type event struct {
		queue string
		at    time.Time
	}
	expired, sources := map[event]bool{}, map[event]map[string]bool{}
	for _, id := range r.ids {
		var published time.Time
		from := ""
		for line := range strings.Lines(s.Story(id)) {
			when, step, _ := strings.Cut(strings.TrimSpace(line), "  ")
			at, err := time.Parse(time.DateTime, when)
			if err == nil {
				published, from = at, ""
			} else if after, err := time.ParseDuration(when); err == nil {
				at = published.Add(after)
			}
			if at.Before(since.UTC().Truncate(time.Millisecond)) {
				continue
			}
			step, why, _ := strings.Cut(step, ": ")
			if name, left := strings.CutPrefix(step, "dead-lettered from "); left {
				if r.did == "publishes" {
					return true // the next message was published already
				}
				from = name
				expired[event{name, at}] = expired[event{name, at}] || why == "expired"
			} else if name, came := strings.CutPrefix(step, "in "); came && from != "" {
				if name == from && r.fills[name] {
					return true
				}
				e := event{name, at}
				if sources[e] == nil {
					sources[e] = map[string]bool{}
				}
				sources[e][from] = true
			}
		}
	}
	for e, from := range sources {
		if len(from) > 1 || expired[e] && !from[e.queue] {
			return true
		}
	}
	return false
}

// endless tells whether a message would go round without an end on a RabbitMQ.
func (s inProcess) endless(r *runner) bool {
	return slices.ContainsFunc(r.ids, func(id string) bool { return strings.Contains(s.Story(id), "goes round without an end") })
}

// idles tells whether a queue of 3.10 has messages for its active consumer and
// gives it none, because the one before it was cancelled.
func (s inProcess) idles(r *runner) bool {
	for name := range r.single {
		if q, _ := s.Queue(name); q.Type == "classic" && len(q.Ready) > 0 && q.Consumers > 0 {
			return true
		}
	}
	return false
}

// divides tells whether two queues may have wanted more of a global prefetch than there
// was: RabbitMQ tells queues of new room in a random order.
func (s inProcess) divides(r *runner) bool {
	consumed, wanting := map[string]bool{}, false
	for tag := range r.streams {
		name := r.consumed[tag]
		q, _ := s.Queue(name)
		consumed[name] = true
		wanting = wanting || len(q.Ready) > 0
	}
	return r.shared && wanting && len(consumed) > 1
}

// overtakes tells whether several messages at once have met a quorum queue that tells its
// publishers that it is full, or hears that its consumers have room, while others are on their way.
// A quorum queue counts the prefetch of a consumer that acks nothing as well, until the
// channel has passed a message on.
func (r *runner) overtakes(result string) bool {
	if len(r.quorum) == 0 {
		return false
	}
	if slices.Contains([]string{"nack", "reject", "recover"}, r.did) && len(r.streams) > 1 {
		for tag := range r.streams {
			if r.auto[tag] && r.quorum[r.consumed[tag]] {
				return true
			}
		}
	}
	if r.did != "publishes" {
		return false
	}
	for tag := range r.streams {
		if r.auto[tag] || len(r.streams) > 1 {
			return true
		}
	}
	return strings.Contains(result, "false")
}

// crashes tells whether such a queue may have got another message: it does not
// survive that.
func (r *runner) crashes() bool {
	return r.idle && (r.timed || slices.Contains([]string{"publish", "nack", "reject", "recover", "reopen"}, r.did))
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
