package desk

import (
	"cmp"

	"github.com/rehop/rehop/internal/foreign"
)

// Framework is the program whose headers give the reason of a letter.
type Framework string

// The frameworks. A letter without one has no header that this package knows.
const (
	Rehop       Framework = "rehop"
	RabbitMQ    Framework = "rabbitmq" // x-death alone
	SpringAMQP  Framework = Framework(foreign.SpringAMQP)
	NServiceBus Framework = Framework(foreign.NServiceBus)
	MassTransit Framework = Framework(foreign.MassTransit)
)

// addForeign takes the reason from the headers of another framework, if they have one.
func (l *Letter) addForeign() {
	f, ok := foreign.Read(l.Publishing.Headers)
	if !ok {
		return
	}
	l.Framework, l.Queue, l.Cause = Framework(f.Framework), cmp.Or(f.Queue, l.Queue), f.Cause
	l.Error, l.ErrorType, l.Stack, l.Host = f.Error, f.ErrorType, f.Stack, cmp.Or(f.Host, l.Host)
	l.Attempts = cmp.Or(f.Attempts, l.Attempts)
	if !f.At.IsZero() {
		l.Failed = f.At
	}
	if f.HasOrigin {
		l.Exchange, l.RoutingKey, l.hasOrigin = f.Exchange, f.RoutingKey, true
	}
}
