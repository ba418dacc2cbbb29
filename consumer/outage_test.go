package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// gateway is something that handlers need, and that may be away.
type gateway struct {
	away atomic.Bool
	took time.Duration // by a call

	mu       sync.Mutex
	calls    int
	done     int
	attempts map[int]int // done, by their attempt
}

var errAway = errors.New("the gateway is away")

func (g *gateway) handle(_ context.Context, d *consumer.Delivery) error {
	g.mu.Lock()
	g.calls++
	g.mu.Unlock()
	time.Sleep(g.took)
	if g.away.Load() {
		return consumer.Hold(errAway)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done++
	if g.attempts == nil {
		g.attempts = map[int]int{}
	}
	g.attempts[d.Attempt]++
	return nil
}

func (g *gateway) counts() (calls, done int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls, g.done
}

// What a handler depends on is away for a minute under 500 messages a second: no attempt
// is spent, no letter made, and full speed is back within one try.
func TestAnOutageOfAMinute(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		g := &gateway{took: 10 * time.Millisecond}
		c, stop := w.start(g.handle, consumer.Config{Concurrency: 16})
		feed := func(seconds int) {
			for range seconds * 10 {
				w.publish(50)
				time.Sleep(100 * time.Millisecond)
			}
		}
		feed(2)
		g.away.Store(true)
		feed(1)
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), "outage, one message at a time is tried: the gateway is away") {
			w.Errorf("in the outage: %s, %v", status, err)
		}
		before, done := g.counts()
		time.Sleep(59 * time.Second)
		if calls, _ := g.counts(); calls-before > 40 {
			w.Errorf("%d calls in a minute of outage, want one at a time after growing pauses", calls-before)
		}
		g.away.Store(false)
		time.Sleep(10*time.Second + 100*time.Millisecond)
		if status, err := health(c); status != "healthy" {
			w.Errorf("one try after the outage: %s, %v", status, err)
		}
		at := time.Now()
		for _, now := g.counts(); now < w.sent; _, now = g.counts() {
			time.Sleep(10 * time.Millisecond)
			if time.Since(at) > 10*time.Second {
				w.Fatalf("%d of %d messages are done", now, w.sent)
			}
		}
		w.stopped(stop)
		if _, after := g.counts(); after != w.sent || g.attempts[1] != w.sent {
			w.Errorf("%d of %d messages done, %v by their attempts, %d before the outage", after, w.sent, g.attempts, done)
		}
		w.has("orders.dlq")
		w.has("orders")
	})
}

// Handlers end their goroutines in an outage, with Hold and without: workers that replace them
// handle what waits.
func TestHandlersThatEndTheirGoroutinesInAnOutage(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		const n = 20
		w.publish(n)
		var away atomic.Bool
		away.Store(true)
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			time.Sleep(10 * time.Millisecond)
			if away.Load() && d.ID != "m0" {
				return consumer.Hold(errAway)
			}
			if away.Load() {
				d.Fail(consumer.Hold(errAway))
				runtime.Goexit()
			}
			if d.Attempt == 1 {
				runtime.Goexit() // the outage is over: it is no Hold
			}
			return nil
		}, consumer.Config{Concurrency: 2})
		time.Sleep(30 * time.Second)
		away.Store(false)
		time.Sleep(time.Hour)
		w.has("orders")
		w.has("orders.dlq")
		w.stopped(stop)
	})
}

// One of two consumers cannot reach what it needs: the other one takes the work.
func TestTheOtherConsumerTakesTheWork(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		broken, good := &gateway{took: time.Millisecond}, &gateway{took: 10 * time.Millisecond}
		broken.away.Store(true)
		_, stopBroken := w.start(broken.handle, consumer.Config{Concurrency: 8})
		w.publish(500)
		time.Sleep(2 * time.Second)
		_, stopGood := w.start(good.handle, consumer.Config{Concurrency: 8})
		time.Sleep(10 * time.Second)
		if _, done := good.counts(); done < 500-9 {
			w.Errorf("the good consumer has done %d of 500, want all but 8 that the other holds, and one that it has for its next try", done)
		}
		broken.away.Store(false)
		time.Sleep(11 * time.Second)
		_, one := broken.counts()
		_, other := good.counts()
		if one+other != 500 {
			w.Errorf("%d and %d are done, want 500 together", one, other)
		}
		w.stopped(stopBroken)
		w.stopped(stopGood)
		w.has("orders")
		w.has("orders.dlq")
	})
}

