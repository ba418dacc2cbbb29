// Outage is a shop that takes orders while its broker is away: they are kept
// in a file meanwhile, and delivered when the broker is back.
//
//	go run ./integration/withbroker -outage 5s,20s -- go run ./examples/outage
//
// It ends with a table, and with an error if an order is lost, or arrived twice
// without a word about it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

const (
	exchange = "outage.shop"
	callers  = 10                     // customers who order at a time
	every    = 100 * time.Millisecond // each of them
)

func main() {
	length := flag.Duration("for", 45*time.Second, "how long orders are taken")
	svg := flag.String("svg", "", "a file for a drawing of the run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *length, *svg); err != nil {
		log.Fatal("outage: ", err)
	}
}

func run(ctx context.Context, length time.Duration, svg string) error {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{os.Getenv("AMQP_URL")}})
	if err != nil {
		return err
	}
	defer conn.Close()
	orders := topology.WorkQueue{Name: "outage.orders", Bindings: []topology.Binding{{Exchange: exchange, RoutingKey: "order.#"}}, Waits: delay.Default()}
	if err := topology.Declare(ctx, conn, topology.Exchange{Name: exchange}, orders); err != nil {
		return err
	}

	// The file for the time when the broker is away.
	dir, err := os.MkdirTemp("", "outage-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(filepath.Join(dir, "outbox.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{Conn: conn})
	if err != nil {
		return err
	}

	// The shop publishes, or stores.
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{outbox}})
	if err != nil {
		return err
	}
	defer publisher.Close()

	// A second producer, which stores nothing, publishes the stored orders.
	plain, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	defer plain.Close()

	t := newTally()
	forwarder, err := outbox.NewForwarder(plain, store.ForwardConfig{Traces: []store.ForwardTrace{{Forwarded: t.forward}}})
	if err != nil {
		return err
	}
	worker, err := consumer.New(conn, orders, func(_ context.Context, d *consumer.Delivery) error {
		t.arrive(d.ID)
		return nil
	}, consumer.Config{Concurrency: 16})
	if err != nil {
		return err
	}

	running, end := context.WithCancel(ctx)
	var services sync.WaitGroup
	defer services.Wait()
	defer end()
	services.Go(func() {
		if err := forwarder.Run(running); err != nil {
			log.Print("outage: ", err)
		}
	})
	services.Go(func() {
		if err := worker.Run(running); err != nil {
			log.Print("outage: ", err)
		}
	})
	services.Go(func() { t.show(running) })
	var samples []sample
	services.Go(func() { samples = t.watch(running, conn.Health) })

	takeOrders(ctx, publisher, length, t)
	if err := t.settle(ctx, outbox); err != nil {
		return err
	}
	end()
	services.Wait()
	if svg != "" {
		if err := os.WriteFile(svg, []byte(plot(samples)), 0o644); err != nil {
			return err
		}
	}
	return t.report()
}

// takeOrders publishes orders from all callers.
func takeOrders(ctx context.Context, publisher *producer.Producer, length time.Duration, t *tally) {
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for i := 0; time.Since(t.began) < length && ctx.Err() == nil; i++ {
				asked := time.Now()
				receipt, err := publisher.Publish(ctx, producer.Message{
					Exchange: exchange, RoutingKey: "order.paid", ID: fmt.Sprintf("order-%d-%d", c, i), Body: []byte("one ticket"),
				})
				t.take(receipt, err, time.Since(asked))
				<-tick.C
			}
		})
	}
	all.Wait()
}
