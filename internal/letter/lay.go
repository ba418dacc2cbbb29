package letter

import (
	"maps"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
)

// Keys of header.AsItLay.
const (
	layMode       = "delivery_mode"
	layPriority   = "priority"
	layExpiration = "expiration"
	layDoubt      = "doubt"
)

// WithDoubt returns the headers of a dead letter with a doubt that its store is to keep: see
// Doubt.
func WithDoubt(headers amqp.Table, doubt string) amqp.Table {
	if headers = maps.Clone(headers); headers == nil {
		headers = amqp.Table{}
	}
	headers[header.AsItLay] = amqp.Table{layDoubt: doubt}
	return headers
}

// withLay returns headers with header.AsItLay.
func withLay(headers amqp.Table, d amqp.Delivery) amqp.Table {
	lay := amqp.Table{layMode: int64(d.DeliveryMode)}
	if doubt := doubtThatIsKept(headers); doubt != "" {
		lay[layDoubt] = doubt
	}
	if d.Expiration != "" {
		lay[layExpiration] = d.Expiration
	}
	if d.Priority > header.MaxPriority {
		lay[layPriority] = int64(d.Priority)
	}
	if headers == nil {
		headers = amqp.Table{}
	}
	headers[header.AsItLay] = lay
	return headers
}

func doubtThatIsKept(headers amqp.Table) string {
	lay, _ := headers[header.AsItLay].(amqp.Table)
	doubt, _ := header.Text(lay[layDoubt])
	return doubt
}

// Lay makes a publishing with the headers of a dead letter in a store the one that lay in its
// queue, and returns false if the headers do not tell.
func Lay(p *amqp.Publishing) bool {
	lay, is := p.Headers[header.AsItLay].(amqp.Table)
	if !is {
		return false
	}
	p.Headers = maps.Clone(p.Headers)
	delete(p.Headers, header.AsItLay)
	if len(p.Headers) == 0 {
		p.Headers = nil
	}
	mode, _ := header.Count(lay[layMode])
	p.DeliveryMode = uint8(min(mode, int64(amqp.Persistent)))
	p.Expiration, _ = header.Text(lay[layExpiration])
	if priority, has := header.Count(lay[layPriority]); has && priority <= 255 {
		p.Priority = uint8(priority)
	}
	return true
}
