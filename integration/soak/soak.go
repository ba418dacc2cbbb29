package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// soak is one run.
type soak struct {
	settings
	out      io.Writer
	broker   *broker.Broker
	proxy    *faultproxy.Proxy
	observer *connection.Conn // past the proxy; it declares, and looks at the end
	logger   *slog.Logger
	work     topology.WorkQueue
	plan     topology.Plan
	account  *account.Account
	outages  *outages
	sessions sessions
	load     *load

	mu     sync.Mutex
	errs   []error
	failed chan struct{} // closed with the first of them
}

// run soaks once. What was found out before an error is printed all the same.
func run(ctx context.Context, s settings, out io.Writer) (report, error) {
	b, err := broker.Start(ctx, broker.Options{Version: s.version, Name: "rehop-soak"})
	if err != nil {
		return report{}, err
	}
	rep, err := runOn(ctx, b, s, out)
	return rep, errors.Join(err, b.Close(context.Background()))
}

func runOn(ctx context.Context, b *broker.Broker, s settings, out io.Writer) (rep report, err error) {
	k := &soak{settings: s, out: out, broker: b, failed: make(chan struct{})}
	if k.logger, err = openLog(s.log); err != nil {
		return rep, err
	}
	k.work = topology.WorkQueue{
		Name: "rehop-soak-" + rand.Text(), Type: topology.Quorum,
		Waits: delay.Schedule{500 * time.Millisecond, time.Second},
	}
	// There from the start, lest its growth look like a leak.
	k.account = account.New(k.work.Name, k.work.Waits, dueAfter(s.duration+catchUp, s.rate))

	start := usageNow()
	through, err := k.setUp(ctx)
	if err != nil {
		return rep, err
	}
	faults := schedule(s.seed, s.duration, s.faultEvery, k.cards())
	fmt.Fprintf(out, "RabbitMQ %s, %s, %v at %d msg/s, seed %d: %d faults drawn\n",
		b.Version(), k.plan.Engines[0].Engine, s.duration, s.rate, s.seed, len(faults))
	printSchedule(out, faults)

	took, err := k.workUnder(ctx, through, faults)
	k.fail(err)
	k.fail(k.tearDown())
	rep = k.report(took)
	rep.start, rep.end = start, usageAfter(start)
	rep.print(out)
	return rep, errors.Join(append(k.errs, rep.verdict())...)
}

// cards are the faults that this broker can be subjected to.
func (k *soak) cards() []card {
	if os.Getenv("AMQP_URL") != "" {
		fmt.Fprintln(k.out, "NOT RUN: faults of the broker: AMQP_URL is set, and that one is not ours to break")
		return onConnections
	}
	return slices.Concat(onConnections, onBroker)
}

// workUnder publishes and consumes while faults come and go, and returns for
// how long. When it returns, all that was published has come to rest.
func (k *soak) workUnder(ctx context.Context, through string, faults []fault) (took time.Duration, err error) {
	conn, err := connection.Open(ctx, connection.Config{
		URLs: []string{through}, Name: "rehop soak", Heartbeat: heartbeat,
		DialTimeout: 2 * time.Second, // a dial into a black hole is a lost one
		Logger:      k.logger,
	})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	publisher, err := producer.New(conn, producer.Config{Timeout: publishTimeout, Logger: k.logger})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	k.outages = newOutages(began)
	stopConsuming := k.consume(conn, k.work, k.account.Handler("", k.handle), k.account.Trace())
	defer stopConsuming()
	k.load = startLoad(publisher, k.work.Name, k.rate, k.account, k.outages)
	stopTelling := k.tell(began)
	defer stopTelling()

	breaking, stopBreaking := context.WithTimeout(ctx, k.duration)
	defer stopBreaking()
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		if k.flows(breaking) {
			k.fail(victim{k.proxy, k.broker}.breakAll(breaking, faults, k.faultEvery, k.outages, func() int { return k.account.Numbered() + 1 }))
		}
	}()
	select {
	case <-breaking.Done():
	case <-k.failed:
		stopBreaking()
	}
	k.load.end()
	k.outages.end(time.Now())
	took = time.Since(began)
	<-broken // and everything is lifted
	k.load.stop(time.Minute)
	err = publisher.Close()

	stopReading := k.consume(k.observer, k.work.DeadLetterQueue(), k.read, consumer.Trace{})
	err = errors.Join(err, k.settle(context.WithoutCancel(ctx)))
	stopReading()
	stopConsuming()
	return took, errors.Join(err, k.collect(context.WithoutCancel(ctx)))
}

// flows waits for the first message that is handled.
func (k *soak) flows(ctx context.Context) bool {
	for pause.For(ctx, 20*time.Millisecond) {
		if k.account.Counts().Handled > 0 {
			return true
		}
	}
	return false
}

// fail notes an error, after which the run ends early.
func (k *soak) fail(err error) {
	if err == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, err)
	if len(k.errs) == 1 {
		close(k.failed)
	}
}
