package desk

import (
	"context"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/management"
)

// managementLag is how old the numbers of the management API are at most.
const managementLag = 10 * time.Second

// handsOf knows where the looks and redrives of this process take letters, so that numbers
// of queues leave these out.
type handsOf struct {
	mu sync.Mutex
	at map[handPlace]*presence
}

type handPlace struct {
	conn  *connection.Conn
	queue string
}

type presence struct {
	consumers map[*hand]int
	left      time.Time // when the last hand was taken away
}

var hands = handsOf{at: map[handPlace]*presence{}}

// set notes how many consumers the broker counts for a hand.
func (o *handsOf) set(h *hand) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget()
	p := o.at[h.place]
	if p == nil {
		p = &presence{consumers: map[*hand]int{}}
		o.at[h.place] = p
	}
	p.consumers[h] = h.consumers
}

// leave notes that the letters of a hand have gone back.
func (o *handsOf) leave(h *hand) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.at[h.place]; p != nil {
		delete(p.consumers, h)
		p.left = time.Now()
	}
}

// forget drops what the management API does not count any more.
func (o *handsOf) forget() {
	for place, p := range o.at {
		if len(p.consumers) == 0 && time.Since(p.left) > managementLag {
			delete(o.at, place)
		}
	}
}

// of returns how many consumers of a queue are ours, and whether we have taken letters of it
// since the management API counted them.
func (o *handsOf) of(conn *connection.Conn, queue string) (consumers int, lately bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget()
	p := o.at[handPlace{conn, queue}]
	if p == nil {
		return 0, false
	}
	for _, n := range p.consumers {
		consumers += n
	}
	return consumers, true
}

// numbers are those of a queue.
type numbers struct{ ready, unacked, consumers int }

// without returns the numbers of the management API without what looks and redrives of this
// process have in hand. now is the broker's own answer, which counts no unacked messages.
// mixed says that the unacked ones may be ours in part.
func (n numbers) without(own int, lately bool, now amqp.Queue) (others numbers, mixed bool) {
	switch {
	case now.Consumers > own:
		return numbers{n.ready, n.unacked, now.Consumers - own}, lately && n.unacked > 0
	case own > 0: // no other has letters in hand
		return numbers{ready: n.ready + n.unacked}, false
	}
	return numbers{ready: now.Messages}, false // nobody has
}

// takeOut takes what looks and redrives have in hand out of the numbers of queues. It asks
// the broker about queues of dead letters that have consumers, or that we were at. mixed
// are those where the numbers cannot be told apart.
func (o *handsOf) takeOut(ctx context.Context, conn *connection.Conn, infos []management.Info) (mixed map[string]bool) {
	ctx, cancel := context.WithTimeout(ctx, versionLimit) // a broker that is away has numbers to show all the same
	defer cancel()
	mixed = map[string]bool{}
	var session *connection.Session
	defer func() {
		if session != nil {
			_ = session.Close() // nothing is in flight on it
		}
	}()
	for i := range infos {
		q := &infos[i]
		before, lately := o.of(conn, q.Name)
		letters := strings.HasSuffix(q.Name, deadLetterSuffix) || otherDeadLetters.MatchString(q.Name)
		if !lately && (!letters || q.Consumers == 0) {
			continue
		}
		if session == nil {
			var err error
			if session, err = conn.Session(ctx, connection.Consume); err != nil {
				session = nil
				return mixed
			}
		}
		now, err := depthOf(ctx, session, q.Name)
		if err != nil { // it ends the session, and may be of this queue alone
			_ = session.Close()
			session = nil
			continue
		}
		own, lately := o.of(conn, q.Name)
		var n numbers
		n, mixed[q.Name] = numbers{q.Ready, q.Unacked, q.Consumers}.without(max(before, own), lately, now)
		q.Ready, q.Unacked, q.Consumers = n.ready, n.unacked, n.consumers
	}
	return mixed
}
