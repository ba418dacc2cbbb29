package model

import "time"

// storied is how many message ids the journal remembers.
const storied = 1 << 16

// journal is what has happened to messages, by their ids.
type journal struct {
	byID  map[string][]*steps
	order []string
}

// steps of one publish, with all that became of it.
type steps struct{ list []Step }

// Step is one thing that happened to a message.
type Step struct {
	At         time.Time
	Kind       StepKind
	Place, Why string
}

// StepKind says what happened.
type StepKind int

const (
	stepPublished StepKind = iota
	stepUnroutable
	stepRouted
	stepRefused
	stepDelivered
	stepAcked
	stepReturned
	stepRejected
	stepDead
	stepDropped
	stepNoExchange
	stepNoRoute
	stepCycle
	stepEndless
	stepPurged
	stepDeleted
	stepLost
	stepForgotten
	stepDrained
)

// String is the step in words.
func (s Step) String() string {
	switch s.Kind {
	case stepPublished:
		if s.Place == "" {
			return "published to the queue " + s.Why
		}
		return "published to " + s.Place + " with the key " + s.Why
	case stepUnroutable:
		return "no queue takes it"
	case stepRouted:
		return "in " + s.Place
	case stepRefused:
		return "refused by " + s.Place + ", which is full"
	case stepDelivered:
		return "delivered from " + s.Place + " to " + s.Why
	case stepAcked:
		return "acked, gone from " + s.Place
	case stepReturned:
		return "given back to " + s.Place
	case stepRejected:
		return "rejected from " + s.Place
	case stepDead:
		return "dead-lettered from " + s.Place + ": " + s.Why
	case stepDropped:
		return "dropped from " + s.Place + ", which has no dead-letter exchange: " + s.Why
	case stepNoExchange:
		return "no dead-letter exchange " + s.Place + ": " + s.Why
	case stepNoRoute:
		return "the dead-letter exchange " + s.Place + " has no queue for it: " + s.Why
	case stepCycle:
		return "not to " + s.Place + " again, a cycle without a rejection: " + s.Why
	case stepEndless:
		return "goes round without an end, and RabbitMQ would not stop: left out here, from " + s.Place + ": " + s.Why
	case stepPurged:
		return "purged from " + s.Place
	case stepDeleted:
		return "deleted with " + s.Place
	case stepForgotten:
		return "lost with its channel before " + s.Place + " took it"
	case stepDrained:
		return "drained from " + s.Place
	default:
		return "lost with the broker from " + s.Place
	}
}

func (m *Message) step(b *Broker, kind StepKind, place, why string) {
	if m.steps == nil {
		id := m.Properties.MessageID
		if kind != stepPublished || id == "" {
			return
		}
		m.steps = &steps{}
		j := &b.journal
		if _, known := j.byID[id]; !known {
			j.order = append(j.order, id)
			if len(j.order) > storied {
				delete(j.byID, j.order[0])
				j.order = j.order[1:]
			}
		}
		j.byID[id] = append(j.byID[id], m.steps)
	}
	m.steps.list = append(m.steps.list, Step{b.now, kind, place, why})
}

// Story returns the steps of each publish of an id.
func (b *Broker) Story(id string) [][]Step {
	var all [][]Step
	for _, s := range b.journal.byID[id] {
		all = append(all, append([]Step(nil), s.list...))
	}
	return all
}
