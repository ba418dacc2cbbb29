package rehoptest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/rehoptest/internal/model"
	"github.com/rehop/rehop/rehoptest/internal/pipe"
)

// Config says which broker is imitated. Its zero value is RabbitMQ 4.3 with the
// user guest and the virtual host /.
type Config struct {
	// Version is 3.10, 4.0 or 4.3; 4.3 if empty.
	Version string

	// Users are passwords by name; guest with the password guest if nil.
	Users map[string]string

	// External is the user as which a client of the mechanism EXTERNAL is logged
	// in. If empty, the mechanism is not offered.
	External string

	// Vhosts are the virtual hosts; / if nil.
	Vhosts []string

	// MaxMessageSize bounds a body in bytes. If 0, it is the default of the
	// version: 128 MiB before 4.0, 16 MiB since.
	MaxMessageSize int

	// Heartbeat is the interval that the broker asks for; 60 s if 0.
	Heartbeat time.Duration

	// ConsumerTimeout is how long a message may be unsettled; 30 min if 0.
	ConsumerTimeout time.Duration

	// DeadLetterTimeout is how long an at-least-once queue waits before it sends
	// a dead letter again that was not confirmed; 3 min if 0.
	DeadLetterTimeout time.Duration
}

// Broker is an AMQP 0-9-1 broker in the process. Its methods may be called
// concurrently.
type Broker struct {
	cfg     Config
	version model.Version
	release string

	mu        sync.Mutex // guards all below; never held while waiting
	vhosts    map[string]*model.Broker
	conns     map[*conn]struct{}
	listeners map[net.Listener]struct{}
	stopped   bool // by Kill or Stop
	closed    bool
	blocked   string // why publishers are blocked; empty: they are not
	unblocked chan struct{}
	dials     int
	killed    bool          // the last end was a Kill
	stalled   chan struct{} // closed by Resume; nil: not stalled
	latency   atomic.Int64  // of all that is sent, in nanoseconds

	wake chan struct{} // the next time may have changed
	done chan struct{}
	wg   sync.WaitGroup
}

// releases are the versions that are imitated, with the name that they give
// themselves.
var releases = map[string]struct {
	model.Version
	release string
}{
	"3.10": {model.Version{Major: 3, Minor: 10}, "3.10.8"},
	"4.0":  {model.Version{Major: 4, Minor: 0}, "4.0.5"},
	"4.3":  {model.Version{Major: 4, Minor: 3}, "4.3.6"},
}

// NewBroker starts a broker, which runs until Close. It returns an error that
// names every fault of the Config.
func NewBroker(cfg Config) (*Broker, error) {
	cfg.Version = cmp.Or(cfg.Version, "4.3")
	if cfg.Users == nil {
		cfg.Users = map[string]string{"guest": "guest"}
	}
	if cfg.Vhosts == nil {
		cfg.Vhosts = []string{"/"}
	}
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, time.Minute)
	cfg.ConsumerTimeout = cmp.Or(cfg.ConsumerTimeout, 30*time.Minute)
	cfg.DeadLetterTimeout = cmp.Or(cfg.DeadLetterTimeout, 3*time.Minute)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := releases[cfg.Version]
	if cfg.MaxMessageSize == 0 {
		if cfg.MaxMessageSize = 16 << 20; !r.AtLeast(4, 0) {
			cfg.MaxMessageSize = 128 << 20
		}
	}
	b := &Broker{
		cfg: cfg, version: r.Version, release: r.release,
		vhosts: map[string]*model.Broker{}, conns: map[*conn]struct{}{}, listeners: map[net.Listener]struct{}{},
		unblocked: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	for _, vhost := range cfg.Vhosts {
		b.vhosts[vhost] = model.New(model.Options{
			Version: r.Version, Vhost: vhost, MaxMessage: cfg.MaxMessageSize, ConsumerTimeout: cfg.ConsumerTimeout,
			DeadLetterTimeout: cfg.DeadLetterTimeout, Seed: func() string { return rand.Text()[:22] },
		})
	}
	b.wg.Go(b.clock)
	return b, nil
}

func (c Config) validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf("rehoptest: "+format, args...)) }
	if _, ok := releases[c.Version]; !ok {
		refuse("Version is %q, want one of %v", c.Version, slices.Sorted(maps.Keys(releases)))
	}
	if len(c.Vhosts) == 0 {
		refuse("Vhosts is empty, want at least one")
	}
	if c.MaxMessageSize < 0 {
		refuse("MaxMessageSize is %d, want more than 0 (or 0 for the default)", c.MaxMessageSize)
	}
	if h := c.Heartbeat; h < time.Second || h%time.Second != 0 || h > 65535*time.Second {
		refuse("Heartbeat is %v, want whole seconds from 1s to %v", h, 65535*time.Second)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"ConsumerTimeout", c.ConsumerTimeout}, {"DeadLetterTimeout", c.DeadLetterTimeout}} {
		if d.value < 0 {
			refuse("%s is %v, want more than 0 (or 0 for the default)", d.field, d.value)
		}
	}
	return errors.Join(errs...)
}

// errRefused is the error of a dialler where nothing listens.
var errRefused = errors.New("connection refused")

// Dial connects to the broker in memory, for any address: it is meant for
// the Dial of a connection.Config. It fails while the broker is stopped.
func (b *Broker) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.stopped {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: errRefused}
	}
	b.dials++
	client, server := pipe.New(addr(fmt.Sprintf("rehoptest:%d", b.dials)), addr(address))
	b.serve(server)
	return client, nil
}

// addr is an address in memory.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// Close cuts all connections, and returns when all goroutines of the broker have
// ended.
func (b *Broker) Close() error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.done)
		for c := range b.conns {
			c.cut()
		}
		for l := range b.listeners {
			_ = l.Close()
		}
	}
	b.mu.Unlock()
	b.wg.Wait()
	return nil
}

// enter locks the broker, with its virtual hosts brought up to now.
func (b *Broker) enter() {
	b.mu.Lock()
	b.advance()
}

func (b *Broker) advance() {
	if b.stopped {
		return
	}
	now := time.Now()
	for _, v := range b.vhosts {
		v.Advance(now)
	}
}

// leave unlocks the broker; the clock looks when it is to come again.
func (b *Broker) leave() {
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// clock lets messages and queues expire.
func (b *Broker) clock() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		b.mu.Lock()
		b.advance()
		var next time.Time
		for _, v := range b.vhosts {
			if at := v.Next(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		if b.stopped {
			next = time.Time{}
		}
		b.mu.Unlock()
		wait := time.Hour
		if !next.IsZero() {
			wait = time.Until(next)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-b.wake:
		case <-b.done:
			return
		}
	}
}
