package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// lanes declares three lanes, with these shares if there are any.
func (w *fixture) lanes(shares ...int) topology.Lanes {
	w.Helper()
	l := topology.Lanes{Name: "sms", Type: w.orders.Type, Waits: w.orders.Waits,
		Lanes: []topology.Lane{{Name: "vip"}, {Name: "normal"}, {Name: "bulk"}}}
	for i, share := range shares {
		l.Lanes[i].Share = share
	}
	w.declare(l)
	return l
}

// fill publishes n messages to the queue of a lane.
func (w *fixture) fill(lane string, n int) {
	w.Helper()
	for i := range n {
		m := rehoptest.Message{RoutingKey: "sms." + lane, Publishing: amqp.Publishing{MessageId: fmt.Sprintf("%s%d", lane, i), DeliveryMode: amqp.Persistent}}
		if queues, err := w.broker.Publish(m); err != nil || queues != 1 {
			w.Fatalf("publish: %d queues, %v", queues, err)
		}
	}
}

// starts is which lanes the handlers had messages of, in the order in which they
// started.
type starts struct {
	mu     sync.Mutex
	lanes  []string
	times  []time.Time
	atWork map[string]int
	most   map[string]int
}

// handler notes each start and takes so long.
func (s *starts) handler(took time.Duration) consumer.Handler {
	return func(_ context.Context, d *consumer.Delivery) error {
		lane := strings.TrimPrefix(d.Queue, "sms.")
		s.mu.Lock()
		if s.most == nil {
			s.atWork, s.most = map[string]int{}, map[string]int{}
		}
		s.lanes, s.times = append(s.lanes, lane), append(s.times, time.Now())
		s.atWork[lane]++
		s.most[lane] = max(s.most[lane], s.atWork[lane])
		s.mu.Unlock()
		time.Sleep(took)
		s.mu.Lock()
		s.atWork[lane]--
		s.mu.Unlock()
		return nil
	}
}

func (s *starts) of(lane string) (times []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.lanes {
		if l == lane {
			times = append(times, s.times[i])
		}
	}
	return times
}

func (s *starts) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lanes)
}

// between returns how many started after a time and before the next one of a lane.
func (s *starts) between(at time.Time, lane string) (ahead int, found bool) {
	own := slices.DeleteFunc(s.of(lane), func(t time.Time) bool { return t.Before(at) })
	if len(own) == 0 {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.times {
		if t.After(at) && t.Before(own[0]) {
			ahead++
		}
	}
	return ahead, true
}

func TestStrictLanesAreHandledHighestFirst(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		for _, concurrency := range []int{1, 4} {
			l := w.lanes()
			for _, lane := range []string{"bulk", "normal", "vip"} {
				w.fill(lane, 300)
			}
			w.broker.Slow(200 * time.Microsecond)
			var s starts
			_, stop := w.startOn(l, s.handler(3*time.Millisecond), consumer.Config{Concurrency: concurrency})
			time.Sleep(time.Minute)
			w.stopped(stop)
			w.broker.Slow(0)
			for _, pair := range [][2]string{{"vip", "normal"}, {"normal", "bulk"}} {
				higher, lower := s.of(pair[0]), s.of(pair[1])
				if len(higher) != 300 || len(lower) != 300 {
					w.Fatalf("concurrency %d: %d of %s and %d of %s handled, want 300 each", concurrency, len(higher), pair[0], len(lower), pair[1])
				}
				if before := slices.IndexFunc(lower, func(t time.Time) bool { return !t.Before(higher[299]) }); before > 0 {
					w.Errorf("concurrency %d: %d of %s start before the last of %s", concurrency, before, pair[1], pair[0])
				}
			}
		}
	})
}

func TestAMessageOfAHigherLaneWaitsForHandlersAloneNotForWhatWasSentAhead(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		const concurrency, vips = 4, 20
		l := w.lanes()
		w.fill("bulk", 2000)
		w.fill("normal", 500)
		var s starts
		_, stop := w.startOn(l, s.handler(10*time.Millisecond), consumer.Config{Concurrency: concurrency, Prefetch: 400})
		time.Sleep(2505 * time.Millisecond) // in the middle of handlers
		for n := range vips {
			sent := time.Now()
			if _, err := w.broker.Publish(rehoptest.Message{RoutingKey: "sms.vip", Publishing: amqp.Publishing{MessageId: fmt.Sprint("v", n)}}); err != nil {
				w.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			// Those in the handlers, which have started, are ahead of it, and no others.
			if ahead, handled := s.between(sent, "vip"); !handled || ahead > 0 {
				w.Errorf("vip %d is handled (%t) after %d messages that had not started", n, handled, ahead)
			}
		}
		w.stopped(stop)
	})
}

