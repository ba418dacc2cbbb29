package topology_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// Every process declares its queues at its start. Declare adds the parts that are missing.
func ExampleDeclare() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{
		Name:     "orders",
		Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}},
		Waits:    delay.Default(), // 1m, 5m, 10m, 20m
	}
	fmt.Println(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders))
	fmt.Println(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders))
	// Output:
	// <nil>
	// <nil>
}

// A queue that exists with other arguments stays as it is.
func ExampleDeclare_conflict() {
	ctx, conn, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders", Type: topology.Classic}))

	err := topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"})
	var conflict *topology.ConflictError
	fmt.Println(errors.As(err, &conflict))
	fmt.Println(conflict.Kind, conflict.Name, conflict.Argument, "is", conflict.Have, "and not", conflict.Want)
	// Output:
	// true
	// queue orders x-queue-type is classic and not quorum
}

// A program that may not declare compares what it plans with what the broker has, and
// stops if it could not work there.
func ExampleVerify() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{Name: "orders"}
	drift, err := topology.Verify(ctx, conn, orders)
	check(err)
	fmt.Println(drift.OK(), drift.Differences[0].Code, drift.Differences[0].Name)

	check(topology.Declare(ctx, conn, orders)) // another program does it
	drift, err = topology.Verify(ctx, conn, orders)
	check(err)
	fmt.Println(drift.OK(), len(drift.Differences))
	// Output:
	// false queue-missing orders
	// true 0
}

// Without the management API, the broker tells of another form only where it is asked to declare it.
func ExampleVerifyByDeclaring() {
	ctx, conn, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"}))

	drift, err := topology.VerifyByDeclaring(ctx, conn, topology.WorkQueue{Name: "orders", SingleActiveConsumer: true})
	check(err)
	fmt.Println(drift.Differences[0].Code, drift.Differences[0].Found)
	// Output: queue-arguments x-single-active-consumer none
}

// A program finds out before it starts whether its user may do what it will. RabbitMQ tells
// an administrator, by the management API.
func ExampleVerifyAs() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{Name: "orders"}
	check(topology.Declare(ctx, conn, orders))

	drift, err := topology.VerifyAs(ctx, conn, []topology.Role{topology.RoleConsume}, orders)
	check(err)
	for _, d := range drift.Differences {
		if d.Class == topology.DriftForbidden {
			fmt.Println(d.Remedy)
		}
	}
	fmt.Println(drift.Unseen[len(drift.Unseen)-1])
	// Output: permissions of user "guest": connection.Config.ManagementURL is empty
}

// A build compares the permissions of production with what the service needs.
func ExampleVerifyDefinitionsAs() {
	orders := topology.WorkQueue{Name: "orders"}
	file := []byte(`{"rabbitmq_version": "4.3.6", "vhosts": [{"name": "/"}], "queues": [], "exchanges": [], "bindings": [], "users": [{"name": "shopper"}],
		"permissions": [{"user": "shopper", "vhost": "/", "configure": "^$", "write": "^(amq\\.default|orders\\.rehop\\.return)$", "read": "^$"}]}`)
	drift, err := topology.VerifyDefinitionsAs(file, "/", "shopper", []topology.Role{topology.RoleConsume}, orders)
	check(err)
	for _, d := range drift.Differences {
		if d.Class == topology.DriftForbidden {
			fmt.Println(d.Expected)
		}
	}
	// Output: read on orders
}

// A service writes what it declares to a file, and a tool plans or verifies it.
func ExampleMarshalSpecs() {
	file, err := topology.MarshalSpecs(topology.Exchange{Name: "shop"}, topology.WorkQueue{Name: "orders", Waits: delay.Fixed(90*time.Second, 1)})
	check(err)
	fmt.Println(strings.Join(strings.Fields(string(file)), " "))

	specs, err := topology.UnmarshalSpecs(file)
	check(err)
	fmt.Println(len(specs), specs[1].(topology.WorkQueue).Waits[0])
	// Output:
	// { "specs": [ { "exchange": { "name": "shop" } }, { "work_queue": { "name": "orders", "waits": [ "1m30s" ] } } ] }
	// 2 1m30s
}

