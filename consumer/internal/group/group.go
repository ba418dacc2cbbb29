package group

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/route"
)

// expires is after how many milliseconds without a member its queue is deleted. A restart of all
// processes takes less.
const expires = 10 * 60 * 1000

// looksUntilRetry is how many looks a process rests that has found no free seat because there are more
// processes than shards. The broker logs each try as an error.
const looksUntilRetry = 6

// Group has the seat of this process among those that consume the same shards. One goroutine uses it.
type Group struct {
	conn   *connection.Conn
	name   string
	shards int

	members held // counts this process
	seated  held // has the seat
	looks   ask.Aside
	seat    int // -1: none
	rest    int // looks until it tries again to take one
}

// New returns the group of the processes that know the same number of shards. Processes that know
// another one, as while it grows, are another group, because each group consumes all shards that it
// knows. A question that is not answered ends the socket of conn, so nothing else should use it. Leave
// closes it.
func New(conn *connection.Conn, name string, shards int) *Group {
	return &Group{conn: conn, name: name, shards: shards, seat: -1, looks: ask.Aside{Conn: conn}}
}

// Look returns the roles of this process, and how many processes there are. It takes a seat if
// this process has none, or one that is too high by now.
func (g *Group) Look(ctx context.Context) (roles []Role, processes int, err error) {
	if err := g.join(ctx); err != nil {
		return nil, 0, fmt.Errorf("queue %q, which counts the processes: %w", g.membersQueue(), denied(err))
	}
	if !g.seated.holds() {
		g.seat = -1
	}
	depth, err := g.looks.DepthOf(ctx, g.membersQueue())
	if err != nil {
		return nil, 0, fmt.Errorf("queue %q, which counts the processes: %w", g.membersQueue(), err)
	}
	if processes = depth.Consumers; processes == 0 { // an answer for a queue without a leader (measured on 3.10.8, 4.0.5 and 4.3.6)
		return nil, 0, rehop.WithClass(fmt.Errorf("queue %q, which counts the processes: the broker counts none, and this is one", g.membersQueue()), rehop.ClassTransient)
	}
	if err := g.sit(ctx, processes); err != nil {
		return nil, 0, err
	}
	// Where the seats below are taken, there are as many processes, whatever is counted.
	return Roles(g.shards, max(processes, g.seat+1), g.seat), processes, nil
}

// Seat returns the seat of this process, -1 for none.
func (g *Group) Seat() int { return g.seat }

// Orphan reports whether the broker says that nobody consumes a queue.
func (g *Group) Orphan(ctx context.Context, queue string) bool {
	depth, err := g.looks.DepthOf(ctx, queue)
	return err == nil && depth.Consumers == 0 && !depth.Unknown
}

// Lost returns a channel that is closed when the broker does not count this process any more. It is nil
// before the first look.
func (g *Group) Lost() <-chan amqp.Delivery { return g.members.deliveries }

// Leave leaves the group: the seat goes with the connection.
func (g *Group) Leave() { _ = g.conn.Close() }

// The names have the number of shards in them, see New.

func (g *Group) membersQueue() string { return route.MembersQueues(g.name) + strconv.Itoa(g.shards) }

func (g *Group) seatQueue(k int) string {
	return fmt.Sprintf("%s%d.%d", route.SeatQueues(g.name), g.shards, k)
}

// join makes sure that this process is counted. The queue is never written to. It is a quorum queue,
// so that it outlives a node.
func (g *Group) join(ctx context.Context) error {
	if g.members.holds() {
		return nil
	}
	g.members.end()
	s, err := g.conn.Session(ctx, connection.Consume)
	if err != nil {
		return err
	}
	var deliveries <-chan amqp.Delivery // a call that is left may still write to it
	err = s.Do(ctx, func(ch *amqp.Channel) (err error) {
		args := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.QueueTTLArg: int64(expires)}
		if _, err := ch.QueueDeclare(g.membersQueue(), true, false, false, false, args); err != nil {
			return err
		}
		if err := ch.Qos(1, 0, false); err != nil {
			return err
		}
		deliveries, err = ch.Consume(g.membersQueue(), "", false, false, false, false, nil)
		return err
	})
	if err != nil {
		_ = s.Close()
		return err
	}
	g.members = held{s, deliveries}
	return nil
}

// sit takes the lowest free seat if this process has none that counts.
func (g *Group) sit(ctx context.Context, processes int) error {
	seats := min(processes, g.shards)
	if g.seat >= 0 && g.seat < seats {
		return nil
	}
	if g.rest > 0 {
		g.rest--
		return nil
	}
	for k := range seats {
		took, err := g.take(ctx, k)
		if err != nil {
			return fmt.Errorf("queue %q, which is a seat: %w", g.seatQueue(k), denied(err))
		}
		if took {
			return nil
		}
	}
	if processes > g.shards {
		g.rest = looksUntilRetry
	}
	return nil
}

// take takes a seat if it is free. Its queue belongs to the connection, and its consumer to this
// Group: other connections are refused the one, and other consumers of the Conn the other.
func (g *Group) take(ctx context.Context, k int) (took bool, err error) {
	s, err := g.conn.Session(ctx, connection.Consume)
	if err != nil {
		return false, err
	}
	var deliveries <-chan amqp.Delivery // as in join
	err = s.Do(ctx, func(ch *amqp.Channel) (err error) {
		if _, err := ch.QueueDeclare(g.seatQueue(k), false, true, true, false, nil); err != nil {
			return err
		}
		deliveries, err = ch.Consume(g.seatQueue(k), "", false, true, false, false, nil)
		return err
	})
	switch {
	case taken(err):
		_ = s.Close()
		return false, nil
	case err != nil:
		_ = s.Close()
		return false, err
	}
	g.seated.end() // the seat of before
	g.seated, g.seat = held{s, deliveries}, k
	return true, nil
}

// taken reports whether the broker has refused a seat that is taken.
func taken(err error) bool {
	var refused *amqp.Error
	if !errors.As(err, &refused) {
		return false
	}
	return refused.Code == amqp.ResourceLocked || refused.Code == amqp.AccessRefused && strings.Contains(refused.Reason, "exclusive use")
}

// denied adds what to do to an error of a queue that the user may not use.
func denied(err error) error {
	if refused := (*amqp.Error)(nil); errors.As(err, &refused) && refused.Code == amqp.AccessRefused {
		return fmt.Errorf("give the user configure and read on it: %w", err)
	}
	return err
}

// held is a consumer of a queue that nothing is published to. Its zero value holds nothing.
type held struct {
	session    *connection.Session
	deliveries <-chan amqp.Delivery // closed with the channel, and when somebody deletes the queue
}

func (h held) holds() bool {
	if h.session == nil || h.session.Err() != nil {
		return false
	}
	select {
	case _, open := <-h.deliveries:
		return open // a stranger has published something
	default:
		return true
	}
}

func (h held) end() {
	if h.session != nil {
		_ = h.session.Close()
	}
}
