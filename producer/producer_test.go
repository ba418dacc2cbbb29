package producer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/xdeath"
)

// oneOfEach returns a message for each outcome, with what errors.Is finds.
func oneOfEach() map[string]struct {
	m     Message
	want  error
	cause rehop.Cause
	says  string
} {
	return map[string]struct {
		m     Message
		want  error
		cause rehop.Cause
		says  string
	}{
		"confirmed":        {Message{RoutingKey: "open"}, nil, "", ""},
		"no queue":         {Message{RoutingKey: "nowhere"}, ErrReturned, rehop.CauseUnroutable, `queue "nowhere" does not exist`},
		"no exchange":      {Message{Exchange: "nowhere", RoutingKey: "k"}, ErrReturned, rehop.CauseUnroutable, `exchange "nowhere" does not exist`},
		"full":             {Message{RoutingKey: "full"}, ErrNacked, rehop.CauseNacked, "full"},
		"another user":     {Message{RoutingKey: "open", UserID: "somebody-else"}, ErrRefused, rehop.CauseRefused, "user"},
		"faulty":           {Message{}, nil, "", "RoutingKey is empty"},
		"faulty, in words": {Message{RoutingKey: "open", Priority: 11}, nil, "", "Priority is 11"},
	}
}

func TestPublish(t *testing.T) {
	for _, way := range []string{"Publish", "PublishAsync", "PublishAll"} {
		t.Run(way, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				p := s.producer(Config{})
				defer p.Close()
				for rule, tt := range oneOfEach() {
					tt.m.ID = rule
					var r Receipt
					var err error
					switch way {
					case "Publish":
						r, err = p.Publish(s.Context(), tt.m)
					case "PublishAsync":
						done := make(chan struct{})
						p.PublishAsync(s.Context(), tt.m, func(receipt Receipt, e error) {
							r, err = receipt, e
							close(done)
						})
						<-done
					case "PublishAll":
						var all []Receipt
						all, err = p.PublishAll(s.Context(), []Message{tt.m})
						if len(all) > 0 {
							r = all[0]
						} else {
							r = Receipt{ID: rule, Err: err}
						}
					}
					want := Receipt{ID: rule, Cause: tt.cause, Err: r.Err}
					if rule == "confirmed" {
						want.Place, want.Err = PlaceQueue, nil
					}
					if r != want || (err == nil) != (rule == "confirmed") {
						s.Errorf("%s: %+v, %v", rule, r, err)
					}
					for _, known := range []error{ErrReturned, ErrNacked, ErrRefused, ErrUnconfirmed} {
						if errors.Is(err, known) != errors.Is(tt.want, known) {
							s.Errorf("%s: %v", rule, err)
						}
					}
					if err != nil && !strings.Contains(err.Error(), tt.says) {
						s.Errorf("%s: %v; want %q in it", rule, err, tt.says)
					}
				}
			})
		})
	}
}

// With a fallback each is in the place that the table of Sink says.
func TestFallback(t *testing.T) {
	inBubble(t, func(s *fixture) {
		s.exchange("unsent")
		own, err := NewExchangeSink(s.conn, "unsent")
		if err != nil {
			s.Fatal(err)
		}
		store := &memory{}
		p := s.producer(Config{Fallback: []Sink{own, store}})
		defer p.Close()
		for rule, tt := range oneOfEach() {
			if tt.want == nil {
				continue
			}
			tt.m.ID = rule
			r, err := p.Publish(s.Context(), tt.m)
			if err != nil || r.Place != PlaceFallback || r.Sink != nameOf(own) || r.Cause != tt.cause || !errors.Is(r.Err, tt.want) {
				s.Errorf("%s: %+v, %v", rule, r, err)
			}
			letter := s.broker.Drain("unsent")[0]
			h, err := xdeath.Parse(letter.Headers)
			if err != nil || h.Failure.Cause != tt.cause || h.Exchange != tt.m.Exchange || h.RoutingKey != tt.m.RoutingKey {
				s.Errorf("%s: the letter's headers say %+v, %v", rule, h, err)
			}
			again := FromDelivery(amqp.Delivery{Headers: letter.Headers, MessageId: letter.MessageId, Exchange: "unsent"})
			if again.ID != rule || again.Exchange != tt.m.Exchange || again.RoutingKey != tt.m.RoutingKey {
				s.Errorf("%s: from the letter comes %+v", rule, again)
			}
		}
		s.broker.Stop()
		for i := range 3 {
			began := time.Now()
			r, err := p.Publish(s.Context(), Message{RoutingKey: "open"})
			if err != nil || r.Sink != "memory" || !r.Cause.Passes() {
				s.Errorf("without a broker: %+v, %v", r, err)
			}
			if took := time.Since(began); i > 0 && took > 0 || took > 1500*time.Millisecond {
				s.Errorf("message %d took %v", i, took)
			}
		}
		s.broker.Start()
		time.Sleep(time.Minute)
		if r, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil || r.Place != PlaceQueue {
			s.Errorf("when the broker is back: %+v, %v", r, err)
		}
	})
}