// In an outage another consumer handles all messages: what is left to say of it ends, and
// begins with the next message that fails. Full speed is back with the first that works.
func TestAnOutageWithoutAMessageToTry(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		broken, good := &gateway{took: time.Millisecond}, &gateway{took: time.Millisecond}
		broken.away.Store(true)
		w.publish(50)
		c, stopBroken := w.start(broken.handle, consumer.Config{Concurrency: 8})
		time.Sleep(2 * time.Second)
		began := time.Now()
		other, err := connection.Open(w.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: w.broker.Dial, Name: "other"})
		if err != nil {
			w.Fatal(err)
		}
		defer other.Close()
		conn := w.conn
		w.conn = other
		g, stopGood := w.start(good.handle, consumer.Config{Concurrency: 8})
		w.conn = conn
		time.Sleep(time.Second)
		w.broker.Cut("test") // what it holds goes to the other one
		for range 20 {
			time.Sleep(time.Second)
			if q, _ := w.broker.Queue("orders"); len(q.Ready)+len(q.Unacked) == 0 {
				break
			}
		}
		if status, err := health(c); status != "degraded" {
			w.Errorf("just after its last message: %s, %v", status, err)
		}
		time.Sleep(21 * time.Second)
		if status, err := health(c); status != "healthy" {
			w.Errorf("after the longest pause without a message: %s, %v", status, err)
		}
		if _, text := call(operator(t, c), "GET", "/", ""); !strings.Contains(text, "orders: healthy") || !strings.Contains(text, ", no message to try") {
			w.Errorf("the operator sees\n%s", text)
		}
		g.Pause()
		w.publish(1)
		time.Sleep(2 * time.Second)
		status, err := health(c)
		var h *rehop.HealthError
		if status != "degraded" || !errors.As(err, &h) || h.Since.After(began) {
			w.Errorf("with a message that fails: %s, %v, %v; want the same outage", status, err, h)
		}
		w.publish(99)
		broken.away.Store(false)
		time.Sleep(11 * time.Second)
		if status, err := health(c); status != "healthy" {
			w.Errorf("when it works: %s, %v", status, err)
		}
		if _, done := broken.counts(); done < 100 {
			w.Errorf("%d messages are done within one try after the outage, want 100", done)
		}
		w.stopped(stopBroken)
		w.stopped(stopGood)
		w.has("orders")
		w.has("orders.dlq")
	})
}

// Before 4.3 each return counts towards the delivery limit.
func TestManyOutagesMakeNoLetters(t *testing.T) {
	everywhere(t, func(w *fixture) {
		g := &gateway{took: time.Millisecond}
		_, stop := w.start(g.handle, consumer.Config{Concurrency: 2})
		for range 30 {
			g.away.Store(true)
			w.publish(20)
			time.Sleep(3 * time.Second)
			g.away.Store(false)
			time.Sleep(100 * time.Millisecond)
			g.away.Store(true) // those that were not handled go back again
			time.Sleep(3 * time.Second)
		}
		g.away.Store(false)
		time.Sleep(5 * time.Minute)
		w.stopped(stop)
		if _, done := g.counts(); done != w.sent || g.attempts[1] != done {
			w.Errorf("%d of %d messages are done, %v by their attempts", done, w.sent, g.attempts)
		}
		w.has("orders.dlq")
		w.has("orders")
	})
}

func TestPauseAndResume(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		g := &gateway{took: 100 * time.Millisecond}
		w.publish(100)
		c, stop := w.start(g.handle, consumer.Config{Concurrency: 2})
		time.Sleep(time.Second)
		c.Pause()
		c.Pause()
		synctest.Wait()
		time.Sleep(time.Second)
		before, done := g.counts()
		if before != done {
			w.Errorf("%d of %d runs have ended, want that handlers finish", done, before)
		}
		status, err := health(c)
		if status != "degraded" || !strings.Contains(err.Error(), "paused by Pause") {
			w.Errorf("while paused: %s, %v", status, err)
		}
		var h *rehop.HealthError
		if errors.As(err, &h) && time.Since(h.Since) != time.Second {
			w.Errorf("paused since %v, want 1s ago", time.Since(h.Since))
		}
		q, _ := w.broker.Queue("orders")
		if len(q.Unacked) != 0 || len(q.Ready) != 100-done {
			w.Errorf("%d messages are with the paused consumer and %d in the queue, want none and %d", len(q.Unacked), len(q.Ready), 100-done)
		}
		time.Sleep(10 * time.Minute)
		if status, _ := health(c); status != "degraded" {
			w.Errorf("after ten minutes of pause: %s", status)
		}
		if calls, _ := g.counts(); calls != before {
			w.Errorf("%d messages were handled while paused", calls-before)
		}
		c.Resume()
		time.Sleep(10 * time.Second)
		if status, err := health(c); status != "healthy" {
			w.Errorf("after Resume: %s, %v", status, err)
		}
		w.stopped(stop)
		if _, done := g.counts(); done != 100 {
			w.Errorf("%d of 100 are done", done)
		}
		w.has("orders")
	})
}

