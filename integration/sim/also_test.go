package sim

import (
	"maps"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/producer"
)

// alsoPlan is one more key of the messages of a producer. Its zero value is none.
type alsoPlan struct{ header, key string }

// also returns a key that leads to no queue, or one that messages wait with.
func (m maker) also() alsoPlan {
	return alsoPlan{pick(m, "BCC", "BCC", "CC"), pick(m, "nowhere", work+"@1", work+"@2", work+"@3")}
}

// on adds the key to a message, unless it is refused.
func (a alsoPlan) on(m producer.Message) producer.Message {
	if a.key == "" {
		return m
	}
	with := m
	with.Headers = amqp.Table{a.header: []any{a.key}}
	maps.Copy(with.Headers, m.Headers)
	if with.Validate() != nil {
		return m
	}
	return with
}