// selective is a sink for what somebody has to look at.
type selective struct{ memory }

func (*selective) Name() string                 { return "selective" }
func (*selective) Takes(cause rehop.Cause) bool { return !cause.Passes() }

func TestASinkTakesWhatItIsFor(t *testing.T) {
	inBubble(t, func(s *fixture) {
		desk, broken, store := &selective{}, &memory{takes: func(error) error { return errors.New("disk full") }}, &memory{}
		p := s.producer(Config{Fallback: []Sink{desk, broken, panics{}, store}})
		defer p.Close()
		if r, err := p.Publish(s.Context(), Message{RoutingKey: "nowhere"}); err != nil || r.Sink != "selective" {
			s.Errorf("unroutable: %+v, %v", r, err)
		}
		s.broker.Stop()
		if r, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil || r.Sink != "memory" || len(store.got) != 1 {
			s.Errorf("what passes: %+v, %v", r, err)
		}
		store.takes = broken.takes
		_, err := p.Publish(s.Context(), Message{RoutingKey: "open", ID: "mine"})
		for _, want := range []string{"mine", "not sent", `fallback "memory": disk full`, "panic"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				s.Errorf("when every sink fails: %v; want %q in it", err, want)
			}
		}
	})
}

type panics struct{}

func (panics) Name() string                              { return "panics" }
func (panics) Put(context.Context, Message, error) error { panic("out of order") }

// What a lost connection cuts off is sent again, and says so.
func TestACutIsRetried(t *testing.T) {
	inBubble(t, func(s *fixture) {
		s.declare("quorum", amqp.Table{"x-queue-type": "quorum"})
		var retried atomic.Int32
		p := s.producer(Config{Traces: []Trace{{Retrying: func(context.Context, Retrying) { retried.Add(1) }}}})
		defer p.Close()
		s.broker.Refuse("quorum", true)
		var all sync.WaitGroup
		check := func(way string, r Receipt, err error) {
			if err != nil || r.Place != PlaceQueue || !r.MaybeDuplicate {
				s.Errorf("%s: %+v, %v", way, r, err)
			}
		}
		all.Go(func() {
			r, err := p.Publish(s.Context(), Message{RoutingKey: "quorum"})
			check("Publish", r, err)
		})
		all.Add(1)
		p.PublishAsync(s.Context(), Message{RoutingKey: "quorum"}, func(r Receipt, err error) {
			defer all.Done()
			check("PublishAsync", r, err)
		})
		all.Go(func() {
			r, err := p.PublishAll(s.Context(), []Message{{RoutingKey: "quorum"}, {RoutingKey: "quorum"}})
			for _, r := range r {
				check("PublishAll", r, err)
			}
		})
		synctest.Wait()
		s.broker.Cut("")
		s.broker.Refuse("quorum", false)
		all.Wait()
		if n := retried.Load(); n != 4 {
			s.Errorf("%d tries were retried, want 4", n)
		}
	})
}

