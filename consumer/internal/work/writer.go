package work

import (
	"cmp"
	"errors"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/yield"
)

// Writer tells the broker of the acks and nacks of one session: messages that are settled
// during a write go out with the next one, neighbours with one verb as a single frame, and a
// lone ack waits for nobody.
type Writer struct {
	pool    *Pool
	session *hand.Session
	channel amqp.Acknowledger
	socket  Corker
	written chan struct{} // closed when the goroutine has ended
	frames  int           // that it has written; to be read after its end
}

// Corker is a socket that can send several frames in one packet.
type Corker interface {
	Cork() bool
	Uncork()
}

// ErrSessionOver says that a message was not settled on its session in time.
var ErrSessionOver = rehop.WithClass(errors.New("the session is over"), rehop.ClassTransient)

// Write starts the Writer of a session, which must be closed.
func (p *Pool) Write(s *hand.Session, channel amqp.Acknowledger, socket Corker) *Writer {
	w := &Writer{pool: p, session: s, channel: channel, socket: socket, written: make(chan struct{})}
	go w.run() // until Close
	return w
}

// Close writes what is to be written and ends the goroutine. The broker is not told of a message
// that is settled later: an ack for a channel that is closed ends the connection.
func (w *Writer) Close() {
	var out hand.Out
	yield.Here()
	w.session.Close(&out)
	yield.Here()
	w.pool.Do(&out)
	<-w.written
}

// run writes what is marked until the session is closed.
func (w *Writer) run() {
	defer close(w.written)
	var spent []hand.Told
	for range w.session.Frames {
		for {
			yield.Here()
			batch, open, closed := w.session.Take(spent)
			if len(batch) == 0 {
				if closed {
					return
				}
				spent = batch
				break
			}
			err := w.write(batch, open)
			yield.Here()
			w.pool.settled(batch, err)
			spent = batch
		}
	}
}

// write tells the broker about a batch. Below the lowest open tag everything is
// in the batch or was written before it, so there each run of one verb is one
// frame. The runs are written from low to high: a frame for a higher one would
// settle a lower one of another verb with it. They leave in one packet.
func (w *Writer) write(batch []hand.Told, open uint64) error {
	if len(batch) > 1 {
		slices.SortFunc(batch, func(x, y hand.Told) int { return cmp.Compare(x.Raw.DeliveryTag, y.Raw.DeliveryTag) })
		if !oneFrame(batch, open) && w.socket.Cork() {
			defer w.socket.Uncork()
		}
	}
	for i, t := range batch {
		if t.Raw.DeliveryTag > open {
			if err := w.frame(t, false); err != nil {
				return err
			}
			continue
		}
		ends := i+1 == len(batch) || batch[i+1].Raw.DeliveryTag > open || batch[i+1].Verb != t.Verb
		if !ends {
			continue
		}
		several := i > 0 && batch[i-1].Verb == t.Verb
		if err := w.frame(t, several); err != nil {
			return err
		}
	}
	return nil
}

// oneFrame reports whether a sorted batch is a single run.
func oneFrame(batch []hand.Told, open uint64) bool {
	if batch[len(batch)-1].Raw.DeliveryTag > open {
		return false
	}
	return !slices.ContainsFunc(batch, func(t hand.Told) bool { return t.Verb != batch[0].Verb })
}

func (w *Writer) frame(t hand.Told, multiple bool) error {
	w.frames++
	switch t.Verb {
	case hand.Ack:
		return w.channel.Ack(t.Raw.DeliveryTag, multiple)
	case hand.Nack:
		return w.channel.Nack(t.Raw.DeliveryTag, multiple, false)
	case hand.Requeue:
		return w.channel.Nack(t.Raw.DeliveryTag, multiple, true)
	case hand.Copy: // its copy is confirmed first, and then it is acked
	}
	panic("consumer: a message is marked without a verb for the broker")
}
