package elastic_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/elastic"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// A message that no queue takes is a letter in Elasticsearch.
func ExampleOpen() {
	ctx, conn, stop := connect()
	defer stop()
	letters, err := elastic.Open(ctx, client(), elastic.Config{}) // client is of elasticsearch.NewClient
	check(err)
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{letters}})
	check(err)
	defer publisher.Close()

	receipt, err := publisher.Publish(ctx, producer.Message{ID: "order-7", RoutingKey: "oders"}) // there is no such queue
	fmt.Println(receipt.Place, receipt.Sink, err)
	// Output: fallback elastic <nil>
}

// A program may put messages by itself, and look for them.
func ExampleStore_Find() {
	ctx := context.Background()
	letters, err := elastic.Open(ctx, client(), elastic.Config{WaitForRefresh: true})
	check(err)
	check(letters.Put(ctx, producer.Message{ID: "order-7", RoutingKey: "oders"}, producer.ErrReturned))

	q := elastic.Query{MessageIDs: []string{"order-7"}}
	n, err := letters.Count(ctx, q)
	fmt.Println(n, err)
	found, err := letters.Find(ctx, q)
	check(err)
	fmt.Println(found[0].Message.ID, found[0].Message.RoutingKey, found[0].Cause)
	// Output:
	// 1 <nil>
	// order-7 oders unroutable
}

// Collect is the handler of a dead-letter queue.
func ExampleStore_Collect() {
	ctx, conn, stop := connect()
	defer stop()
	letters, err := elastic.Open(ctx, client(), elastic.Config{})
	check(err)
	orders := topology.WorkQueue{Name: "orders"}
	worker, err := consumer.New(conn, orders.DeadLetterQueue(), letters.Collect, consumer.Config{Concurrency: 50})
	check(err)
	_ = worker // worker.Run(ctx) calls Collect with each letter

	check(letters.Collect(ctx, &consumer.Delivery{
		ID: "order-7", Exchange: "shop", RoutingKey: "order.paid",
		History: xdeath.History{Queue: "orders", Failure: xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no stock"}},
	}))
	found, err := letters.Find(ctx, elastic.Query{})
	check(err)
	fmt.Println(found[0].Queue, found[0].Cause, found[0].Error)
	// Output: orders exhausted no stock
}

// Replay publishes the letters that a person has looked at.
func ExampleStore_Replay() {
	ctx, conn, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"}))
	letters, err := elastic.Open(ctx, client(), elastic.Config{})
	check(err)
	check(letters.Put(ctx, producer.Message{ID: "order-7", RoutingKey: "orders"}, producer.ErrNacked))
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()

	report, err := letters.Replay(ctx, publisher, elastic.Query{MessageIDs: []string{"order-7"}}, store.ReplayOptions{Rate: 100})
	fmt.Println(report.Sent, report.Failed, err)
	// Output: 1 0 <nil>
}

// Whoever manages the templates of a cluster writes this one.
func ExampleTemplate() {
	raw, err := elastic.Template(elastic.Config{Index: "shop-letters", NoTemplate: true})
	check(err)
	var template struct {
		Patterns []string `json:"index_patterns"`
	}
	check(json.Unmarshal(raw, &template))
	fmt.Println(template.Patterns)
	// Output: [shop-letters shop-letters-*]
}