// Timeout and ctx bound everything, and what is known of a message is said.
func TestAMessageWithoutAnAnswer(t *testing.T) {
	inBubble(t, func(s *fixture) {
		s.declare("quorum", amqp.Table{"x-queue-type": "quorum"})
		p := s.producer(Config{Window: 1, Timeout: 3 * time.Second})
		if _, err := p.Publish(s.Context(), Message{RoutingKey: "quorum"}); err != nil {
			s.Fatal(err)
		}
		s.broker.Refuse("quorum", true)
		for i, tt := range []struct {
			rule        string
			limit       time.Duration // of ctx
			unconfirmed bool
			took        time.Duration
		}{
			{"ctx ends the waiting for the answer", 100 * time.Millisecond, true, 100 * time.Millisecond},
			{"ctx ends the waiting for room", 100 * time.Millisecond, false, 100 * time.Millisecond},
			{"the Timeout ends the waiting for room", time.Hour, false, 3 * time.Second},
		} {
			ctx, cancel := context.WithTimeout(s.Context(), tt.limit)
			began := time.Now()
			_, err := p.Publish(ctx, Message{RoutingKey: "quorum", ID: fmt.Sprint(i)})
			cancel()
			if err == nil || errors.Is(err, ErrUnconfirmed) != tt.unconfirmed || rehop.ClassOf(err) != rehop.ClassTransient || time.Since(began) != tt.took {
				s.Errorf("%s: %v, %v, after %v", tt.rule, err, rehop.ClassOf(err), time.Since(began))
			}
		}
		s.broker.Refuse("quorum", false)
		if err := p.Close(); err != nil {
			s.Error(err)
		}
		_, err := p.Publish(s.Context(), Message{RoutingKey: "open"})
		if rehop.ClassOf(err) != rehop.ClassBug {
			s.Errorf("after Close: %v", err)
		}
		if _, err := p.PublishAll(s.Context(), []Message{{RoutingKey: "open"}}); rehop.ClassOf(err) != rehop.ClassBug {
			s.Errorf("after Close: %v", err)
		}
		p.PublishAsync(s.Context(), Message{RoutingKey: "open"}, func(_ Receipt, err error) {
			if rehop.ClassOf(err) != rehop.ClassBug {
				s.Errorf("after Close: %v", err)
			}
		})
		if err := p.Close(); err != nil {
			s.Error(err)
		}
	})
}

func TestFlushAndCloseWaitForAsynchronousMessages(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{Window: 10})
		if err := p.Flush(s.Context()); err != nil {
			s.Errorf("Flush of nothing: %v", err)
		}
		s.broker.Slow(time.Second)
		var done atomic.Int32
		for i := range 25 {
			p.PublishAsync(s.Context(), Message{RoutingKey: "open", ID: fmt.Sprint(i)}, func(Receipt, error) { done.Add(1) })
		}
		brief, cancel := context.WithTimeout(s.Context(), time.Millisecond)
		defer cancel()
		if err := p.Flush(brief); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("Flush without time: %v", err)
		}
		if err := p.Flush(s.Context()); err != nil || done.Load() != 25 || len(s.in("open")) != 25 {
			s.Errorf("after Flush: %v, %d done, %d in the queue", err, done.Load(), len(s.in("open")))
		}
		p.PublishAsync(s.Context(), Message{RoutingKey: "open"}, nil)
		p.PublishAsync(s.Context(), Message{RoutingKey: "open"}, func(Receipt, error) { done.Add(1) })
		if err := p.Close(); err != nil || done.Load() != 26 {
			s.Errorf("after Close: %v, %d done", err, done.Load())
		}
	})
}

