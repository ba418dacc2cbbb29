// Reminders sends 10,000 reminders with random due times, cancels one, and prints
// how late they came.
//
// A message on its way through the levels cannot be taken back. So the handler
// looks whether its reminder still stands, as it would look into a database. Who
// has to cancel, list or change many messages that wait uses store.PutAt.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

const (
	reminders = 10_000
	furthest  = 30 * time.Second
)

// agenda says when each reminder is due, and which are cancelled.
type agenda struct {
	mu        sync.Mutex
	due       map[string]time.Time
	cancelled map[string]bool
	late      []time.Duration
	skipped   int
	seen      map[string]bool
	all       func() // called when each has come
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	conn, err := connection.Open(ctx, connection.Config{URLs: []string{os.Getenv("AMQP_URL")}})
	check(err)
	queue := topology.WorkQueue{Name: "reminders"}
	// Declared together, so that messages can be delayed to the queue.
	check(topology.Declare(ctx, conn, topology.Delays{Grain: 10 * time.Millisecond, Max: time.Hour}, queue))

	a := &agenda{due: map[string]time.Time{}, cancelled: map[string]bool{}, seen: map[string]bool{}, all: stop}
	worker, err := consumer.New(conn, queue, a.remind, consumer.Config{Concurrency: 16})
	check(err)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()

	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	began := time.Now()
	for i := range reminders {
		after := time.Second + time.Duration(rand.Int64N(int64(furthest-time.Second)))
		id := fmt.Sprintf("reminder-%05d", i)
		a.plan(id, time.Now().Add(after))
		publisher.PublishAsync(ctx, producer.Message{ID: id, RoutingKey: queue.Name, Delay: after, Body: []byte("call Anna")}, func(_ producer.Receipt, err error) {
			if err != nil && ctx.Err() == nil {
				log.Print(err)
			}
		})
	}
	check(publisher.Flush(ctx))
	fmt.Printf("%d reminders are safe after %v; the furthest is due in %v\n", reminders, time.Since(began).Round(time.Millisecond), furthest)
	a.cancel("reminder-00042")

	check(<-ended) // until each has come, or Ctrl-C
	a.report()
	check(publisher.Close())
	check(conn.Close())
}

func (a *agenda) plan(id string, due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due[id] = due
}

func (a *agenda) cancel(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancelled[id] = true
}

// remind is the handler.
func (a *agenda) remind(_ context.Context, d *consumer.Delivery) error {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	due, known := a.due[d.ID]
	if !known {
		return consumer.Discard("of an earlier run")
	}
	if !a.seen[d.ID] { // a crash of the broker can double a message
		a.seen[d.ID] = true
		if a.cancelled[d.ID] {
			a.skipped++
		} else {
			a.late = append(a.late, now.Sub(due))
		}
	}
	if len(a.seen) == reminders {
		a.all()
	}
	return nil
}

// report prints a histogram of how late the reminders came.
func (a *agenda) report() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.late) == 0 {
		return
	}
	slices.Sort(a.late)
	fmt.Printf("%d came, %d was cancelled; early: %d\n", len(a.late), a.skipped, sortedBelow(a.late, -time.Millisecond))
	bounds := []time.Duration{5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 60_000}
	from := 0
	for _, bound := range bounds {
		bound *= time.Millisecond
		to := sortedBelow(a.late, bound)
		if n := to - from; n > 0 {
			fmt.Printf("late up to %6v %6d %s\n", bound, n, strings.Repeat("#", 1+n*60/len(a.late)))
		}
		from = to
	}
	at := func(q float64) time.Duration {
		return a.late[int(q*float64(len(a.late)-1))].Round(100 * time.Microsecond)
	}
	fmt.Printf("p50 %v, p99 %v, max %v\n", at(0.5), at(0.99), at(1))
}

// sortedBelow returns how many durations of a sorted list are below a bound.
func sortedBelow(list []time.Duration, bound time.Duration) int {
	n, _ := slices.BinarySearch(list, bound)
	return n
}

// check ends the program at the first error.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