func TestFullLanesAreHandledByTheirShares(t *testing.T) {
	onNewest(t, func(w *fixture) {
		const handled = 10_000
		l := w.lanes(6, 3, 1)
		for lane, n := range map[string]int{"vip": 7000, "normal": 4000, "bulk": 2000} {
			w.fill(lane, n)
		}
		var s starts
		_, stop := w.startOn(l, s.handler(time.Millisecond), consumer.Config{Concurrency: 8})
		for len(s.all()) < handled {
			time.Sleep(10 * time.Millisecond)
		}
		w.stopped(stop)
		first := s.all()[:handled]
		for lane, share := range map[string]int{"vip": 6, "normal": 3, "bulk": 1} {
			got, want := 0, handled*share/10
			for _, l := range first {
				if l == lane {
					got++
				}
			}
			w.Logf("%s: %d of %d", lane, got, handled)
			if got < want*95/100 || got > want*105/100 {
				w.Errorf("%s: %d of %d handled, want %d and at most 5 %% apart", lane, got, handled, want)
			}
		}
	})
}

func TestLimitsOfALane(t *testing.T) {
	onNewest(t, func(w *fixture) {
		l := w.lanes()
		w.fill("vip", 100)
		w.fill("normal", 1000)
		w.fill("bulk", 1000)
		var s starts
		_, stop := w.startOn(l, s.handler(20*time.Millisecond), consumer.Config{Concurrency: 4, Lanes: map[string]consumer.LaneLimits{
			"vip": {Rate: 10}, "normal": {Concurrency: 1}}})
		time.Sleep(5 * time.Second)
		w.stopped(stop)
		vips := s.of("vip")
		for i := range vips[1:] {
			if d := vips[i+1].Sub(vips[i]); d < 100*time.Millisecond {
				w.Errorf("vip %d comes %v after the one before, want 100 ms at a rate of 10", i+1, d)
				break
			}
		}
		if n := len(vips); n < 45 || n > 51 {
			w.Errorf("%d vips in 5 s at a rate of 10", n)
		}
		if s.most["normal"] != 1 || s.most["bulk"] < 2 {
			w.Errorf("%d of normal at a time, want 1, and %d of bulk, which has the rest", s.most["normal"], s.most["bulk"])
		}
		if n := len(s.of("bulk")); n < 300 {
			w.Errorf("%d of bulk: what limits leave is not used", n)
		}
	})
}

func TestALaneThatIsAwayHoldsUpNoOther(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		l := w.lanes()
		var s starts
		c, stop := w.startOn(l, s.handler(0), consumer.Config{Concurrency: 4})
		w.begun()
		if status, err := health(c); status != "healthy" {
			w.Errorf("%s: %v", status, err)
		}
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("sms.vip", false, false, false)
			return err
		})
		time.Sleep(time.Minute)
		w.fill("bulk", 50)
		time.Sleep(time.Second)
		if n := len(s.of("bulk")); n != 50 {
			w.Errorf("%d of 50 handled while another lane is away", n)
		}
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), `"sms.vip"`) || strings.Contains(err.Error(), "bulk") {
			w.Errorf("%s: %v, want degraded, because of sms.vip", status, err)
		}
		w.declare(l)
		time.Sleep(time.Minute)
		w.fill("vip", 5)
		time.Sleep(time.Second)
		if n := len(s.of("vip")); n != 5 {
			w.Errorf("%d of 5 handled when the lane is back", n)
		}
		if status, err := health(c); status != "healthy" {
			w.Errorf("%s when the lane is back: %v", status, err)
		}
		w.stopped(stop)
	})
}

