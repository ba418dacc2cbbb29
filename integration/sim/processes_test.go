package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

const (
	closing         = 30 * time.Second // an orderly end, where the broker does not answer
	closingProducer = 5*time.Second + time.Millisecond
	longestAfter    = 30 * time.Minute // of a RetryAfter
)

// sell runs a process that publishes, until all its messages are safe.
func (w *trial) sell(ctx context.Context, i int) {
	q := w.plan.producers[i]
	name := producerName(i)
	conn := w.open(name, 0, w.onConnect(q.declares, 0, func() int { return w.known(time.Since(w.began)) }))
	if conn == nil {
		return
	}
	defer w.within("Close of "+name+"'s Conn", closing, func() { _ = conn.Close() })
	s := &shop{trial: w, plan: q, name: name, conn: conn, forward: map[string]bool{}}
	s.till = s.open(s.config())
	s.forwarder = s.open(producer.Config{Traces: hooksOf(w.plan, w.metrics.producers()...)})
	sleep(ctx, time.Millisecond) // a fault of the beginning comes first
	for q.awaits && s.await(ctx) != nil {
		if !sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	open, closed := context.WithCancel(ctx)
	var shutdowns sync.WaitGroup
	shutdowns.Go(func() { s.shutDown(open) })
	var callers sync.WaitGroup
	callers.Go(func() { s.shelve(ctx) })
	for c := range q.callers {
		var own []messagePlan
		for j := c; j < len(q.messages); j += q.callers {
			own = append(own, q.messages[j])
		}
		callers.Go(func() { s.call(ctx, own) })
	}
	callers.Wait()
	closed()
	shutdowns.Wait()
	w.within("Close of "+name+"'s Producer", closingProducer, func() { _ = s.current().Close() })
	w.within("Close of "+name+"'s forwarder", closingProducer, func() { _ = s.forwarder.Close() })
}

// config returns that of a shop's Producer.
func (s *shop) config() producer.Config {
	cfg := producer.Config{Window: s.plan.window, Timeout: s.plan.timeout, FallbackAfter: s.plan.after, Traces: hooksOf(s.trial.plan, s.metrics.producers()...)}
	if !s.plan.fallback {
		return cfg
	}
	exchange, err := producer.NewExchangeSink(s.conn, "unsent")
	if err != nil {
		s.violate("%s: %v", s.name, err)
	}
	cfg.Fallback = []producer.Sink{&cabinet{exchange, s}, s}
	if s.plan.reliable {
		cfg.Fallback = append(cfg.Fallback, &backup{s})
	}
	return cfg
}

func (s *shop) open(cfg producer.Config) *till {
	p, err := producer.New(s.conn, cfg)
	if err != nil {
		s.violate("%s: %v", s.name, err)
	}
	return &till{Producer: p}
}

// shutDown shuts Producers down while they work, and opens others.
func (s *shop) shutDown(ctx context.Context) {
	plans := slices.SortedFunc(slices.Values(s.plan.shutdowns), func(a, b span) int { return int(a.from - b.from) })
	for _, plan := range plans {
		if !sleep(ctx, time.Until(s.began.Add(plan.from))) {
			return
		}
		old, fresh := s.current(), s.open(s.config())
		s.mu.Lock()
		s.till = fresh
		s.mu.Unlock()
		within, cancel := context.WithTimeout(context.Background(), plan.lasts)
		s.within(fmt.Sprintf("a Shutdown of %s with %v", s.name, plan.lasts), plan.lasts+time.Millisecond, func() { _ = old.Shutdown(within) })
		cancel()
		time.Sleep(time.Second)
		if n := old.calls.Load(); n > 0 {
			s.violate("%d calls of %s go on after Shutdown", n, s.name)
		}
	}
}

// till is a Producer, with the calls of it that have not returned.
type till struct {
	*producer.Producer
	calls atomic.Int64
}

func (s *shop) current() *till {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.till
}

// cabinet wraps a sink on the Producer's own Conn, as a program does that counts. It
// takes no message, and is not to be asked for one that can be published later.
type cabinet struct {
	producer.Sink
	shop *shop
}

func (c *cabinet) Unwrap() producer.Sink { return c.Sink }

func (c *cabinet) Put(_ context.Context, m producer.Message, cause error) error {
	switch why := producer.CauseOf(cause); why {
	case rehop.CauseUnreachable, rehop.CauseBlocked, rehop.CauseUnconfirmed:
		c.shop.violate("a sink on the Producer's own Conn is asked for message %s, %s", m.ID, why)
	}
	return errDrawer
}

// backup is a sink that takes every message.
type backup struct{ *shop }

func (b *backup) Name() string { return "backup" }

func (b *backup) Put(_ context.Context, m producer.Message, cause error) error {
	b.divert(m, cause)
	return nil
}

// divert notes what a sink was given.
func (s *shop) divert(m producer.Message, cause error) {
	s.mu.Lock()
	s.forward[m.ID] = true
	s.mu.Unlock()
	s.trial.mu.Lock()
	s.diverted = append(s.diverted, diversion{m.ID, time.Now(), s.plan.after, cause})
	s.trial.mu.Unlock()
}

// await waits for the connection, for too short a time to make it: an attempt to
// connect must outlive those who wait for it.
func (s *shop) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(3*s.latency, 50*time.Millisecond))
	defer cancel()
	return s.current().AwaitConnection(ctx)
}

