package consumer

import (
	"context"
	"fmt"

	"github.com/rehop/rehop"
)

// Mux has a Handler for each type of message: the key is Delivery.Type, the
// message's type property. The key "" is for messages without a type.
//
//	consumer.New(conn, orders, consumer.Mux{
//		"order.paid":     consumer.JSON(paid),
//		"order.refunded": consumer.JSON(refunded),
//	}.Handle, consumer.Config{})
//
// A Mux must not be changed while messages are handled.
type Mux map[string]Handler

// Handle is a Handler that calls the one for the message's type. A message of a type
// without a Handler is not retried: it becomes a dead letter with the cause
// rehop.CauseUnhandled.
func (m Mux) Handle(ctx context.Context, d *Delivery) error {
	handler := m[d.Type]
	if handler == nil {
		return withOutcome(Outcome{Action: ActionDeadLetter, Cause: rehop.CauseUnhandled}, fmt.Errorf("no handler for messages of type %q", d.Type), "")
	}
	return handler(ctx, d)
}
