package topology

import (
	"sync"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

// ownForm is a queue in the form that a declaration has given it, with all bindings that the
// declaration has added to it.
type ownForm struct {
	queue    plannedQueue
	bindings []plannedBinding
}

// ownFormsKey is the key under which a Conn keeps its own forms.
type ownFormsKey struct{}

// ownFormsOn returns the queues, by name, that declarations on a Conn have in forms of their
// own. The source of a consumer does not say which of them is its dead-letter queue in another
// form than the implied one.
func ownFormsOn(conn *connection.Conn) *sync.Map {
	return transport.Inside.Conn(conn).Keep(ownFormsKey{}, func() any { return new(sync.Map) }).(*sync.Map)
}

// keepOwnForms keeps the queues that a declared plan has in a form of their own. The last
// declaration of a queue counts.
func (p Plan) keepOwnForms(conn *connection.Conn) {
	whole := transport.Inside.Conn(conn).Whole().(*connection.Conn)
	for _, known := range []*sync.Map{ownFormsOn(conn), ownFormsOn(whole)} {
		for _, q := range p.queues {
			switch {
			case q.role == letterRole && q.Owner != "": // it is implied
				known.Delete(q.Name)
			case q.role == letterRole || q.role == workRole:
				known.Store(q.Name, ownForm{q, p.bindingsOf(q.Name)})
			}
		}
	}
}

// bindingsOf returns the bindings of a queue.
func (p Plan) bindingsOf(queue string) (list []plannedBinding) {
	for _, b := range p.bindings {
		if b.Queue == queue {
			list = append(list, b)
		}
	}
	return list
}