// longestCall is how long a call of Publish may take.
func (q producerPlan) longestCall() time.Duration {
	limit := 30 * time.Second
	if q.timeout > 0 {
		limit = q.timeout
	}
	if q.fallback {
		limit *= 2
	}
	return limit + 2*time.Second
}

// shop publishes, and is the fallback of its own producer.
type shop struct {
	*trial
	plan      producerPlan
	name      string
	conn      *connection.Conn
	forwarder *till

	mu      sync.Mutex
	till    *till           // the present one
	forward map[string]bool // what the fallback has
	puts    int
	async   int // messages of PublishAsync, which has returned, without a receipt
}

func (s *shop) Name() string { return "drawer" }

func (s *shop) Put(_ context.Context, m producer.Message, cause error) error {
	s.mu.Lock()
	s.puts++
	stuck := s.puts%5 == 0
	s.mu.Unlock()
	if stuck {
		return errDrawer
	}
	s.divert(m, cause)
	return nil
}

func (s *shop) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forward[id]
}

// call publishes messages one after the other, each until it is safe.
func (s *shop) call(ctx context.Context, messages []messagePlan) {
	var callers sync.WaitGroup
	defer callers.Wait()
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if !sleep(ctx, time.Until(s.began.Add(m.at))) {
			return
		}
		batch := []string{s.next(m)}
		for m.how == together && len(batch) < 10 && i+1 < len(messages) {
			i++
			batch = append(batch, s.next(messages[i]))
		}
		if m.how == async {
			callers.Go(func() { s.until(ctx, m, batch) })
			continue
		}
		s.until(ctx, m, batch)
	}
}

func (s *shop) next(m messagePlan) string {
	id := s.acct.Next()
	s.trial.mu.Lock()
	defer s.trial.mu.Unlock()
	s.published[id], s.planned[id] = time.Now(), m
	key, queue := s.orderKey(s.acct.Number(id)), work
	if s.shards > 0 {
		queue = s.spread(0, s.known(time.Since(s.began))).Queue(key)
	}
	s.queues[id] = queue
	s.enqueue(queue, key, id)
	return id
}

// until publishes until all are safe.
func (s *shop) until(ctx context.Context, m messagePlan, batch []string) {
	for pause := 50 * time.Millisecond; len(batch) > 0; pause = min(2*pause, time.Minute) {
		batch = s.once(ctx, m, batch, s.current())
		if !sleep(ctx, pause) {
			return
		}
	}
}

