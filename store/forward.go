package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/producer"
)

// Publisher is what Forward and Replay need of a [producer.Producer]. The producer
// needs no Fallback: a letter that cannot be published stays in the Store.
type Publisher interface {
	PublishAll(ctx context.Context, messages []producer.Message) ([]producer.Receipt, error)
}

// awaiter is a Publisher that knows when its broker is there, as a
// [producer.Producer] does.
type awaiter interface {
	AwaitConnection(ctx context.Context) error
}

// ForwardConfig is for [Store.Forward]. Its zero value is usable.
type ForwardConfig struct {
	// Rate bounds the messages per second of this call. If zero, there is no
	// bound.
	Rate int

	// Batch is how many letters are leased and published together, 1 to 1000.
	// Defaults to 500.
	Batch int

	// Tries is how often a letter may be returned, nacked or refused before it
	// is [Parked]. The pauses between tries grow from 1 s to 5 min. A try that a
	// lost connection cuts off does not count. Defaults to 20, about an hour.
	Tries int

	// KeepOrder publishes the letters of each exchange and key in the order of
	// storing, each after the confirm of the one before. So the letters of one
	// exchange and key are as fast as the broker's confirms, one by one. A letter
	// that fails holds up those behind it until it is parked. Letters with a Due join
	// the order when they are due. Messages that are published directly overtake
	// letters, unless Config.KeepOrder of the Store is set.
	KeepOrder bool

	// Lease is how long a process has the letters that it publishes for itself.
	// After a crash they wait until the lease ends. Publishing may take half of
	// it. 2 s to 10 min; defaults to 1 min.
	Lease time.Duration

	// Poll is how often the table is read while nothing is due. Letters of PutTx
	// and of other processes wait for it. Defaults to 200 ms.
	Poll time.Duration

	// DrainTimeout is how long a stop waits for the answers to what was
	// published. What waits to be published is given back at once. Defaults to
	// 10 s.
	DrainTimeout time.Duration

	Trace ForwardTrace
}

// ForwardTrace has hooks that are called while letters are forwarded, from
// several goroutines. They must not block. Nil ones are not called.
type ForwardTrace struct {
	// Forwarded is called when a message is confirmed, before its letter is
	// deleted.
	Forwarded func(Letter, producer.Receipt)

	// Failed is called when a message is not confirmed. Its letter stays, in
	// this state.
	Failed func(l Letter, err error, state State)
}

func (c ForwardConfig) withDefaults() ForwardConfig {
	c.Batch = cmp.Or(c.Batch, 500)
	c.Tries = cmp.Or(c.Tries, 20)
	c.Lease = cmp.Or(c.Lease, time.Minute)
	c.Poll = cmp.Or(c.Poll, 200*time.Millisecond)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	if c.Trace.Forwarded == nil {
		c.Trace.Forwarded = func(Letter, producer.Receipt) {}
	}
	if c.Trace.Failed == nil {
		c.Trace.Failed = func(Letter, error, State) {}
	}
	return c
}

func (c ForwardConfig) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("store: ForwardConfig."+format, args...))
		}
	}
	check(c.Rate >= 0, "Rate is %d, want 0 or more", c.Rate)
	check(c.Batch >= 1 && c.Batch <= 1000, "Batch is %d, want 1 to 1000", c.Batch)
	check(c.Tries >= 1, "Tries is %d, want 1 or more", c.Tries)
	check(c.Lease >= 2*time.Second && c.Lease <= longest, "Lease is %v, want 2s to %v", c.Lease, longest)
	check(c.Poll > 0, "Poll is %v, want more than 0", c.Poll)
	check(c.DrainTimeout > 0, "DrainTimeout is %v, want more than 0", c.DrainTimeout)
	return errors.Join(errs...)
}

// Forward publishes letters that are [Ready] and due, oldest first, until ctx ends.
// Then it finishes what it is publishing and returns nil. A letter is deleted once
// its message is confirmed. Run Forward for as long as the service runs, in one
// process or in several.
//
// While the broker is away, or blocks publishers, Forward waits for it and tries
// nothing. It knows from the Publisher's method AwaitConnection, which a
// [producer.Producer] has; a Publisher without it is tried with one letter at a
// time, with pauses. A target (exchange and key) that is missing, is full or does
// not answer holds up only its own letters. While the database is away Forward
// waits.
//
// A message can arrive twice if the process or the connection dies after the broker
// has taken it and before its letter is deleted, or if the database is away at that
// moment for longer than the lease. Both messages have the same message id, and
// x-rehop-replays counts how often the message left a store.
//
// It returns an error for a faulty config, and when the Publisher is closed.
func (s *Store) Forward(ctx context.Context, p Publisher, cfg ForwardConfig) error {
	brief := cfg.Trace.Forwarded == nil && cfg.Trace.Failed == nil
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	if p == nil {
		errs = append(errs, errors.New("store: the Publisher is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return connection.WithClass(err, connection.Bug)
	}
	f := &forwarder{
		store: s, publisher: p, cfg: cfg, brief: brief,
		endings: make(chan []ending, maxLeases),
		again:   repeats.New(s.cfg.Logger),
		targets: map[target]*targetState{},
		slots:   make(chan struct{}, maxLeases),
		pace:    pace{rate: cfg.Rate},
	}
	return f.run(ctx)
}