func TestALaneWhoseCopiesAreNotConfirmedHoldsUpNoOther(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		l := w.lanes()
		w.broker.Refuse("sms.dlq", true)
		w.broker.Refuse("sms.vip.dlq", true)
		w.fill("vip", 50)
		var s starts
		handle := s.handler(0)
		c, stop := w.startOn(l, func(ctx context.Context, d *consumer.Delivery) error {
			_ = handle(ctx, d)
			if d.Queue == "sms.vip" {
				return consumer.DeadLetter(errBroken)
			}
			return nil
		}, consumer.Config{Concurrency: 4})
		time.Sleep(time.Minute)
		w.fill("bulk", 50)
		time.Sleep(time.Second)
		if n := len(s.of("bulk")); n != 50 {
			w.Errorf("%d of 50 handled while copies of another lane are not confirmed", n)
		}
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), `"sms.vip"`) {
			w.Errorf("%s: %v, want degraded, because of sms.vip", status, err)
		}
		w.broker.Refuse("sms.vip.dlq", false)
		time.Sleep(time.Minute)
		if n := len(slices.Compact(w.in("sms.vip.dlq"))); n != 50 {
			w.Errorf("%d of 50 letters", n)
		}
		w.stopped(stop)
	})
}

func TestAMessageStaysInItsLane(t *testing.T) {
	everywhere(t, func(w *fixture) {
		l := w.lanes()
		publisher, err := producer.New(w.conn, producer.Config{})
		if err != nil {
			w.Fatal(err)
		}
		defer func() { _ = publisher.Close() }()
		type visit struct {
			lane    string
			attempt int
		}
		var mu sync.Mutex
		visits := map[string][]visit{}
		_, stop := w.startOn(l, func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			n := len(visits[d.ID])
			visits[d.ID] = append(visits[d.ID], visit{d.Queue, d.Attempt})
			switch {
			case n == 0:
				return consumer.RetryAfter(2*time.Minute, errBroken)
			case n == 1:
				return consumer.Hold(errBroken)
			case n < 4:
				return errBroken
			}
			return nil
		}, consumer.Config{})
		for priority := range uint8(10) {
			if _, err := publisher.Publish(w.Context(), producer.Message{Exchange: l.Exchange(), ID: fmt.Sprint(priority), Priority: priority}); err != nil {
				w.Fatal(err)
			}
		}
		time.Sleep(20 * time.Minute)       // two waits of 5 minutes
		for _, q := range l.WorkQueues() { // as a person sends letters again
			for _, m := range w.broker.Drain(q.DeadLetterQueue().Name) {
				d := amqp.Delivery{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Headers: m.Headers, MessageId: m.MessageId, Priority: m.Priority}
				if _, err := publisher.Publish(w.Context(), producer.FromDelivery(d)); err != nil {
					w.Fatal(err)
				}
			}
		}
		time.Sleep(time.Minute)
		w.stopped(stop)
		for priority := range 10 {
			lane := "sms.normal"
			if priority >= 5 {
				lane = "sms.vip"
			} else if priority == 1 || priority == 2 {
				lane = "sms.bulk"
			}
			want := []visit{{lane, 1}, {lane, 2}, {lane, 2}, {lane, 3}, {lane, 1}}
			if got := visits[fmt.Sprint(priority)]; !slices.Equal(got, want) {
				w.Errorf("priority %d was in %v, want %v", priority, got, want)
			}
		}
	})
}

func TestRunOfLanesEndsWhereALaneDoesNotExist(t *testing.T) {
	onNewest(t, func(w *fixture) {
		l := w.lanes()
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("sms.normal", false, false, false)
			return err
		})
		c, err := consumer.New(w.conn, l, succeed, consumer.Config{})
		if err != nil {
			w.Fatal(err)
		}
		if err := c.Run(w.Context()); err == nil || !strings.Contains(err.Error(), `"sms.normal"`) || strings.Contains(err.Error(), `"sms.vip"`) {
			w.Errorf("Run: %v, want an error that names sms.normal alone", err)
		}
		if status, _ := health(c); status != "unhealthy" {
			w.Errorf("%s after Run", status)
		}
	})
}

func TestLimitsOfLanesAreChecked(t *testing.T) {
	onNewest(t, func(w *fixture) {
		l := w.lanes()
		_, err := consumer.New(w.conn, l, succeed, consumer.Config{Concurrency: 2, Lanes: map[string]consumer.LaneLimits{
			"other": {}, "vip": {Concurrency: 3}, "bulk": {Rate: -1}}})
		for _, want := range []string{`"other", which is no lane of Lanes "sms"`, `Lanes["vip"].Concurrency is 3`, `Lanes["bulk"].Rate is -1`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				w.Errorf("New: %v, want also %q", err, want)
			}
		}
		_, err = consumer.New(w.conn, w.orders, succeed, consumer.Config{Lanes: map[string]consumer.LaneLimits{"vip": {}}})
		if err == nil || !strings.Contains(err.Error(), "not topology.Lanes") {
			w.Errorf("New with limits of lanes for a queue: %v", err)
		}
	})
}