// once publishes once, and returns what is not safe.
func (s *shop) once(ctx context.Context, m messagePlan, batch []string, p *till) (open []string) {
	limit := s.plan.longestCall()
	if p == s.forwarder {
		limit = max(limit, 32*time.Second)
	}
	if m.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.deadline)
		defer cancel()
		limit = min(limit, m.deadline+2*time.Second)
	}
	var messages []producer.Message
	for _, id := range batch {
		call := s.acct.Calling(id)
		messages = append(messages, s.message(id, call))
	}
	receipts := make([]producer.Receipt, len(batch))
	errs := make([]error, len(batch))
	p.calls.Add(1)
	s.within(fmt.Sprintf("publishing of %s with a deadline of %v", batch, m.deadline), limit*time.Duration(len(batch)), func() {
		switch m.how {
		case together:
			if s.plan.undeclared {
				messages = append(messages, producer.Message{RoutingKey: s.base(0), Delay: time.Hour})
			}
			list, err := p.PublishAll(ctx, messages)
			if s.plan.undeclared && list != nil && (list[len(batch)].Place != "" || list[len(batch)].Err == nil) {
				s.violate("a message whose Delay leads nowhere has the receipt %+v", list[len(batch)])
			}
			for i := range batch {
				if list == nil {
					errs[i] = err
					continue
				}
				if receipts[i] = list[i]; list[i].Place == "" {
					errs[i] = list[i].Err
				}
			}
		case async:
			done := make(chan struct{})
			p.PublishAsync(ctx, messages[0], func(r producer.Receipt, err error) {
				receipts[0], errs[0] = r, err
				close(done)
			})
			s.returned(1)
			<-done
			s.returned(-1)
		default:
			receipts[0], errs[0] = p.Publish(ctx, messages[0])
		}
	})
	p.calls.Add(-1)
	for i, id := range batch {
		err := errs[i]
		if err == nil && receipts[i].Place == producer.PlaceFallback {
			if !s.has(id) {
				s.violate("message %s was said to be in the fallback, which does not have it", id)
			}
			err = errForward
		}
		hurried := yieldsTakeTime && m.deadline > 0 && m.deadline < time.Second                                                         // a place where others go first may take all of it
		if err != nil && err != errForward && s.plan.reliable && !hurried && p != s.forwarder && rehop.ClassOf(err) != rehop.ClassBug { //nolint:errorlint // it is ours
			s.violate("message %s failed with a fallback at hand: %v", id, err)
		}
		unknown := errors.Is(err, producer.ErrUnconfirmed)
		s.acct.Called(id, receipts[i].MaybeDuplicate, unknown, err)
		if err != nil && !unknown {
			s.mu.Lock()
			s.denied[id]++
			s.mu.Unlock()
		}
		if err == errForward { //nolint:errorlint // it is ours
			s.send(id, m)
			continue
		}
		if err != nil {
			open = append(open, id)
		}
	}
	return open
}

// returned counts calls of PublishAsync that have returned before their receipt. There
// are never more than fit in the window, but for an instant.
func (s *shop) returned(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.async += n
	if n > 0 && s.plan.window > 0 && len(s.plan.shutdowns) == 0 && s.async > s.plan.window {
		time.AfterFunc(5*time.Millisecond, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.async > s.plan.window {
				s.violate("%s has %d messages of PublishAsync without a receipt, and a window of %d", s.name, s.async, s.plan.window)
			}
		})
	}
}

var errDrawer = errors.New("the drawer is stuck")

var errForward = errors.New("it is in the fallback")

// send forwards what the fallback has, until it is in its queue.
func (s *shop) send(id string, m messagePlan) {
	m.deadline, m.how = 0, alone
	for limit := s.began.Add(s.faultsEnd() + s.patience()); ; {
		if len(s.once(context.Background(), m, []string{id}, s.forwarder)) == 0 || time.Now().After(limit) {
			return
		}
		time.Sleep(5 * time.Second)
	}
}

func (s *shop) message(id string, call int) producer.Message {
	m := producer.Message{RoutingKey: s.queue(id), ID: id, OrderKey: s.orderKey(s.acct.Number(id)), Body: []byte(id)}
	if s.bound {
		m.Exchange, m.RoutingKey = "shop", "order.paid"
	}
	if call > 1 {
		m.Headers = account.Call(call)
	}
	return s.plan.also.on(m)
}