func TestAConsumerMayBePausedBeforeRunAndStoppedThen(t *testing.T) {
	onNewest(t, func(w *fixture) {
		g := &gateway{}
		w.publish(10)
		c, err := consumer.New(w.conn, w.orders, g.handle, consumer.Config{})
		if err != nil {
			w.Fatal(err)
		}
		c.Pause()
		ctx, cancel := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Minute)
		if calls, _ := g.counts(); calls != 0 {
			w.Errorf("%d messages were handled", calls)
		}
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		w.has("orders", ids(10)...)
		c.Resume()
		ctx, cancel = context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		if err := c.Run(ctx); err != nil {
			w.Error(err)
		}
		if _, done := g.counts(); done != 10 {
			w.Errorf("%d of 10 are done after Resume", done)
		}
	})
}

// A session that is lost while paused, or in an outage, is followed by one that is, too.
func TestAGateOutlivesItsSession(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		g := &gateway{took: time.Millisecond}
		c, stop := w.start(g.handle, consumer.Config{Concurrency: 4})
		w.publish(50)
		g.away.Store(true)
		c.Pause()
		time.Sleep(time.Second)
		w.broker.Cut("")
		time.Sleep(30 * time.Second)
		if calls, _ := g.counts(); calls > 4 {
			w.Errorf("%d calls while paused", calls)
		}
		c.Resume()
		time.Sleep(time.Minute)
		w.broker.Cut("")
		time.Sleep(time.Minute)
		g.away.Store(false)
		time.Sleep(30 * time.Second)
		w.stopped(stop)
		if _, done := g.counts(); done != 50 {
			w.Errorf("%d of 50 are done", done)
		}
		w.has("orders")
		w.has("orders.dlq")
	})
}

func TestEachLaneHasItsOwnOutages(t *testing.T) {
	onNewest(t, func(w *fixture) {
		lanes := topology.Lanes{Name: "sms", Type: topology.Quorum, Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}}
		w.declare(lanes)
		high, low := &gateway{took: time.Millisecond}, &gateway{took: time.Millisecond}
		high.away.Store(true)
		c, stop := w.startOn(lanes, func(ctx context.Context, d *consumer.Delivery) error {
			if d.Queue == "sms.high" {
				return high.handle(ctx, d)
			}
			return low.handle(ctx, d)
		}, consumer.Config{Concurrency: 10, Lanes: map[string]consumer.LaneLimits{"high": {Concurrency: 8}}})
		for range 100 {
			for _, w.orders.Name = range []string{"sms.high", "sms.low"} {
				w.publish(1)
			}
		}
		time.Sleep(10 * time.Second)
		if _, done := low.counts(); done != 100 {
			w.Errorf("%d of 100 of the low lane are done beside an outage of the high one", done)
		}
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), "sms.high") || strings.Contains(err.Error(), "sms.low") {
			w.Errorf("%s, %v", status, err)
		}
		high.away.Store(false)
		time.Sleep(12 * time.Second)
		if _, done := high.counts(); done != 100 {
			w.Errorf("%d of 100 of the high lane are done after its outage", done)
		}
		w.stopped(stop)
	})
}

