package topology

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/levels"
)

// Exchange is a durable exchange.
type Exchange struct {
	// Name, 1 to 255 bytes, not beginning with "amq.".
	Name string

	// Kind is "topic", "direct", "fanout", "headers", or the type of a plugin
	// that the broker has. Defaults to "topic".
	Kind string
}

// Binding leads messages from an exchange to a work queue.
type Binding struct {
	// Exchange to bind to; it must exist, or be declared in the same call.
	Exchange string

	// RoutingKey is the binding key, up to 255 bytes. The kind of the exchange decides
	// how it is compared with the routing key of a message.
	RoutingKey string

	// Headers are the binding's arguments, for an exchange of kind headers:
	// "x-match" and the headers to match.
	Headers amqp.Table
}

func (e Exchange) workQueues() []WorkQueue { return nil }

func (e Exchange) whole() Spec { return e }

func (e Exchange) addTo(b *builder) {
	kind := e.Kind
	if kind == "" {
		kind = amqp.ExchangeTopic
	}
	b.exchange(plannedExchange{Name: e.Name, Kind: kind})
	b.targets.exchanges = append(b.targets.exchanges, levels.Exchange{Name: e.Name, Kind: kind})
}

func (e Exchange) validate() error {
	return errors.Join(
		validateName("Exchange.Name", e.Name, maxName, ""),
		validateLength(fmt.Sprintf("Exchange %q: Kind", e.Name), e.Kind),
	)
}

func (b Binding) validate(owner string) error {
	var errs []error
	if b.Exchange == "" {
		errs = append(errs, fmt.Errorf("topology: %s.Exchange is empty: the default exchange reaches every queue by its name and cannot be bound", owner))
	}
	errs = append(errs, validateLength(owner+".Exchange", b.Exchange), validateLength(owner+".RoutingKey", b.RoutingKey))
	if err := b.Headers.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("topology: %s.Headers cannot be sent: %w", owner, err))
	}
	return errors.Join(errs...)
}

// maxName is the length of an AMQP short string in bytes.
const maxName = 255

// validateName checks the name of something that will be declared. why
// explains a bound below maxName.
func validateName(field, name string, limit int, why string) error {
	switch {
	case name == "":
		return fmt.Errorf("topology: %s is empty", field)
	case len(name) > limit:
		return fmt.Errorf("topology: %s is %d bytes long (%.20q...), want at most %d%s", field, len(name), name, limit, why)
	case strings.HasPrefix(name, "amq."):
		return fmt.Errorf("topology: %s is %q: names that begin with \"amq.\" belong to the broker", field, name)
	case !utf8.ValidString(name):
		return fmt.Errorf("topology: %s is %q, which is not valid UTF-8", field, name)
	}
	return nil
}

// validateLength checks a string that the broker reads as a short string. It
// ends the whole connection over one that is not UTF-8.
func validateLength(field, s string) error {
	if len(s) > maxName {
		return fmt.Errorf("topology: %s is %d bytes long (%.20q...), want at most %d", field, len(s), s, maxName)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("topology: %s is %q, which is not valid UTF-8", field, s)
	}
	return nil
}
