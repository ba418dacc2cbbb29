package sim

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// trial is one run of a plan, in a bubble.
type trial struct {
	plan
	broker *rehoptest.Broker
	acct   *account.Account
	began  time.Time

	metrics *metrics

	started    atomic.Int64 // processes that consume
	mu         sync.Mutex
	violations []string
	networks   map[string]*network
	mortals    map[string]context.CancelFunc // ends a process that consumes
	consumers  map[string]*consumer.Consumer // that run
	published  map[string]time.Time          // first, by id
	denied     map[string]int                // calls of Publish that said for certain that the message was not sent
	planned    map[string]messagePlan        // by id
	runs       map[string]int                // of handlers, by id
	permanent  map[string]bool               // a handler has returned DeadLetter
	troubles   []trouble
	diverted   []diversion
	away       []absence                   // of parts of the topology
	orphans    map[*consumer.Delivery]bool // their channels were lost before their handlers returned
	inHand     map[string]hands            // of messages with a key, by process and key
	latest     map[string]int              // message of a key that was handled, in the order of publishing
	begun      map[*byte]bool              // deliveries, by their bodies
	own        map[string]*byte            // the delivery of a key that was handled last, by process
	fetches    map[string]*fetching        // by process and queue
	cleared    map[string]bool             // notes that were on a shelf, by id
	onShelves  int                         // notes for certain
	ended      map[string]int              // how often tickets have ended, by id
	snoozes    map[string][]snooze         // by id
	paused     map[string]time.Time        // since when, by process
	queues     map[string]string           // where messages go, by id
	turns      map[string]*turns           // by queue and key
	slowly     map[string]bool             // queues of which a process has fetched one message at a time
	probes     map[string]bool             // by id
	probed     map[string][]string         // processes that have handled probes, by queue
	standing   map[kind]int                // faults that exclude each other
	slowness   []time.Duration
}

// trouble is a time in which messages may be doubled.
type trouble struct {
	what     string
	from, to time.Time
}

// absence is the time in which a part of the topology was missing.
type absence struct {
	fault
	from, to time.Time
}

// diversion is a message that a fallback was given.
type diversion struct {
	id    string
	at    time.Time
	after time.Duration // FallbackAfter
	cause error
}

// aftermath is how long after a fault its effects may come.
const aftermath = 20 * time.Minute

func newTrial(p plan) *trial {
	acct := account.New(work, p.longest(), p.messages()).Exact()
	if slices.ContainsFunc(p.consumers, func(c consumerPlan) bool { return c.inPlace }) {
		acct.InPlace()
	}
	if p.nacks() {
		acct.Nacks()
	}
	return &trial{
		plan: p, began: time.Now(), metrics: newMetrics(p.measured), acct: acct,
		networks: map[string]*network{}, mortals: map[string]context.CancelFunc{}, consumers: map[string]*consumer.Consumer{}, published: map[string]time.Time{}, denied: map[string]int{},
		planned: map[string]messagePlan{}, runs: map[string]int{}, permanent: map[string]bool{}, orphans: map[*consumer.Delivery]bool{}, inHand: map[string]hands{}, latest: map[string]int{}, begun: map[*byte]bool{}, own: map[string]*byte{}, fetches: map[string]*fetching{}, cleared: map[string]bool{}, ended: map[string]int{}, snoozes: map[string][]snooze{}, paused: map[string]time.Time{}, queues: map[string]string{}, turns: map[string]*turns{}, slowly: map[string]bool{}, probes: map[string]bool{}, probed: map[string][]string{}, standing: map[kind]int{},
	}
}

// result is what came out of a run.
type result struct {
	violations []string
	simulated  time.Duration
	counts     account.Counts
	faults     int
	doubled    int
	stories    string // of the messages that the violations name
}

func (r result) text() string { return "violation: " + strings.Join(r.violations, "\nviolation: ") }

var ids = regexp.MustCompile(work + `/\d+`)

