package route

import (
	"context"
	"fmt"

	"github.com/rehop/rehop/connection"
)

// Source is what a topology.Source is read by: the routes of its queues, as far as
// they are known without the broker.
type Source struct {
	// Routes of the queues, that of the highest lane first; one for most sources.
	Routes []Facts

	// Lanes is the name of the topology.Lanes, "" for every other source, and Strict
	// says that they are consumed strictly and not by shares.
	Lanes  string
	Strict bool

	// Shards is the name of the topology.Shards, "" for every other source.
	Shards string
}

// Of returns what a topology.Source is read by, or everything that is wrong with it.
// Package topology sets it. It is the only way in which package consumer sees more
// of a source than users do.
var Of func(source any) (Source, error)

// Broker asks the connected broker about the queue of a route. Package topology
// implements it.
type Broker interface {
	// Resolve returns the route on the connected broker: the engine, and the queue
	// for each wait. It creates no queue and no exchange. It fails if one is missing,
	// or exists with arguments that topology.Declare does not accept (a
	// *topology.ConflictError), because messages sent there might be lost. A client
	// cannot see the bindings between the parts of a work queue, so Resolve adds
	// those that are missing. It leaves the user's own, WorkQueue.Bindings, to
	// Declare.
	//
	// The route is valid for one session. Where its engine is Carry, processes with
	// a longer or changed schedule may have added waits, or add them later, that
	// every consumer has to carry.
	//
	// A user without permission to configure the queues can only find out that they
	// exist, and on 4.3 not even that. The route then has the engine that a first
	// declaration would choose, but never Nack. If that is Republish and the waits
	// are carried all the same, messages come back 10 s late where nobody carries
	// them.
	//
	// It needs three round trips, one more where the engine is Carry or there are no
	// waits, and some for each wait that it carries for a longer schedule.
	Resolve(ctx context.Context, conn *connection.Conn) (Facts, error)

	// Repair looks whether the parts of a work queue are there that Resolve has found,
	// and puts back those that are not: exchanges, their bindings, waits and the
	// dead-letter queue. It returns their names, and an error for what it may not put
	// back, or for a work queue that is gone, which it never puts back. AMQP shows no
	// bindings, so it adds all of them each time, which changes nothing where they
	// are. Of other queues it returns nothing. It needs one round trip where nothing
	// is missing, and asks no queue for anything, because one that does not answer
	// would cost the socket.
	Repair(ctx context.Context, conn *connection.Conn) (missing []string, err error)

	// CarriedWait returns the nth wait queue without a TTL for the wait of a number, and whether there is one. A queue that
	// only has its name is of somebody else. Only a user with permission to configure it sees the difference: for all
	// others the name decides.
	CarriedWait(ctx context.Context, conn *connection.Conn, waitNumber, nth int) (wait CarriedWait, exists bool, err error)

	// Policies returns the entries of policies that break a promise of the queue, of
	// its waits or of its dead-letter queue. AMQP does not show policies, so it asks
	// the management API at connection.Config.ManagementURL, which bounds its answer
	// for each queue to 5 s. Without that address it returns nothing. r is the route
	// that Resolve has returned, or the one of Of for the queues of a first
	// declaration.
	Policies(ctx context.Context, conn *connection.Conn, r Facts) ([]PolicyFault, error)
}

// PolicyFault is an entry of a policy on the broker that breaks a promise of a
// queue, or one that is missing.
type PolicyFault struct {
	Queue string

	// Policy names the policy, or both, if a user's and an operator's policy apply
	// to the queue. It is "" if Key is an entry that neither a policy nor an argument has.
	Policy string

	Key    string // the entry, such as "message-ttl"
	Value  string
	Effect string // what it does to the queue's messages
}

func (f PolicyFault) String() string {
	if f.Policy == "" {
		return fmt.Sprintf("queue %q: neither its arguments nor a policy set %s: %s", f.Queue, f.Key, f.Effect)
	}
	return fmt.Sprintf("queue %q: %s sets %s to %s: %s", f.Queue, f.Policy, f.Key, f.Value, f.Effect)
}
