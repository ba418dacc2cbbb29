package broker

import "context"

// Node is one server of a Broker. It is safe for concurrent use.
type Node struct{ server server }

// server is a node as one source gives it. Node's methods say what the verbs mean.
type server interface {
	Name() string
	AMQPURL() string
	AMQPSURL() string
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

// Name is what the other nodes call it, such as "rabbit@rmq1". It is empty for
// the broker of AMQP_URL.
func (n *Node) Name() string { return n.server.Name() }

// AMQPURL is the address to connect to, credentials included. It stays the same
// when the node is stopped or killed and started again.
func (n *Node) AMQPURL() string { return n.server.AMQPURL() }

// AMQPSURL is the address to connect to with TLS, as constant as AMQPURL. It is
// empty if Options.TLS is nil, and for the broker of AMQP_URL.
func (n *Node) AMQPSURL() string { return n.server.AMQPSURL() }

// ManagementURL is the base address of the management API, credentials
// included, and as constant as AMQPURL. It is empty if AMQP_URL is set and
// RABBITMQ_MANAGEMENT_URL is not.
func (n *Node) ManagementURL() string { return n.server.ManagementURL() }

// Stop shuts the node down in an orderly way and returns when it is down. To
// stop one that is down is no error.
func (n *Node) Stop(ctx context.Context) error { return n.server.Stop(ctx) }

// Start brings a node back that was stopped or killed, with its data and at its
// old address, and returns when it is ready for work. To start one that runs is
// no error.
func (n *Node) Start(ctx context.Context) error { return n.server.Start(ctx) }

// Kill ends the node as a power failure would: SIGKILL, no goodbye on any
// connection. What was written to its disk stays. Kill, Pause and Unpause of a
// node that is down are errors.
func (n *Node) Kill(ctx context.Context) error { return n.server.Kill(ctx) }

// Pause freezes the node: its connections stay open and silent.
func (n *Node) Pause(ctx context.Context) error { return n.server.Pause(ctx) }

// Unpause lets a paused node go on as if nothing had happened.
func (n *Node) Unpause(ctx context.Context) error { return n.server.Unpause(ctx) }

// Exec runs a command beside the server, such as "rabbitmqctl", "list_queues",
// and returns what it printed on both outputs. The error of a command that
// fails holds its output too.
func (n *Node) Exec(ctx context.Context, args ...string) (string, error) {
	return n.server.Exec(ctx, args...)
}

// Logs returns what the server has logged since it was first started.
func (n *Node) Logs(ctx context.Context) (string, error) { return n.server.Logs(ctx) }