func TestFlushAndShutdownTellOfMessagesThatNobodyWasToldOf(t *testing.T) {
	inBubble(t, func(s *fixture) {
		var log bytes.Buffer
		p := s.producer(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		told := 0
		async := func(keys ...string) {
			for _, key := range keys {
				p.PublishAsync(s.Context(), Message{RoutingKey: key}, nil)
				p.PublishAsync(s.Context(), Message{RoutingKey: key}, func(_ Receipt, err error) {
					if err != nil {
						told++
					}
				})
			}
		}
		async("open", "nowhere", "open", "nowhere")
		if err := p.Flush(s.Context()); !errors.Is(err, ErrReturned) || !strings.Contains(err.Error(), "2 messages") || told != 2 {
			s.Errorf("Flush: %v, and %d calls with an error; want 2 messages that are not safe, and 2", err, told)
		}
		p.PublishAsync(nil, Message{RoutingKey: "open"}, nil) //nolint:staticcheck // what a caller's slip does
		if err := p.Flush(s.Context()); !errors.Is(err, errNoContext) {
			s.Errorf("Flush: %v, want that ctx is nil", err)
		}
		if err := p.Flush(s.Context()); err != nil {
			s.Errorf("Flush tells it again: %v", err)
		}
		async("nowhere")
		if err := p.Close(); !errors.Is(err, ErrReturned) || !strings.Contains(err.Error(), "a message of PublishAsync") {
			s.Errorf("Close: %v", err)
		}
		if err := p.Close(); err != nil {
			s.Errorf("Close tells it again: %v", err)
		}
		if !strings.Contains(log.String(), "level=ERROR") {
			s.Errorf("the log has no error:\n%s", log.String())
		}
	})
}

func TestAFunctionGivenToPublishAsyncMayPublish(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{Window: 2})
		s.broker.Slow(10 * time.Millisecond)
		const chains, links = 8, 20
		var confirmed atomic.Int32
		var publish func(left int)
		var all sync.WaitGroup
		publish = func(left int) {
			p.PublishAsync(s.Context(), Message{RoutingKey: "open"}, func(r Receipt, err error) {
				if err != nil || r.Place != PlaceQueue {
					s.Errorf("receipt %+v, %v", r, err)
				}
				confirmed.Add(1)
				if left > 1 {
					publish(left - 1)
					return
				}
				all.Done()
			})
		}
		began := time.Now()
		for range chains {
			all.Add(1)
			go publish(links)
		}
		all.Wait()
		if took := time.Since(began); confirmed.Load() != chains*links || took > 10*time.Second {
			s.Errorf("%d of %d messages were confirmed after %v", confirmed.Load(), chains*links, took)
		}
		if err := p.Close(); err != nil {
			s.Error(err)
		}
	})
}

// A panic of a hook, or of the function given to PublishAsync, harms nothing
// and is logged.
func TestPanicsInHooksAreLogged(t *testing.T) {
	inBubble(t, func(s *fixture) {
		var log strings.Builder
		p := s.producer(Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Traces: []Trace{{
				Publishing: func(context.Context, *Message) context.Context { panic("hook 1") },
				Retrying:   func(context.Context, Retrying) { panic("hook 2") },
				Published:  func(context.Context, Published) { panic("hook 3") },
			}},
		})
		if r, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil || r.Place != PlaceQueue {
			s.Errorf("%+v, %v", r, err)
		}
		p.PublishAsync(s.Context(), Message{RoutingKey: "open"}, func(Receipt, error) { panic("done") })
		if err := p.Close(); err != nil {
			s.Error(err)
		}
		for _, want := range []string{"hook 1", "hook 3", "done"} {
			if !strings.Contains(log.String(), want) {
				s.Errorf("%q is not in the log:\n%s", want, log.String())
			}
		}
	})
}

func TestTrace(t *testing.T) {
	inBubble(t, func(s *fixture) {
		var published []string
		p := s.producer(Config{Traces: []Trace{{
			Publishing: func(ctx context.Context, m *Message) context.Context {
				m.Headers = amqp.Table{"traceparent": "00-1-2-01"}
				return ctx
			},
			Published: func(_ context.Context, done Published) {
				m, r, took := done.Message, done.Receipt, done.Took
				published = append(published, fmt.Sprint(m.RoutingKey, " ", r.Place, " ", took))
			},
		}}})
		defer p.Close()
		_, _ = p.Publish(s.Context(), Message{RoutingKey: "open"}) // opens the channel
		s.broker.Slow(time.Second)
		_, _ = p.Publish(s.Context(), Message{RoutingKey: "open"})
		_, _ = p.Publish(s.Context(), Message{RoutingKey: "full"})
		_, _ = p.Publish(s.Context(), Message{})
		if want := []string{"open queue 0s", "open queue 1s", "full  1s", "  0s"}; fmt.Sprint(published) != fmt.Sprint(want) {
			s.Errorf("published: %q, want %q", published, want)
		}
		if h := s.in("open")[0].Headers; h["traceparent"] != "00-1-2-01" {
			s.Errorf("headers %v", h)
		}
	})
}

