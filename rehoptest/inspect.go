package rehoptest

import (
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest/internal/model"
)

// Queue is the content of a queue at one instant.
type Queue struct {
	Name      string
	Type      string // classic or quorum
	Arguments amqp.Table
	Consumers int
	Ready     []Message // in the order in which they are handed out
	Unacked   []Message // with a consumer, or fetched, and not settled
	Delayed   []Message // waiting out the delayed retry of 4.3
	Dead      []Message // dead letters of an at-least-once queue that no other queue has taken yet
}

// Message is a message in a queue. Headers are as a consumer would get them.
type Message struct {
	amqp.Publishing
	Exchange   string
	RoutingKey string
}

func (b *Broker) vhost() *model.Broker { return b.vhosts[b.cfg.Vhosts[0]] }

// Queue returns the content of a queue of the first virtual host, and whether there
// is one of that name.
func (b *Broker) Queue(name string) (Queue, bool) {
	b.enter()
	defer b.leave()
	s, ok := b.vhost().Queue(name)
	if !ok {
		return Queue{}, false
	}
	return Queue{
		Name: s.Name, Type: s.Type, Arguments: s.Arguments, Consumers: s.Consumers,
		Ready: messages(s.Ready), Unacked: messages(s.Unacked), Delayed: messages(s.Delayed), Dead: messages(s.Dead),
	}, true
}

// Queues returns the names of all queues of the first virtual host, in order.
func (b *Broker) Queues() []string {
	b.enter()
	defer b.leave()
	return b.vhost().Queues()
}

// Publish publishes a message by hand, and returns how many queues it went to.
func (b *Broker) Publish(m Message) (int, error) {
	b.enter()
	defer b.leave()
	n, err := b.vhost().Publish(model.Publishing{Exchange: m.Exchange, Key: m.RoutingKey, Properties: properties(&m.Publishing), Body: m.Body})
	if err != nil {
		return 0, fmt.Errorf("rehoptest: %w", err)
	}
	return n, nil
}

// Drain takes all messages that are ready out of a queue, and returns them. It
// returns none where there is no such queue.
func (b *Broker) Drain(queue string) []Message {
	b.enter()
	defer b.leave()
	list, _ := b.vhost().Drain(queue)
	return messages(list)
}

// DeleteQueue deletes a queue of the first virtual host by hand, and returns all
// messages that went with it, those with consumers included. Consumers are told
// that they are cancelled. It returns none where there is no such queue.
func (b *Broker) DeleteQueue(name string) []Message {
	b.enter()
	defer b.leave()
	list, _ := b.vhost().Remove(name)
	return messages(list)
}

// DeleteExchange deletes an exchange of the first virtual host by hand, with its
// bindings, and reports whether there was one of that name.
func (b *Broker) DeleteExchange(name string) bool {
	b.enter()
	defer b.leave()
	return b.vhost().RemoveExchange(name)
}

// Story returns every step that the messages with an id have taken through the
// broker, a line each with its time, for a failing test to print.
func (b *Broker) Story(id string) string {
	b.enter()
	defer b.leave()
	var text strings.Builder
	for _, steps := range b.vhost().Story(id) {
		for i, s := range steps {
			if i == 0 {
				fmt.Fprintf(&text, "%s  %s\n", s.At.UTC().Format("2006-01-02 15:04:05.000"), s)
				continue
			}
			fmt.Fprintf(&text, "%23s  %s\n", "+"+s.At.Sub(steps[0].At).Round(time.Millisecond).String(), s)
		}
	}
	return text.String()
}
