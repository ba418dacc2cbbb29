// Package exchange remembers in each connection.Conn which exchanges exist, so that
// the question is asked once for all publishers of a Conn, and not at all for an
// exchange that was just declared.
//
// Its knowledge is a hint. The broker answers a message to a missing exchange by
// closing the channel, and the other messages in flight are sent again: wrong knowledge
// costs time and no message.
package exchange

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

// Known is what is known of the exchanges behind one Conn. It is safe for
// concurrent use.
type Known struct {
	conn *connection.Conn
	room chan struct{} // one element for each channel that a question has open

	mu         sync.Mutex
	until      map[string]uint64 // the last generation of the publish socket that may trust it
	generation uint64            // of the publish socket, lately
	questions  map[string]*Question
}

// maxChannels bounds the questions that are asked at a time.
const maxChannels = 16

// key is that of Known in a Conn.
type key struct{}

// Of returns what is known of the exchanges behind conn.
func Of(conn *connection.Conn) *Known {
	return transport.Inside.Conn(conn).Keep(key{}, func() any { // see the key
		return &Known{
			conn:      conn,
			room:      make(chan struct{}, maxChannels),
			until:     map[string]uint64{},
			questions: map[string]*Question{},
		}
	}).(*Known)
}

// Seen notes exchanges that were declared, or looked at, on conn. They are trusted
// until the publish socket has been lost twice: the broker that comes back may have
// been given its exchanges just before. Exchanges that a Conn sees within
// connection.Config.OnConnect are known to the Conn that it is part of as well.
func Seen(conn *connection.Conn, names ...string) {
	generation := transport.Inside.Conn(conn).Generation()
	for _, k := range behind(conn) {
		k.see(generation, names)
	}
}

// Deleted notes exchanges that were deleted on conn.
func Deleted(conn *connection.Conn, names ...string) {
	for _, k := range behind(conn) {
		for _, name := range names {
			k.Forget(name)
		}
	}
}

// behind returns what is known behind conn, and behind the Conn that it is part
// of.
func behind(conn *connection.Conn) []*Known {
	known := []*Known{Of(conn)}
	if whole := transport.Inside.Conn(conn).Whole().(*connection.Conn); whole != conn { // see Whole
		known = append(known, Of(whole))
	}
	return known
}

func (k *Known) see(generation uint64, names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation = max(k.generation, generation)
	for _, name := range names {
		k.until[name] = k.generation + 1
	}
}

// Has reports whether the exchange need not be asked for by a session of this
// generation of the publish socket.
func (k *Known) Has(name string, generation uint64) bool {
	if name == "" {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation = max(k.generation, generation)
	return k.until[name] >= generation
}

// Forget notes that the exchange does not exist.
func (k *Known) Forget(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.until, name)
}

// Prepare asks about an exchange, unless what is known will probably do for the
// next session.
func (k *Known) Prepare(name string) {
	k.mu.Lock()
	known := name == "" || k.until[name] > k.generation
	k.mu.Unlock()
	if !known {
		k.Ask(name)
	}
}

// Question asks whether an exchange exists. Done is closed when it has ended. Then
// Missing is the broker's error if the exchange does not exist, and Err is set if
// there was no answer; the question may be asked again.
type Question struct {
	Began   time.Time
	Done    chan struct{}
	Missing *amqp.Error
	Err     error
}

// limit bounds one question. Callers that still wait ask again.
const limit = 30 * time.Second

// Ask returns the question in progress about an exchange, and begins one if there
// is none. It belongs to the Conn: no caller's ctx ends it.
func (k *Known) Ask(name string) *Question {
	k.mu.Lock()
	defer k.mu.Unlock()
	if q := k.questions[name]; q != nil {
		return q
	}
	q := &Question{Began: time.Now(), Done: make(chan struct{})}
	k.questions[name] = q
	go k.ask(name, q) // ends within limit, or with the Conn
	return q
}

func (k *Known) ask(name string, q *Question) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	generation, err := k.look(ctx, name)
	var refused *amqp.Error
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil:
		k.until[name] = max(k.until[name], generation)
	case !errors.As(err, &refused) || !refused.Server || !refused.Recover:
		q.Err = err
	case refused.Code == amqp.NotFound:
		delete(k.until, name)
		q.Missing = refused
	default: // without permission to look, the first message will tell
		k.until[name] = max(k.until[name], generation)
	}
	delete(k.questions, name)
	close(q.Done)
}

// look asks the broker, on a channel of its own: a refusal closes it.
func (k *Known) look(ctx context.Context, name string) (generation uint64, err error) {
	select {
	case k.room <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	session, err := k.conn.Session(ctx, connection.Publish)
	if err != nil {
		<-k.room
		return 0, err
	}
	generation = transport.Inside.Session(session).Generation()
	if !k.Has(name, generation) { // it may have been declared meanwhile
		err = session.Do(ctx, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(name, amqp.ExchangeTopic, true, false, false, false, nil)
		})
	}
	go func() { // nobody waits for the closing of a channel that has its answer
		_ = session.Close()
		<-k.room
	}()
	return generation, err
}
