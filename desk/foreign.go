package desk

import (
	"cmp"

	"github.com/rehop/rehop/internal/foreign"
)

// Letter.Framework of letters that the headers of rehop and of the broker tell of.
const (
	ofRehop    = "rehop"
	ofRabbitMQ = "rabbitmq" // x-death alone
)

// addForeign takes the reason from the headers of another framework, if they have one.
func (l *Letter) addForeign() {
	f, ok := foreign.Read(l.Publishing.Headers)
	if !ok {
		return
	}
	l.Framework, l.Queue, l.Cause = string(f.Framework), cmp.Or(f.Queue, l.Queue), f.Cause
	l.Error, l.ErrorType, l.Stack, l.Host = f.Error, f.ErrorType, f.Stack, cmp.Or(f.Host, l.Host)
	l.Attempts = cmp.Or(f.Attempts, l.Attempts)
	if !f.At.IsZero() {
		l.Failed = f.At
	}
	if f.HasOrigin {
		l.Exchange, l.RoutingKey, l.hasOrigin = f.Exchange, f.RoutingKey, true
	}
}