// serve runs a service that consumes, in one process after the other.
func (w *trial) serve(ctx context.Context, i int) {
	c := w.plan.consumers[i]
	for _, l := range c.lives {
		if !sleep(ctx, time.Until(w.began.Add(l.starts))) {
			return
		}
		life, stop := ctx, context.CancelFunc(func() {})
		if l.stops > 0 {
			life, stop = context.WithDeadline(ctx, w.began.Add(l.stops))
		}
		for w.workMortally(life, i, l) && sleep(life, time.Second) {
		}
		stop()
		if l.stops > 0 && w.handlers.deaf > 0 { // what such a handler has done comes again
			w.troubled("stop of "+consumerName(i), w.began.Add(l.stops), time.Now())
		}
	}
}

// process is one that consumes.
type process struct {
	name     string // of its service
	schedule int
	id       string // beside those that were started before
}

// work runs one process.
func (w *trial) work(ctx context.Context, i int, l life) {
	c, name, schedule, count := w.plan.consumers[i], consumerName(i), l.schedule, cmp.Or(l.count, w.shards)
	p := process{name: name, schedule: schedule, id: fmt.Sprintf("%s.%d", name, w.started.Add(1))}
	conn := w.open(name, l.ahead, w.onConnect(c.declares, schedule, func() int { return count }))
	if conn == nil {
		return
	}
	defer w.within("Close of "+name+"'s Conn", closing, func() { _ = conn.Close() })
	declare := func() {
		for topology.Declare(ctx, conn, w.specs(schedule, count)...) != nil && sleep(ctx, time.Second) {
		}
	}
	declare()
	cfg := consumer.Config{
		Concurrency: c.concurrency, KeyLimit: c.perKey, RetryInPlace: c.inPlace, Prefetch: c.prefetch, DrainTimeout: c.drain, HandlerTimeout: c.timeout, CopyTimeout: c.copies,
		Traces: hooksOf(w.plan, append(w.metrics.consumers(), w.trace(p), w.lateness(name))...),
	}
	source := w.source(schedule, count)
	h := func(ctx context.Context, d *consumer.Delivery) error { return w.handle(ctx, d, p) }
	for ctx.Err() == nil {
		one, err := consumer.New(conn, source, h, cfg)
		if c.batch > 0 {
			one, err = w.batches(conn, source, cfg, c, p)
		}
		if err != nil {
			w.violate("%s: %v", name, err)
			return
		}
		w.register(name, one)
		drain := c.drain
		if drain == 0 {
			drain = 20 * time.Second
		}
		err = w.runWithin(ctx, name, drain+5*time.Second+closing, one)
		w.register(name, nil)
		if ctx.Err() == nil && rehop.ClassOf(err) == rehop.ClassBug {
			w.violate("%s: Run: %v", name, err)
			return
		}
		if !sleep(ctx, time.Second) {
			return
		}
		declare() // as a process does that is started again
	}
}

// trace returns the hooks of the consumers of a process.
func (w *trial) trace(p process) consumer.Trace {
	t := w.acct.Trace()
	note := t.Settled
	t.Settled = func(ctx context.Context, s consumer.Settled) {
		d := s.Delivery
		w.mu.Lock()
		orphan := w.orphans[d]
		delete(w.orphans, d)
		w.mu.Unlock()
		if orphan && s.Disposition != consumer.DispositionRequeued {
			w.violate("message %s was said to be in place %v, and its session was lost before its handler returned", d.ID, s.Disposition)
		}
		if d.Redelivered && s.Disposition == consumer.DispositionWait {
			w.acct.Again(d.ID, account.RunOf(d, p.id))
		}
		note(ctx, s)
	}
	return t
}

// runWithin runs a consumer, and notes a stop that takes too long.
func (w *trial) runWithin(ctx context.Context, name string, limit time.Duration, c *consumer.Consumer) error {
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		late := time.NewTimer(limit)
		defer late.Stop()
		select {
		case <-over:
		case <-late.C:
			w.violate("%s: Run has not returned %v after its stop", name, limit)
		}
	})
	err := c.Run(ctx)
	close(over)
	watching.Wait()
	return err
}

func (w *trial) register(name string, c *consumer.Consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.paused, name)
	if c == nil {
		delete(w.consumers, name)
		return
	}
	w.consumers[name] = c
}

var errHandler = errors.New("the printer is out of paper")

