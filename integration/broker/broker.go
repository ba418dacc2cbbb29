// Package broker gives a test a real RabbitMQ of its own, and the means to be
// unkind to it: stop it, kill it, freeze it, start it again with its data. It
// can be a cluster, whose nodes can be cut off from each other.
//
// Where it comes from, first that applies:
//
//  1. AMQP_URL, a broker that runs already, with RABBITMQ_MANAGEMENT_URL beside
//     it, and AMQP_URLS if it has several nodes. It is used as it is: nobody
//     stops it, and nothing is removed from it.
//  2. A Docker container of the image $RABBITMQ_IMAGE.
//  3. A Docker container of an image of the wanted version: a local one, else
//     the official one, pulled, else one built from Debian's packages.
//  4. A child process, if rabbitmq-server is installed, or can be from Debian's
//     packages by root. It has ports, data and an epmd of its own: a broker that
//     the system runs does not notice it. There is one version only.
//
// Containers and child processes disappear with the process that started them,
// however it ends. Child processes need Linux for that: the reaper looks for
// them in /proc.
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
// Version, Nodes and Progress are ignored when AMQP_URL is set.
type Options struct {
	// Version is one of Series. Defaults to the newest there is: "4.3" from
	// Docker, elsewhere the one version that is to be had. Ignored when
	// RABBITMQ_IMAGE is used.
	Version string

	// Nodes is how many nodes form the broker. More than one need Docker.
	// Defaults to 1.
	Nodes int

	// Name is put in front of the names of containers and of folders, so that a
	// person who looks at the list sees whose it is. Defaults to "rehop".
	Name string

	// Conf is added to the server's configuration, in the format of rabbitmq.conf.
	Conf string

	// TLS makes each node listen for TLS too, at AMQPSURL. What it asks of clients
	// is said in Conf, "ssl_options.verify = verify_peer" for example.
	TLS *TLS

	// LetterTimeout is how long an at-least-once dead-letter worker waits before
	// it sends a message again that its target refused or never confirmed: the
	// time such a queue stands still after its target is well again. A server
	// out of the box takes 3 minutes. Defaults to 3 seconds.
	LetterTimeout time.Duration

	// Env is added to the environment of the server.
	Env map[string]string

	// Progress gets a line when something slow begins: an image is pulled or
	// built, a package is installed. Defaults to os.Stderr.
	Progress io.Writer
}

func (o Options) withDefaults() Options {
	o.Nodes = cmp.Or(o.Nodes, 1)
	o.Name = cmp.Or(o.Name, "rehop")
	o.LetterTimeout = cmp.Or(o.LetterTimeout, 3*time.Second)
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	return o
}

func (o Options) validate() error {
	if o.Version != "" && !slices.Contains(Series, o.Version) {
		return fmt.Errorf("broker: Version is %q, want one of %s", o.Version, strings.Join(Series, ", "))
	}
	if o.Nodes < 1 {
		return fmt.Errorf("broker: Nodes is %d, want 1 or more", o.Nodes)
	}
	if o.LetterTimeout < time.Millisecond {
		return fmt.Errorf("broker: LetterTimeout is %v, want 1ms or more", o.LetterTimeout)
	}
	return nil
}

// TLS is what a server needs to listen for TLS, each in PEM.
type TLS struct {
	CA          string // vouches for the clients
	Certificate string
	Key         string
}

// files are what conf names.
func (t *TLS) files() map[string]string {
	if t == nil {
		return map[string]string{}
	}
	return map[string]string{"tls-ca.pem": t.CA, "tls-cert.pem": t.Certificate, "tls-key.pem": t.Key}
}

// conf is the configuration for a server that finds the files in folder.
func (t *TLS) conf(listener, folder string) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("listeners.ssl.1 = %s\nssl_options.cacertfile = %s/tls-ca.pem\nssl_options.certfile = %[2]s/tls-cert.pem\nssl_options.keyfile = %[2]s/tls-key.pem\n",
		listener, folder)
}

// erlArgs are settings that rabbitmq.conf has no words for.
func (o Options) erlArgs() string {
	return fmt.Sprintf("-rabbit dead_letter_worker_publisher_confirm_timeout %d", o.LetterTimeout.Milliseconds())
}

// Broker is a RabbitMQ that accepts connections, until a verb says otherwise.
// The verbs it has from Node are those of its first node. It is safe for
// concurrent use. Close it.
type Broker struct {
	*Node
	nodes   []*Node
	cluster cluster
	version string
}

// Start gives a broker that is ready for work, and no sooner. Brokers may be
// started in parallel. An image that has to be built first takes about half a
// minute more, and so does a package that has to be installed. The error lists
// what was tried and what to do about it. It is ErrOtherVersion if there is a
// broker, but not of the wanted version.
func Start(ctx context.Context, opts Options) (*Broker, error) {
	return start(ctx, opts, sources)
}

func start(ctx context.Context, opts Options, sources []source) (*Broker, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	c, err := open(ctx, opts, sources)
	if err != nil {
		return nil, err
	}
	b := &Broker{cluster: c}
	for _, s := range c.servers() {
		b.nodes = append(b.nodes, &Node{s})
	}
	b.Node = b.nodes[0]
	if b.version, err = serverVersion(ctx, b.AMQPURL()); err != nil {
		_ = b.Close(ctx) // the broker that does not answer is the news
		return nil, err
	}
	return b, nil
}

// Version is what the server itself says it is, such as "4.3.6".
func (b *Broker) Version() string { return b.version }

// Nodes are the nodes of the broker, the first one first.
func (b *Broker) Nodes() []*Node { return slices.Clone(b.nodes) }

// AMQPURLs are the addresses of all nodes, in the order of Nodes.
func (b *Broker) AMQPURLs() []string {
	var urls []string
	for _, n := range b.nodes {
		urls = append(urls, n.AMQPURL())
	}
	return urls
}

// Partition cuts the network between two nodes: what one sends the other is
// dropped without a word, while clients and other nodes still reach both. Each
// pair is cut on its own; to isolate one node of three, cut it from both others.
// It lasts until Heal, or until one of the two is stopped or killed: a node that
// is started again is cut from nobody.
//
// Nodes notice a silent peer by net_ticktime, which is a minute out of the box;
// "net_ticktime = 5" in Options.Conf makes it seconds.
//
// It needs root on the Linux machine that runs Docker, with nsenter and iptables.
func (b *Broker) Partition(ctx context.Context, one, other *Node) error {
	return b.cluster.partition(ctx, one.server, other.server)
}

// Heal takes all partitions away. RabbitMQ 3.x and 4.0 stay partitioned if they
// have noticed, unless cluster_partition_handling in Options.Conf says otherwise.
func (b *Broker) Heal(ctx context.Context) error { return b.cluster.heal(ctx) }

// Upgrade stops all nodes of a cluster, and starts them again as another version,
// one of Series, with their data and at their old addresses. The server refuses
// versions between which it cannot be upgraded so. Upgrade must not run beside
// other calls.
func (b *Broker) Upgrade(ctx context.Context, version string) error {
	if err := (Options{Version: version}).withDefaults().validate(); err != nil {
		return err
	}
	if err := b.cluster.upgrade(ctx, version); err != nil {
		return err
	}
	var err error
	b.version, err = serverVersion(ctx, b.AMQPURL())
	return err
}

// Close removes the broker with all its data. Closing twice is no error.
func (b *Broker) Close(ctx context.Context) error { return b.cluster.close(ctx) }