func TestALetterIsCutToTheFrame(t *testing.T) {
	inBubble(t, func(s *fixture) {
		s.exchange("unsent")
		small, err := connection.Open(s.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker/"}, Dial: s.smallFrames})
		if err != nil {
			s.Fatal(err)
		}
		defer small.Close()
		sink, err := NewExchangeSink(small, "unsent")
		if err != nil {
			s.Fatal(err)
		}
		defer sink.(*exchangeSink).Close()
		if err := sink.Put(s.Context(), Message{RoutingKey: "k", ID: "1"}, errors.New(strings.Repeat("why ", 2000))); err != nil {
			s.Error(err)
		}
		if n := len(s.in("unsent")); n != 1 {
			s.Errorf("%d letters, want 1", n)
		}
		p, err := New(small, Config{})
		if err != nil {
			s.Fatal(err)
		}
		defer p.Close()
		for size, want := range map[int]error{3000: nil, 5000: ErrRefused} { // half a frame is for what is added later
			_, err := p.Publish(s.Context(), Message{RoutingKey: "open", Headers: amqp.Table{"h": strings.Repeat("v", size)}})
			if !errors.Is(err, want) || err != nil && rehop.ClassOf(err) != rehop.ClassBug {
				s.Errorf("headers of %d bytes: %v", size, err)
			}
		}
	})
}

// smallFrames dials a broker that asks for frames of 8192 bytes.
func (s *fixture) smallFrames(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.broker.Dial(ctx, network, address)
	return &tuned{Conn: conn}, err
}

type tuned struct {
	net.Conn
	done bool
}

func (t *tuned) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if at := bytes.Index(p[:n], []byte{0, 10, 0, 30}); !t.done && at >= 0 { // connection.tune: channel_max, frame_max
		t.done = true
		binary.BigEndian.PutUint32(p[at+6:], 8192)
	}
	return n, err
}

// Every HTTP handler that publishes on the ctx of its request: one at a time, each
// with less time than a handshake and OnConnect take.
func TestShortContextsPublishAfterOneDial(t *testing.T) {
	inBubble(t, func(s *fixture) {
		const within = 250 * time.Millisecond
		var publishing, consuming atomic.Int32
		conn, err := connection.Open(s.Context(), connection.Config{
			URLs: []string{"amqp://guest:guest@broker/"}, Dial: s.broker.Dial, Lazy: true,
			Traces: []connection.Trace{{DialAttempt: func(try connection.DialAttempt) {
				map[connection.Role]*atomic.Int32{connection.Publish: &publishing, connection.Consume: &consuming}[try.Role].Add(1)
			}}},
			OnConnect: func(ctx context.Context, _ *connection.Conn) error {
				select {
				case <-time.After(within):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		})
		if err != nil {
			s.Fatal(err)
		}
		defer conn.Close()
		p, err := New(conn, Config{})
		if err != nil {
			s.Fatal(err)
		}
		defer p.Close()
		s.broker.Slow(100 * time.Millisecond) // three times as long for a handshake
		for when, n := range []int32{1, 2} {
			published := 0
			for range 20 {
				ctx, cancel := context.WithTimeout(s.Context(), within)
				if _, err := p.Publish(ctx, Message{RoutingKey: "open"}); err == nil {
					published++
				}
				cancel()
			}
			publish, consume := publishing.Load(), consuming.Load()
			if published < 15 || publish != n || consume != n {
				s.Errorf("after %d losses: %d of 20 published, dialled %d times to publish and %d times to consume; want all but the first few, and %d of each",
					when, published, publish, consume, n)
			}
			time.Sleep(time.Minute)
			s.broker.Cut("")
			synctest.Wait()
		}
	})
}