// Messages of two lanes, turn by turn, find the gateway away and take every slot between
// them, in whichever numbers. Health says so, one message at a time is tried, and all go on
// after the outage.
func TestAnOutageOfLanesThatShareEverySlot(t *testing.T) {
	for _, version := range sampled(t, []string{"3.10", "4.3"}) {
		for _, share := range []int{0, 1} {
			for _, slots := range []int{2, 3, 4, 8, 10, 12, 16} {
				t.Run(fmt.Sprintf("%s, share %d, %d slots", version, share, slots), func(t *testing.T) {
					on(t, version, topology.Quorum, func(w *fixture) {
						g := &gateway{took: time.Millisecond}
						l := topology.Lanes{Name: "sms", Waits: w.orders.Waits, Lanes: []topology.Lane{{Name: "vip", Share: share}, {Name: "bulk", Share: share}}}
						w.declare(l)
						c, stop := w.startOn(l, g.handle, consumer.Config{Concurrency: slots})
						const n = 600
						since := time.Now()
						for i := range n { // 30 s, of which the gateway is away for 10
							time.Sleep(50 * time.Millisecond)
							g.away.Store(i >= 200 && i < 400)
							w.fill([]string{"vip", "bulk"}[i%2], 1)
							if i == 399 {
								if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), errAway.Error()) {
									w.Errorf("after 10 s of an outage: %s, %v", status, err)
								}
							}
						}
						before, _ := g.counts()
						time.Sleep(time.Until(since.Add(50 * time.Second)))
						if calls, done := g.counts(); done != n {
							w.Errorf("%d calls, %d more in the last 20 s, and %d of %d done", calls, calls-before, done, n)
						}
						if g.attempts[1] != n {
							w.Errorf("done by attempt: %v", g.attempts)
						}
						w.stopped(stop)
					})
				})
			}
		}
	}
}

// The first runs were good, and no other message of these keys runs for the first time: those that are
// held keep them back. Slots are free all the while.
func TestAnOutageIsNoticedWhereMessagesWaitForTheirKeys(t *testing.T) {
	for _, tt := range []struct {
		rule string
		keys int
		want bool
	}{{"several are held", 7, true}, {"one is held, which says nothing of others", 1, false}} {
		t.Run(tt.rule, func(t *testing.T) {
			onQuorumQueues(t, func(w *fixture) {
				for i := range 40 {
					w.publish(2, keyed(fmt.Sprint(i%tt.keys)))
				}
				g := &gateway{took: time.Second}
				g.away.Store(true)
				c, stop := w.start(g.handle, consumer.Config{Concurrency: 16, KeyLimit: 1, Outage: consumer.Outage{Runs: 100}})
				time.Sleep(10 * time.Second)
				if noticed := c.Health() != nil; noticed != tt.want || tt.want && !strings.Contains(c.Health().Error(), "outage, one message at a time is tried: "+errAway.Error()) {
					w.Errorf("Health: %v", c.Health())
				}
				g.away.Store(false)
				time.Sleep(3 * time.Minute)
				if _, done := g.counts(); done != 80 || c.Health() != nil {
					w.Errorf("%d of 80 done when it is over, %v", done, c.Health())
				}
				w.stopped(stop)
				w.has("orders.dlq")
			})
		})
	}
}

// Messages with keys stay in an outage, and keep their order.
func TestAnOutageKeepsTheOrderOfKeys(t *testing.T) {
	everywhere(t, func(w *fixture) {
		g := &gateway{took: time.Millisecond}
		var got []string
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			err := g.handle(ctx, d)
			if err == nil {
				got = append(got, d.ID)
			}
			return err
		}, consumer.Config{Concurrency: 4, KeyLimit: 1})
		g.away.Store(true)
		w.publish(50, keyed("k"))
		time.Sleep(time.Minute)
		g.away.Store(false)
		time.Sleep(time.Minute)
		w.stopped(stop)
		var want []string
		for n := range 50 {
			want = append(want, id(n))
		}
		if !slices.Equal(got, want) {
			w.Errorf("handled in the order %v", got)
		}
	})
}

func TestOutagesThatAreRefused(t *testing.T) {
	onNewest(t, func(w *fixture) {
		_, err := consumer.New(w.conn, w.orders, func(context.Context, *consumer.Delivery) error { return nil },
			consumer.Config{Outage: consumer.Outage{Share: -1, Runs: 1001, MaxPause: time.Millisecond}})
		want := "consumer: Config.Outage.Share is -1, want more than 0, up to 1, or 0 for 0.5\n" +
			"consumer: Config.Outage.Runs is 1001, want 1 to 1000, or 0 for 10\n" +
			"consumer: Config.Outage.MaxPause is 1ms, want 1s or more, or 0 for 10s"
		if err == nil || err.Error() != want {
			w.Errorf("New = %v\nwant %s", err, want)
		}
		_, err = consumer.New(w.conn, w.orders, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{Outage: consumer.Outage{Share: 1.5}})
		if want := "consumer: Config.Outage.Share is 1.5, want more than 0, up to 1, or 0 for 0.5"; err == nil || err.Error() != want {
			w.Errorf("New = %v\nwant %s", err, want)
		}
	})
}
