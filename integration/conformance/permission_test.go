package conformance

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// These users have exactly the permissions of a row of docs/broker.md.

func TestDeclaringWantsThesePermissions(t *testing.T) {
	everywhere(t, func(e *env) {
		shop := e.name("shop")
		e.noError("declare the exchange of others", e.channel().ExchangeDeclare(shop, "topic", true, false, false, false, nil))
		e.deleteAtEnd(nil, []string{shop})
		w := e.workQueue("work", func(w *topology.WorkQueue) {
			w.Bindings = []topology.Binding{{Exchange: shop, RoutingKey: "#"}}
		})
		own := "^" + quoted(w.Name) + `(\..*)?$`
		conn := e.connectAs("declarer", own, own, own+"|^"+quoted(shop)+"$")
		for range 2 {
			if err := topology.Declare(e.Context(), conn, w); err != nil {
				e.Fatal(err)
			}
		}
		e.deleteLater(e.mustPlan(w))
		e.resolve(conn, w)

		// Without read on the exchange, the error says what to grant.
		less := e.connectAs("less", own, own, own)
		err := topology.Declare(e.Context(), less, w)
		if err == nil || !strings.Contains(err.Error(), "read on exchange") || !strings.Contains(err.Error(), shop) {
			e.Errorf("Declare without read on the exchange: %v; want what to grant", err)
		}
		if err := topology.Delete(e.Context(), conn, w); err != nil {
			e.Errorf("Delete: %v", err)
		}
		e.declare(w)
	}, "permissions that the README names are enough")
}

func TestPublishingWantsThesePermissions(t *testing.T) {
	everywhere(t, func(e *env) {
		shop, w := e.shop("work")
		p, err := producer.New(e.connectAs("publisher", "^$", "^"+quoted(shop)+"$", "^$"), producer.Config{})
		if err != nil {
			e.Fatal(err)
		}
		e.Cleanup(func() { e.noError("close the producer", p.Close()) })
		receipt, err := p.Publish(e.Context(), producer.Message{Exchange: shop, RoutingKey: "order.paid"})
		if err != nil || receipt.Cause != "" {
			e.Errorf("publish: %+v, %v", receipt, err)
		}
		if _, err := p.Publish(e.Context(), producer.Message{Exchange: shop, RoutingKey: "nowhere"}); !errors.Is(err, producer.ErrReturned) {
			e.Errorf("publish with another key: %v, want %v", err, producer.ErrReturned)
		}
		e.until("it is there", func() bool { return e.count(w.Name) == 1 })
	}, "permissions: publishing")
}

func TestConsumingWantsThesePermissions(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		if strings.HasPrefix(e.version, "3.") {
			w.Engine = topology.EngineRepublish
		}
		e.consumeAs(w, "^$", `^amq\.default$`, "^"+quoted(w.Name)+"$")
	}, "permissions: consuming")
}

// The waits are without a TTL, and nobody is there who may read them.
func TestNobodyCarries(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(150*time.Millisecond), func(w *topology.WorkQueue) { w.Engine = topology.EngineCarry })
		e.declare(w)
		w.Engine = topology.EngineAuto
		if strings.HasPrefix(e.version, "3.") {
			w.Engine = topology.EngineRepublish
		}
		conn := e.connectAs("consumer", "^$", `^amq\.default$`, "^"+quoted(w.Name)+"$")
		j := newJournal(fail)
		e.consumeOn(conn, w, j, consumer.Config{})
		e.publish(producer.Message{RoutingKey: w.Name, ID: "m", Expiration: time.Hour})
		e.until("it is a dead letter", func() bool { return j.reached("m", consumer.DispositionDeadLetter) })
		if got := j.attempts("m"); !slices.Equal(got, []int{1, 2}) {
			e.Errorf("attempts %v, want 1 and 2", got)
		}
		if h := j.of("m")[1].History; h.Archived.Expiration != "3600000" {
			e.Errorf("the archived expiration is %q, want the producer's", h.Archived.Expiration)
		}
	}, "permissions: waits that nobody carries")
}

func TestConsumingByNackWantsThesePermissions(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		own := "^" + quoted(w.Name) + `(\..*)?$`
		if engine := e.consumeAs(w, own, own+`|^amq\.default$`, own); engine != topology.EngineNack {
			e.Errorf("the engine is %v, want nack", engine)
		}
	}, "permissions: consuming by nack")
}

func TestConsumingByCarryWantsThesePermissions(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", func(w *topology.WorkQueue) { w.Engine = topology.EngineCarry })
		own := quoted(w.Name)
		if engine := e.consumeAs(w, "^$", `^(amq\.default|`+own+`\.rehop\.return)$`, "^"+own+`(\.wait\..*)?$`); engine != topology.EngineCarry {
			e.Errorf("the engine is %v, want carry", engine)
		}
	}, "permissions: consuming by carry")
}

// consumeAs has a user with these permissions consume a message through all its
// waits, and returns the engine by which.
func (e *env) consumeAs(w topology.WorkQueue, configure, write, read string) topology.Engine {
	e.Helper()
	e.declare(w)
	conn := e.connectAs("consumer", configure, write, read)
	found := e.resolve(conn, w)
	j := newJournal(fail)
	c := e.consumeOn(conn, w, j, consumer.Config{})
	id := e.send(w.Name, 1)[0]
	e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
	e.checkAttempts(j, w, id, len(w.Waits)+1)
	e.until("it is healthy", func() bool { return c.Health() == nil }) // a confirm that is late degrades it for a moment
	return topology.Engine(found.Engine)
}

func quoted(name string) string { return strings.ReplaceAll(name, ".", `\.`) }

// connectAs connects as a user of its own with these permissions.
func (e *env) connectAs(what, configure, write, read string) *connection.Conn {
	e.Helper()
	return e.connect(e.addUser(what, configure, write, read))
}
