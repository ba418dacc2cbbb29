package consumer

import (
	"errors"

	"github.com/rehop/rehop"
)

// ErrConsumerTimeout says that a handler has had a message for about as long as the
// broker's consumer timeout allows, which is 30 minutes by default. If
// topology.WorkQueue.ConsumerTimeout is set, the ctx of the handler ends at four fifths
// of it, with this cause.
//
// If it is not set, AMQP does not tell a client the timeout. A broker before 4.3 names
// the timeout when it takes a message away, and from then on the ctx of a handler ends
// as above. A broker of 4.3 does not name it, so the ctx ends only when the broker has
// taken the message away.
//
// If the broker's error or its counters say that it took a message away from a handler,
// the message spends an attempt without a run of the handler when it comes again to the
// same call of Run. The consumer recognises such a message by its message id, exchange,
// routing key and body, and does not recognise a message without an id. The other
// messages of the session come again too, and spend no attempt.
var ErrConsumerTimeout = rehop.WithClass(errors.New("consumer: the broker's consumer timeout"), rehop.ClassTransient)