// handle is the handler of all processes. What it does follows from the seed, the
// message and the attempt.
func (w *trial) handle(ctx context.Context, d *consumer.Delivery, p process) error {
	w.inTime(ctx, d, p.name)
	w.inPlace(d, p.name)
	return w.noted(ctx, d, p, func(m maker, runs int) error {
		if w.isProbe(d, p.name) {
			return nil
		}
		if w.isCrasher(d.ID) {
			return w.crash(ctx, p.name, m.between(time.Millisecond, time.Second))
		}
		return w.do(ctx, m, runs)
	})
}

// stopGrace is how long the channel of a session lives after its handlers were told to end.
const stopGrace = 5 * time.Second

// noted notes a run of a handler for one message.
func (w *trial) noted(ctx context.Context, d *consumer.Delivery, p process, do func(m maker, runs int) error) (err error) {
	end, leave := w.acct.Begin(d.ID, account.RunOf(d, p.id)), w.take(ctx, d, p.name)
	w.mu.Lock()
	m := w.planned[d.ID]
	w.runs[d.ID]++
	runs := w.runs[d.ID]
	w.mu.Unlock()
	w.keepsOrder(d, m.n)
	ended := w.inTurn(ctx, d, p.name)
	var over atomic.Pointer[time.Time] // when ctx ended
	defer context.AfterFunc(ctx, func() { now := time.Now(); over.Store(&now) })()
	m1 := maker{rand.New(rand.NewPCG(w.seed, uint64(m.n)<<16|uint64(d.Attempt)<<8|uint64(min(runs, 255))))}
	defer func() {
		v := recover()
		if v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
		if consumer.OutcomeOf(err).Action == consumer.ActionDeadLetter {
			w.mu.Lock()
			w.permanent[d.ID] = true
			w.mu.Unlock()
		}
		due, failed := account.Due(w.schedules[p.schedule], d.Attempt, err, time.Now())
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, consumer.ErrHandlerTimeout) && !errors.Is(cause, consumer.ErrConsumerTimeout) {
			due = time.Time{} // a lost session and a stop spend no attempt
		}
		// A session that the consumer ends itself has no reason beside, or that of a shard. Its handlers are told when DrainTimeout is over, as where
		// a shard goes to another process, or when its queue is deleted. Its channel lives a while longer: the broker hears an ack.
		cause, told := context.Cause(ctx), over.Load()                                                                                            // nil: in this moment
		itself := cause == connection.ErrSessionLost || cause != nil && strings.Contains(cause.Error(), "another process is to handle the shard") //nolint:errorlint // what wraps it has a reason
		alive := itself && (told == nil || time.Since(*told) < stopGrace)
		if errors.Is(cause, connection.ErrSessionLost) && !alive {
			w.mu.Lock()
			w.orphans[d] = true
			w.mu.Unlock()
		}
		end(failed, due)
		ended(err)
		leave()
		w.putOff(ctx, d, err)
		if v != nil {
			panic(v)
		}
	}()
	if string(d.Body) != d.ID {
		w.violate("message %s has the body %q", d.ID, d.Body)
	}
	return do(m1, runs)
}

// do does what the seed says.
func (w *trial) do(ctx context.Context, m1 maker, runs int) error {
	h := w.plan.handlers
	chance := func(of int) bool { return m1.IntN(1000) < of }
	if chance(h.slow) && !sleep(ctx, time.Duration(m1.Int64N(int64(h.slowness)))) {
		return context.Cause(ctx)
	}
	if chance(h.deaf) {
		time.Sleep(time.Duration(m1.Int64N(int64(h.slowness))))
	}
	runtime.Gosched()
	switch {
	case w.plan.away.covers(time.Since(w.began)):
		return consumer.Hold(errHandler)
	case chance(h.requeue) && runs < 5:
		return consumer.Hold(errHandler)
	case chance(h.permanent):
		return consumer.DeadLetter(errHandler)
	case chance(h.snooze) && runs <= mostSnoozes:
		return consumer.Snooze(m1.between(time.Millisecond, longestSnooze), "not its turn")
	case chance(h.discard):
		return consumer.Discard("not wanted")
	case chance(h.later):
		return consumer.RetryAfter(m1.between(time.Millisecond, longestAfter), errHandler)
	case chance(h.panics):
		panic(pick[any](m1, errHandler, "no error"))
	case chance(h.fail):
		return errHandler
	}
	return nil
}