// tell tells the stories of some messages.
func (w *trial) tell(violations []string) string {
	named := ids.FindAllString(strings.Join(violations, "\n"), -1)
	slices.Sort(named)
	var s strings.Builder
	for i, id := range slices.Compact(named) {
		if i == 3 {
			break
		}
		fmt.Fprintf(&s, "the story of %s:\n%s", id, w.broker.Story(id))
	}
	return s.String()
}

// run runs the plan to its end.
func (w *trial) run() (r result) {
	var err error
	if w.broker, err = rehoptest.NewBroker(rehoptest.Config{Version: w.version}); err != nil {
		w.violate("the broker: %v", err)
		return w.result()
	}
	w.broker.Slow(w.latency)
	w.slowness = []time.Duration{w.latency}

	operator := w.open("operator", 0, nil)
	if operator == nil {
		return w.result()
	}
	w.declare(operator)
	var stopped sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	for i := range w.plan.consumers {
		stopped.Go(func() { w.serve(ctx, i) })
	}
	var shops sync.WaitGroup
	for i := range w.plan.producers {
		shops.Go(func() { w.sell(ctx, i) })
	}
	stopped.Go(func() { w.watch(ctx) })
	stopped.Go(func() { w.openDesk(ctx) })
	stopped.Go(func() { w.othersGoOn(ctx) })
	var faults sync.WaitGroup
	for _, f := range w.plan.faults {
		faults.Go(func() { w.breakLater(ctx, f, operator) })
	}
	sleep(ctx, w.faultsEnd())
	faults.Wait()
	w.comeToBalance()
	w.comeToRest()
	end()
	shops.Wait()
	stopped.Wait()
	w.within("Close of the operator's Conn", closing, func() { _ = operator.Close() })
	w.judge()
	w.judgeTickets()
	w.judgeMetrics()
	_ = w.broker.Close()
	time.Sleep(time.Hour) // what is left behind ends, or is noticed by the bubble
	return w.result()
}

func (w *trial) result() result {
	w.mu.Lock()
	violations := slices.Clone(w.violations)
	w.mu.Unlock()
	return result{
		violations: violations, stories: w.tell(violations), simulated: time.Since(w.began), counts: w.acct.Counts(),
		faults: len(w.plan.faults), doubled: w.acct.Doubled().Messages,
	}
}

// violate notes what must not be.
func (w *trial) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.violations) < 20 {
		w.violations = append(w.violations, fmt.Sprintf("%v: ", time.Since(w.began))+fmt.Sprintf(format, args...))
	}
}

// within notes what takes longer than it may.
func (w *trial) within(what string, limit time.Duration, do func()) {
	late := time.AfterFunc(limit, func() { w.violate("%s has taken more than %v", what, limit) })
	do()
	late.Stop()
}

// troubled notes a time of trouble.
func (w *trial) troubled(what string, from, to time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.troubles = append(w.troubles, trouble{what, from, to})
}

// inTrouble tells whether there was trouble between two times, or so long before them.
func (w *trial) inTrouble(from, to time.Time, after time.Duration) bool {
	return slices.ContainsFunc(w.troubles, func(t trouble) bool { return !t.from.After(to) && from.Before(t.to.Add(after)) })
}

func (w *trial) network(name string) *network {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.networks[name] == nil {
		w.networks[name] = newNetwork(w.handsOver(name, w.broker.Dial))
		if w.shards > 0 && w.single {
			w.networks[name].most = 3 * stormDials
		}
	}
	return w.networks[name]
}

// open opens the Conn of a process, lazily. Its clock is ahead of others.
func (w *trial) open(name string, ahead time.Duration, onConnect func(ctx context.Context, conn *connection.Conn) error) *connection.Conn {
	conn, err := connection.Open(context.Background(), connection.Config{
		URLs: []string{"amqp://guest:guest@broker"}, Name: name, Dial: dial(w.network(name).Dial).ahead(ahead), Lazy: true,
		Heartbeat: w.heartbeat, OnConnect: onConnect, Traces: hooksOf(w.plan, w.metrics.connections(name)...),
	})
	if err != nil {
		w.violate("Open of %s: %v", name, err)
		return nil
	}
	return conn
}