// An administrator imports what a service needs, on a broker where services may not declare.
func ExamplePlan_Definitions() {
	plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, topology.WorkQueue{Name: "orders"})
	check(err)
	file, err := plan.Definitions("shop")
	check(err)
	drift, err := topology.VerifyDefinitions(file, "shop", topology.WorkQueue{Name: "orders"})
	check(err)
	fmt.Println(drift.OK())
	// Output: true
}

// A page beside the code shows what the service declares.
func ExamplePlan_Mermaid() {
	plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, topology.WorkQueue{
		Name: "orders", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.*"}}, Waits: delay.Schedule{time.Minute, time.Hour},
	})
	check(err)
	fmt.Print(plan.Mermaid())
	// Output:
	// flowchart LR
	//     n1["orders<br>quorum, engine nack"]
	//     n2(["shop<br>declared by others"])
	//     n2 -->|"order.#42;"| n1
	//     n3{{"orders.wait.1: 1m<br>orders.wait.2: 1h"}}
	//     n1 -->|"failed"| n3
	//     n3 -->|"comes back"| n1
	//     n4[("orders.dlq")]
	//     n1 -->|"dead letter"| n4
}

// A picture is for a page that does not draw Mermaid.
func ExamplePlan_SVG() {
	plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, topology.WorkQueue{Name: "orders"})
	check(err)
	svg, _, _ := strings.Cut(plan.SVG(), ">")
	fmt.Println(svg)
	fmt.Println(plan.SVG("orders.dlq") == plan.SVG(), plan.SVG("bills.dlq") == "")
	// Output:
	// <svg xmlns="http://www.w3.org/2000/svg" width="980" height="92" viewBox="0 0 980 92" role="img"
	// true true
}

// An operator gives the user of a service the permissions that it needs, and no others.
func ExamplePlan_Permissions() {
	plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, topology.WorkQueue{Name: "orders", Waits: delay.Default(), Engine: topology.EngineRepublish})
	check(err)
	p := plan.Permissions(topology.RoleConsume)
	fmt.Printf("rabbitmqctl set_permissions -p / shopper '%s' '%s' '%s'", p.Configure, p.Write, p.Read)
	// Output: rabbitmqctl set_permissions -p / shopper '^$' '^(amq\.default|orders\.rehop\.return)$' '^orders$'
}

// A program consumes one queue, and publishes to an exchange of another service.
func ExamplePermissions_And() {
	version := connection.Version{Major: 4, Minor: 3}
	orders, err := topology.NewPlan(version, topology.WorkQueue{Name: "orders", Engine: topology.EngineRepublish})
	check(err)
	mail, err := topology.NewPlan(version, topology.Exchange{Name: "mail"})
	check(err)
	fmt.Println(orders.Permissions(topology.RoleConsume).And(mail.Permissions(topology.RolePublish)).Write)
	// Output: ^(amq\.default|mail|orders\.rehop\.return)$
}

// A build compares with the definitions of production, and needs no broker.
func ExampleVerifyDefinitions() {
	file := []byte(`{"rabbitmq_version": "4.3.6", "vhosts": [{"name": "/"}], "exchanges": [], "bindings": [],
		"queues": [{"vhost": "/", "name": "orders", "durable": true, "auto_delete": false, "arguments": {"x-queue-type": "classic"}}]}`)
	drift, err := topology.VerifyDefinitions(file, "/", topology.WorkQueue{Name: "orders"})
	check(err)
	for _, d := range drift.Differences {
		if d.Kind == "queue" {
			fmt.Println(d.Code, d.Name)
		}
	}
	// Output:
	// queue-missing orders.dlq
	// queue-type orders
}

// A plan is printed before anything is declared.
func ExampleNewPlan() {
	plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3},
		topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute, time.Hour}})
	check(err)
	fmt.Println(strings.Join(plan.Queues(), "\n"))
	fmt.Println(plan.Engines[0].Engine)
	// Output:
	// orders
	// orders.wait.1
	// orders.wait.2
	// orders.dlq
	// nack
}

// A program that logs its topology by itself gets the plan that is now true.
func ExampleDeclarePlan() {
	ctx, conn, stop := connect()
	defer stop()
	plan, err := topology.DeclarePlan(ctx, conn, topology.WorkQueue{Name: "orders", Waits: delay.Fixed(time.Minute, 1)})
	check(err)
	fmt.Println(plan.Engines[0].Queue, plan.Engines[0].Waits)
	// Output: orders [orders.wait.1]
}

