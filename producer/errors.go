package producer

import "github.com/rehop/rehop/internal/confirm"

// What errors.Is finds in an error of Publish. None of them: the message was
// never sent, because it was faulty, the Producer was closed, or there was no
// connection to send it on. ErrUnconfirmed together with another one: a first
// try may have arrived, and the last one ended as the other says.
var (
	// ErrReturned: the exchange has no queue for the key, or does not exist.
	// The message is in no queue.
	ErrReturned = confirm.ErrReturned

	// ErrNacked: a queue refused the message, because it is full or not
	// available. Other queues of the same exchange may have taken it.
	ErrNacked = confirm.ErrNacked

	// ErrRefused: the broker does not allow this message: it is too large, or
	// a property of it is wrong. It is in no queue.
	ErrRefused = confirm.ErrRefused

	// ErrUnconfirmed: no answer came, the connection was lost or the time ran
	// out. The message may be in its queue. Publishing it again, with the same
	// ID, may double it.
	ErrUnconfirmed = confirm.ErrUnconfirmed
)
