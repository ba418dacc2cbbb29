// Package broker gives a test a real RabbitMQ of its own, and the means to be
// unkind to it: stop it, kill it, freeze it, start it again with its data.
//
// Where it comes from, first that applies:
//
//  1. AMQP_URL, a broker that runs already, with RABBITMQ_MANAGEMENT_URL beside
//     it. It is used as it is: nobody stops it, and nothing is removed from it.
//  2. A Docker container of the image $RABBITMQ_IMAGE.
//  3. A Docker container of an image of the wanted version: a local one, else
//     the official one, pulled, else one built from Debian's packages.
//
// Containers disappear with the process that started them, however it ends.
package broker

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Series are the versions of RabbitMQ that Start can be asked for.
var Series = []string{"3.10", "4.0", "4.3"}

// Options say which broker Start gives. The zero value is a good one. All but
// Version and Progress are ignored when AMQP_URL is set.
type Options struct {
	// Version is one of Series. Defaults to the newest, "4.3".
	Version string

	// Name is put in front of the container's name, so that a person who looks
	// at the list sees whose it is. Defaults to "rehop".
	Name string

	// Conf is added to the server's configuration, in the format of rabbitmq.conf.
	Conf string

	// LetterTimeout is how long an at-least-once dead-letter worker waits before
	// it sends a message again that its target refused or never confirmed: the
	// time such a queue stands still after its target is well again. A server
	// out of the box takes 3 minutes. Defaults to 3 seconds.
	LetterTimeout time.Duration

	// Env is added to the environment of the server.
	Env map[string]string

	// Progress gets a line when something slow begins: an image is pulled or
	// built. Defaults to os.Stderr.
	Progress io.Writer
}

func (o Options) withDefaults() Options {
	o.Version = cmp.Or(o.Version, Series[len(Series)-1])
	o.Name = cmp.Or(o.Name, "rehop")
	o.LetterTimeout = cmp.Or(o.LetterTimeout, 3*time.Second)
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	return o
}

func (o Options) validate() error {
	if !slices.Contains(Series, o.Version) {
		return fmt.Errorf("broker: Version is %q, want one of %s", o.Version, strings.Join(Series, ", "))
	}
	if o.LetterTimeout < time.Millisecond {
		return fmt.Errorf("broker: LetterTimeout is %v, want 1ms or more", o.LetterTimeout)
	}
	return nil
}

// Broker is a RabbitMQ that accepts connections, until a verb says otherwise.
// It is safe for concurrent use. Close it.
type Broker struct {
	server
	version string
}

// server is a broker as one source gives it. Broker's methods say what the verbs mean.
type server interface {
	AMQPURL() string
	ManagementURL() string
	Stop(context.Context) error
	Start(context.Context) error
	Kill(context.Context) error
	Pause(context.Context) error
	Unpause(context.Context) error
	Exec(ctx context.Context, args ...string) (string, error)
	Logs(context.Context) (string, error)
	Close(context.Context) error
}

// Start gives a broker that is ready for work, and no sooner. Brokers may be
// started in parallel. An image that has to be built first takes about half a
// minute more. The error lists what was tried and what to do about it.
func Start(ctx context.Context, opts Options) (*Broker, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s, err := open(ctx, opts, sources)
	if err != nil {
		return nil, err
	}
	version, err := serverVersion(ctx, s.AMQPURL())
	if err != nil {
		_ = s.Close(context.WithoutCancel(ctx)) // the broker that does not answer is the news
		return nil, err
	}
	return &Broker{server: s, version: version}, nil
}

// AMQPURL is the address to connect to, credentials included. It stays the same
// when the broker is stopped or killed and started again.
func (b *Broker) AMQPURL() string { return b.server.AMQPURL() }

// ManagementURL is the base address of the management API, credentials
// included, and as constant as AMQPURL. It is empty if AMQP_URL is set and
// RABBITMQ_MANAGEMENT_URL is not.
func (b *Broker) ManagementURL() string { return b.server.ManagementURL() }

// Version is what the server itself says it is, such as "4.3.6".
func (b *Broker) Version() string { return b.version }

// Stop shuts the broker down in an orderly way and returns when it is down.
func (b *Broker) Stop(ctx context.Context) error { return b.server.Stop(ctx) }

// Start brings a broker back that was stopped or killed, with its data and at
// its old address, and returns when it is ready for work.
func (b *Broker) Start(ctx context.Context) error { return b.server.Start(ctx) }

// Kill ends the broker as a power failure would: SIGKILL, no goodbye on any
// connection. What was written to its disk stays.
func (b *Broker) Kill(ctx context.Context) error { return b.server.Kill(ctx) }

// Pause freezes the broker: its connections stay open and silent.
func (b *Broker) Pause(ctx context.Context) error { return b.server.Pause(ctx) }

// Unpause lets a paused broker go on as if nothing had happened.
func (b *Broker) Unpause(ctx context.Context) error { return b.server.Unpause(ctx) }

// Exec runs a command beside the server, such as "rabbitmqctl", "list_queues",
// and returns what it printed on both outputs. The error of a command that
// fails holds its output too.
func (b *Broker) Exec(ctx context.Context, args ...string) (string, error) {
	return b.server.Exec(ctx, args...)
}

// Logs returns what the server has logged since it was first started.
func (b *Broker) Logs(ctx context.Context) (string, error) { return b.server.Logs(ctx) }

// Close removes the broker with all its data. Closing twice is no error.
func (b *Broker) Close(ctx context.Context) error { return b.server.Close(ctx) }