// A queue that holds messages is not deleted with the rest, unless DeleteAll says so.
func ExampleDelete() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{Name: "orders", Waits: delay.Default()}
	check(topology.Declare(ctx, conn, orders))
	session, err := conn.Session(ctx, connection.Publish)
	check(err)
	defer session.Close()
	check(session.Do(ctx, func(ch *amqp.Channel) error { return ch.Confirm(false) }))
	confirm, err := session.Channel().PublishWithDeferredConfirm("", "orders", false, false, amqp.Publishing{})
	check(err)
	confirm.Wait()

	fmt.Println(errors.Is(topology.Delete(ctx, conn, orders), topology.ErrInUse))
	fmt.Println(topology.DeleteAll(ctx, conn, orders)) // with the message
	// Output:
	// true
	// <nil>
}

// The waits of a queue may change at any time. Delete the wait queues that are out of use
// when no process has the former waits any more, and the longest of them has passed.
func ExampleDeleteWaits() {
	ctx, conn, stop := connect()
	defer stop()
	former := topology.WorkQueue{Name: "orders", Waits: delay.Fixed(time.Minute, 3)}
	current := topology.WorkQueue{Name: "orders", Waits: delay.Fixed(time.Hour, 2)}
	check(topology.Declare(ctx, conn, former))
	plan, err := topology.DeclarePlan(ctx, conn, current)
	check(err)
	fmt.Println(plan.Engines[0].Waits)

	check(topology.DeleteWaits(ctx, conn, former, current)) // the queues that only former uses
	// ... every consumer has been started again
	check(topology.DeleteWaits(ctx, conn, current, current)) // the queues that stood in for them
	plan, err = topology.DeclarePlan(ctx, conn, current)
	check(err)
	fmt.Println(plan.Engines[0].Waits)
	// Output:
	// [orders.wait.1.1h orders.wait.2.1h]
	// [orders.wait.1 orders.wait.2]
}

// Messages of a higher lane go ahead of those of a lower one.
func ExampleLanes() {
	sms := topology.Lanes{
		Name:     "sms",
		Lanes:    []topology.Lane{{Name: "vip"}, {Name: "normal"}, {Name: "bulk"}},
		Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "sms.#"}},
		Waits:    delay.Default(),
	}
	for _, w := range sms.WorkQueues() {
		fmt.Println(w.Name, w.DeadLetterQueue().Name)
	}
	fmt.Println(sms.Exchange())
	// Output:
	// sms.vip sms.vip.dlq
	// sms.normal sms.normal.dlq
	// sms.bulk sms.bulk.dlq
	// sms.lanes
}

// All messages of a customer are in one shard, and wait and fail there.
func ExampleShards() {
	orders := topology.Shards{Name: "orders", Count: 4, Waits: delay.Default()}
	for _, w := range orders.WorkQueues() {
		fmt.Println(w.Name, w.DeadLetterQueue().Name)
	}
	fmt.Println(orders.Queue("customer-17"), orders.Queue("customer-18"))
	// Output:
	// orders.00 orders.dlq
	// orders.01 orders.dlq
	// orders.02 orders.dlq
	// orders.03 orders.dlq
	// orders.01 orders.03
}

// One call declares the delays of a service, and the targets of its delayed messages. A
// consumer of Stranded looks after messages whose target is gone when they are due.
func ExampleDelays() {
	ctx, conn, stop := connect()
	defer stop()
	delays := topology.Delays{Max: time.Hour}
	fmt.Println(topology.Declare(ctx, conn, delays, topology.WorkQueue{Name: "orders"}))
	fmt.Println(delays.Stranded().Name)
	// Output:
	// <nil>
	// rehop.delays.1s.stranded
}

// A queue of its own for dead letters, which the broker deletes after 90 days.
func ExampleDeadLetterQueue() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{Name: "orders"}
	letters := orders.DeadLetterQueue()
	letters.MaxAge = 90 * 24 * time.Hour
	fmt.Println(letters.Name, topology.Declare(ctx, conn, orders, letters))
	// Output: orders.dlq <nil>
}
