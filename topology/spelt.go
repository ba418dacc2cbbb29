package topology

import (
	"sync"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

// spelt is a queue as a declaration has spelt it out, with all bindings that it has
// added to the queue.
type spelt struct {
	queue    plannedQueue
	bindings []plannedBinding
}

// speltKey is that of the queues in a Conn.
type speltKey struct{}

// speltOn returns the queues that the declarations on a Conn have spelt out, by name. The
// source of a consumer does not say which of them is its dead-letter queue in another
// form than the implied one.
func speltOn(conn *connection.Conn) *sync.Map {
	return transport.Inside.Conn(conn).Keep(speltKey{}, func() any { return new(sync.Map) }).(*sync.Map)
}

// keepSpelt keeps the queues that are spelt out in a declared plan. The last declaration of
// a queue counts.
func (p Plan) keepSpelt(conn *connection.Conn) {
	whole := transport.Inside.Conn(conn).Whole().(*connection.Conn)
	for _, known := range []*sync.Map{speltOn(conn), speltOn(whole)} {
		for _, q := range p.queues {
			switch {
			case q.role == letterRole && q.Owner != "": // it is implied
				known.Delete(q.Name)
			case q.role == letterRole || q.role == workRole:
				known.Store(q.Name, spelt{q, p.bindingsOf(q.Name)})
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
