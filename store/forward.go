package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/hooks"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/producer"
)

// Publisher is the part of a [producer.Producer] that the Forwarder and Replay need. The
// producer needs no Fallback: an entry that cannot be published stays in the Store.
type Publisher interface {
	PublishAll(ctx context.Context, messages []producer.Message) ([]producer.Receipt, error)
}

// awaiter is a Publisher that knows when its broker is there, as a
// [producer.Producer] does.
type awaiter interface {
	AwaitConnection(ctx context.Context) error
}

// ForwardConfig is for [Store.NewForwarder]. Its zero value is usable.
type ForwardConfig struct {
	// Rate bounds the messages per second, to 0.001 or more. If zero, there is no bound.
	Rate float64

	// Batch is how many entries are leased and published together, 1 to 1000.
	// Defaults to 500.
	Batch int

	// Tries is how often an entry may be returned, nacked or refused before it
	// is [Parked]. The pauses between tries grow from 1 s to 5 min. A try that a
	// lost connection cuts off does not count. Defaults to 20, about an hour.
	Tries int

	// Lease is how long the entries that a process publishes are reserved for it. After
	// a crash they wait until the lease ends. Publishing may take half of that time. 2
	// s to 10 min; defaults to 1 min.
	Lease time.Duration

	// Poll is the interval at which the Forwarder reads the table while nothing is due.
	// Entries of other processes are found at the next reading, and so are entries of a
	// PutTx whose transaction lasts more than 5 s. The Forwarder sees all other entries of
	// this Store at once, those of PutTx about 40 ms after their commit. Defaults to
	// 200 ms.
	Poll time.Duration

	// DrainTimeout is how long a stop waits for the answers to messages that were
	// published. Entries that wait to be published are given back at once. Defaults to
	// 10 s.
	DrainTimeout time.Duration

	// Traces are sets of hooks. The hooks of one kind are called in the order of the
	// slice; a hook that panics is logged and keeps no other from being called. If nil,
	// they are those of the Telemetry of Config.Conn.
	Traces []ForwardTrace
}

// ForwardTrace has hooks that are called while entries are forwarded, from
// several goroutines. They must not block. Nil ones are not called.
type ForwardTrace struct {
	// Forwarded is called when a message is confirmed, before its entry is
	// deleted.
	Forwarded func(ctx context.Context, f Forwarded)

	// Failed is called when a message is not confirmed. Its entry stays in the table.
	Failed func(ctx context.Context, f ForwardFailure)
}

// Forwarded is an entry whose message is confirmed.
type Forwarded struct {
	Entry   Entry
	Receipt producer.Receipt
}

// ForwardFailure is an entry whose message is not confirmed.
type ForwardFailure struct {
	Entry Entry
	Err   error
	State State // of the entry from now on
}

// forwardHooks are the merged hooks of all Traces; nil: there is none.
type forwardHooks struct {
	forwarded func(context.Context, Forwarded)
	failed    func(context.Context, ForwardFailure)
}

func (c ForwardConfig) hooks(s *Store) forwardHooks {
	_, telemetry := transport.Inherited(s.cfg.Conn)
	if t, ok := telemetry.(interface{ Forward() ForwardTrace }); ok && c.Traces == nil {
		c.Traces = []ForwardTrace{t.Forward()}
	}
	set := hooks.Of(c.Traces, s.cfg.Logger, "store.ForwardTrace")
	return forwardHooks{
		forwarded: hooks.Two(set, "Forwarded", func(t ForwardTrace) func(context.Context, Forwarded) { return t.Forwarded }),
		failed:    hooks.Two(set, "Failed", func(t ForwardTrace) func(context.Context, ForwardFailure) { return t.Failed }),
	}
}

func (c ForwardConfig) withDefaults() ForwardConfig {
	c.Batch = cmp.Or(c.Batch, 500)
	c.Tries = cmp.Or(c.Tries, 20)
	c.Lease = cmp.Or(c.Lease, time.Minute)
	c.Poll = cmp.Or(c.Poll, 200*time.Millisecond)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	return c
}

