package consumer

import (
	"errors"

	"github.com/rehop/rehop/connection"
)

// ErrConsumerTimeout says that a message was with a handler for longer than the
// broker's consumer timeout. It is 30 minutes by default, or what
// topology.WorkQueue.ConsumerTimeout says: then it is the cause of a handler's ctx that
// ends at four fifths of it.
//
// Otherwise AMQP does not tell a client its value. Brokers until 4.2 name it when they
// take a message away: from then on handlers' ctxs end as above. A broker of 4.3 does
// not name it, and no handler's ctx ends before the broker takes the message away.
//
// A message that was taken away from a handler, by the broker's own word or
// counters, spends an attempt without a handler's run when it comes again to this
// Run and has a message id. The other messages of the session come again too, and
// spend none.
var ErrConsumerTimeout = connection.WithClass(errors.New("consumer: the broker's consumer timeout"), connection.Transient)