func TestAPrefetchThatDefeatsPrioritiesIsSaidOnce(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		native := topology.WorkQueue{Name: "native", Type: topology.Classic, NativePriority: true}
		w.declare(native)
		for _, tt := range []struct {
			source topology.Source
			cfg    consumer.Config
			want   int
		}{
			{native, consumer.Config{Concurrency: 4, Prefetch: 5}, 1},
			{native, consumer.Config{Concurrency: 4, Prefetch: 4}, 0},
			{native, consumer.Config{Concurrency: 4}, 0},
			{w.orders, consumer.Config{Concurrency: 4, Prefetch: 5}, 0},
			{w.lanes(), consumer.Config{Concurrency: 4, Prefetch: 5}, 0},
		} {
			var said lines
			tt.cfg.Logger = said.logger()
			_, stop := w.startOn(tt.source, succeed, tt.cfg)
			time.Sleep(time.Minute)
			w.broker.Cut("")
			time.Sleep(time.Minute)
			w.stopped(stop)
			if n := len(said.with("level=WARN", "prefetch defeats the priorities")); n != tt.want {
				w.Errorf("%T with prefetch %d of %d: said %d times, want %d", tt.source, tt.cfg.Prefetch, tt.cfg.Concurrency, n, tt.want)
			}
		}
	})
}

// Its copies take up the slots of a lane, and no lower one goes ahead meanwhile.
func TestStrictLanesKeepTheirOrderWhileCopiesAreConfirmed(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		l := w.lanes()
		for _, lane := range []string{"bulk", "normal", "vip"} {
			w.fill(lane, 100)
		}
		w.broker.Slow(200 * time.Microsecond)
		var s starts
		handle := s.handler(3 * time.Millisecond)
		_, stop := w.startOn(l, func(ctx context.Context, d *consumer.Delivery) error {
			_ = handle(ctx, d)
			return consumer.DeadLetter(errBroken)
		}, consumer.Config{})
		time.Sleep(time.Minute)
		w.stopped(stop)
		if got := s.all(); len(got) != 300 || !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(b, a) }) {
			w.Errorf("%d handled, a lower lane before a higher one: %v", len(got), few(got))
		}
	})
}

// A broker that has become slower than the handlers has messages of a higher lane
// that it has not sent.
func TestStrictLanesKeepTheirOrderWhenTheBrokerBecomesSlow(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		l := w.lanes()
		for _, lane := range []string{"bulk", "normal", "vip"} {
			w.fill(lane, 100)
		}
		var s starts
		_, stop := w.startOn(l, s.handler(time.Millisecond), consumer.Config{})
		synctest.Wait()
		w.broker.Slow(150 * time.Millisecond)
		time.Sleep(10 * time.Minute)
		w.broker.Slow(0)
		w.stopped(stop)
		if got := s.all(); len(got) != 300 || !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(b, a) }) {
			w.Errorf("%d handled, a lower lane before a higher one: %v", len(got), few(got))
		}
	})
}

func TestStrictLanesKeepTheirOrderWhenConnectionsAreLost(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		const concurrency, cuts = 4, 10
		l := w.lanes()
		w.fill("bulk", 300)
		w.fill("vip", 3000)
		var s starts
		_, stop := w.startOn(l, s.handler(30*time.Millisecond), consumer.Config{Concurrency: concurrency})
		for range cuts {
			time.Sleep(1500 * time.Millisecond)
			w.broker.Cut("")
		}
		cut := time.Now()
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		vips := s.of("vip")
		if len(vips) < 3000 || vips[2999].Before(cut) {
			w.Fatalf("%d vips handled, all before the last cut: %t", len(vips), vips[len(vips)-1].Before(cut))
		}
		last := vips[2999]
		if before := slices.IndexFunc(s.of("bulk"), func(t time.Time) bool { return !t.Before(last) }); before > cuts*concurrency {
			w.Errorf("%d of bulk start while vips wait, want at most %d", before, cuts*concurrency)
		}
	})
}