func (c ForwardConfig) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("store: ForwardConfig."+format, args...))
		}
	}
	check(resend.IsRate(c.Rate), "Rate is %v, want 0 for no bound, or at least 0.001", c.Rate)
	check(c.Batch >= 1 && c.Batch <= 1000, "Batch is %d, want 1 to 1000", c.Batch)
	check(c.Tries >= 1, "Tries is %d, want 1 or more", c.Tries)
	check(c.Lease >= 2*time.Second && c.Lease <= longest, "Lease is %v, want 2s to %v", c.Lease, longest)
	check(c.Poll > 0, "Poll is %v, want more than 0", c.Poll)
	check(c.DrainTimeout > 0, "DrainTimeout is %v, want more than 0", c.DrainTimeout)
	return errors.Join(errs...)
}

// Forwarder publishes the entries of a Store in the background. It can be a part of a
// service.Service, and is safe for concurrent use.
type Forwarder struct {
	store     *Store
	publisher Publisher
	cfg       ForwardConfig
	hooks     forwardHooks
	health    forwardHealth
}

// NewForwarder returns a Forwarder, which does nothing until Run. It returns an error
// if cfg is faulty.
func (s *Store) NewForwarder(p Publisher, cfg ForwardConfig) (*Forwarder, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	if p == nil {
		errs = append(errs, errors.New("store: the Publisher is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	return &Forwarder{store: s, publisher: p, cfg: cfg, hooks: cfg.hooks(s), health: forwardHealth{since: s.now()}}, nil
}

// Run publishes entries that are [Ready] and due, oldest first, until ctx ends. Then it
// finishes the publishes in progress and returns nil. An entry is deleted once its message
// is confirmed. Run it for as long as the service runs, in one process or in several. It may
// be called again once it has returned, and not before.
//
// While the broker is away, or blocks publishers, Run waits for it and tries
// nothing. It knows from the Publisher's method AwaitConnection, which a
// [producer.Producer] has; a Publisher without it is tried with one entry at a
// time, with pauses. An address (exchange and key) that is missing, is full or does
// not answer holds up only its own entries. While the database is away Run
// waits.
//
// A dead letter that somebody has released goes to the work queue that gave it up and
// to no other queue, as [Store.Replay] does it. An entry that the broker has refused
// is published again on a channel of its own, because a refusal closes the channel
// with everything in flight on it. So are entries with a UserID until the broker has
// taken one with the same UserID. An entry whose message is faulty, or has a Delay
// that is not declared, is Parked at once.
//
// A message can arrive twice if the process or the connection dies after the broker has
// taken it and before its entry is deleted, or if the database is away at that moment
// for longer than the lease. On SQLite a power cut may also bring back entries that were
// deleted just before it, because Run does not wait for the disk when it deletes
// them while the service writes to the file. Both messages have the same message id, and
// x-rehop-replays counts how often the message left a store after it had been published
// before; messages of PutTx and PutAt come without it.
//
// Run returns an error when the Publisher is closed.
func (f *Forwarder) Run(ctx context.Context) (err error) {
	if !f.health.begins(f.store.now()) {
		return rehop.WithClass(errors.New("store: Run of the Forwarder is running already"), rehop.ClassBug)
	}
	defer func() { f.health.ends(f.store.now(), err) }()
	f.store.running.add(&f.health)
	defer f.store.running.remove(&f.health)
	run := &forwarder{
		store: f.store, publisher: f.publisher, cfg: f.cfg, hooks: f.hooks, health: &f.health,
		results:   make(chan []result, maxLeases),
		again:     repeats.New(f.store.cfg.Logger),
		addresses: map[group]*addressState{},
		trusted:   map[string]bool{},
		slots:     make(chan struct{}, maxLeases),
		pace:      resend.Pace{Rate: f.cfg.Rate},
	}
	return run.run(ctx)
}

// Health returns nil while Run forwards entries. Otherwise it returns a
// *[rehop.HealthError]:
//   - degraded while Run waits for the broker, while the entries to some addresses have
//     failed for more than 1 s, and while the database has been away for less than 15 s;
//     the error names an entry that failed, and says whether a line waits behind it;
//   - unhealthy while the database has been away for longer, and while Run is not running.
//
// Entries that wait for a person are no fault. If another process has parked, edited or
// deleted an entry since its last try, Health tells of the entry until 30 s after its next
// try was due. Health does not wait.
func (f *Forwarder) Health() error {
	if h := f.health.check(f.store.now()); h != nil {
		return h
	}
	return nil // not a nil *HealthError
}