// onConnect declares the shards that a process knows, if it does.
func (w *trial) onConnect(declares bool, schedule int, count func() int) func(ctx context.Context, conn *connection.Conn) error {
	if !declares {
		return nil
	}
	return func(ctx context.Context, conn *connection.Conn) error {
		return topology.Declare(ctx, conn, w.specs(schedule, count())...)
	}
}

// declare declares what all processes need, as an operator who tries until it
// works.
func (w *trial) declare(conn *connection.Conn) {
	for schedule := range w.schedules {
		for pause := time.Second; ; pause = min(2*pause, 10*time.Second) {
			err := w.declareOnce(conn, schedule)
			if err == nil {
				break
			}
			if time.Since(w.began) > w.faultsEnd()+w.patience() {
				w.violate("the topology cannot be declared: %v", err)
				return
			}
			time.Sleep(pause)
		}
	}
}

func (w *trial) declareOnce(conn *connection.Conn, schedule int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return topology.Declare(ctx, conn, w.specs(schedule, w.known(0))...)
}

// sleep reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// comeToRest waits until nothing moves, for as long as the plan allows, and what is
// in the queues: callers with short deadlines publish a message again and again.
func (w *trial) comeToRest() {
	patience := w.patience() + w.handling(w.queued())
	every := max(5*time.Second, patience/200)
	calm := 0
	for limit := time.Now().Add(patience); ; {
		time.Sleep(every)
		w.takeLetters()
		moving := w.moving()
		if moving == "" {
			if calm++; calm > 3 {
				return
			}
			continue
		}
		calm = 0
		if time.Now().After(limit) {
			w.violate("not at rest %v after the faults: %s", patience, moving)
			return
		}
	}
}

func (w *trial) queued() (messages int) {
	for _, name := range w.broker.Queues() {
		q, _ := w.broker.Queue(name)
		messages += len(q.Ready) + len(q.Unacked)
	}
	return messages
}

// takeLetters takes the letters out of the dead-letter queue.
func (w *trial) takeLetters() {
	queue := letters
	for _, m := range w.broker.Drain(queue) {
		w.ends(queue, m)
	}
	w.takeTickets()
	w.clear()
}

// ends notes a message that was taken out of a queue.
func (w *trial) ends(queue string, m rehoptest.Message) {
	h, err := xdeath.Parse(m.Headers)
	switch {
	case err != nil:
		w.violate("message %s in %s: %v", m.MessageId, queue, err)
	case queue == letters:
		h = h.Letter()
		w.acct.Letter(m.MessageId, h.Failure.Cause, h.FinalAttempts, account.CallOf(m.Headers), false)
	default:
		of, waits := w.ofShard(queue)
		w.acct.Found(m.MessageId, work+waits, h.Attempt(of, true)-1, account.CallOf(m.Headers), false)
	}
}

// moving says what still moves, or is in a queue.
func (w *trial) moving() string {
	var s []string
	c := w.acct.Counts()
	for name, n := range map[string]int{
		"messages that are safe and have not ended": c.Open, "calls of Publish": c.InFlight, "handlers": c.Running, "unsettled deliveries": c.Unsettled,
		"messages not published": w.messages() + w.probesSent() - w.safe(), "notes not on a shelf": w.notes() - w.shelved(), "tickets that have not ended": w.openTickets(),
	} {
		if n != 0 {
			s = append(s, fmt.Sprintf("%d %s", n, name))
		}
	}
	for _, name := range w.broker.Queues() {
		q, _ := w.broker.Queue(name)
		if n := len(q.Ready) + len(q.Unacked) + len(q.Delayed) + len(q.Dead); n > 0 {
			s = append(s, fmt.Sprintf("%d messages in %s (%d ready, %d unacked, %d delayed, %d dead letters)", n, name, len(q.Ready), len(q.Unacked), len(q.Delayed), len(q.Dead)))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, c := range w.consumers {
		if err := c.Health(); err != nil {
			s = append(s, fmt.Sprintf("%s is unhealthy: %v", name, err))
		}
	}
	slices.Sort(s)
	return strings.Join(s, "; ")
}

func (w *trial) safe() int { return w.acct.Counts().Safe }
