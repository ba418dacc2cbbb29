package rehop_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// A broker comes back without its queues, for example because it was replaced.
// OnConnect declares them on the new connection before anything is published again.
// (The fault is made by closing every socket; Dial keeps them for that.)
func Example_onUp() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	orders := topology.WorkQueue{Name: "example.onup"}
	var sockets cutter
	conn, err := connection.Open(ctx, connection.Config{
		URLs: []string{os.Getenv("AMQP_URL")},
		OnConnect: func(ctx context.Context, conn *connection.Conn) error {
			fmt.Println("declare")
			return topology.Declare(ctx, conn, orders)
		},
		Dial: sockets.dial,
	})
	check(err)
	defer conn.Close()
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()

	publish := func() {
		receipt, err := publisher.Publish(ctx, producer.Message{RoutingKey: orders.Name, Body: []byte("Anna")})
		check(err)
		fmt.Println("safe in:", receipt.Place)
	}
	publish()

	remove(ctx, conn, orders.Name)
	sockets.cut()
	publish()

	// Output:
	// declare
	// safe in: queue
	// declare
	// safe in: queue
}

func remove(ctx context.Context, conn *connection.Conn, queue string) {
	session, err := conn.Session(ctx, connection.Consume)
	check(err)
	_, err = session.Channel().QueueDelete(queue, false, false, false)
	check(err)
}

// cutter dials, and cuts what it has dialled.
type cutter struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	return conn, err
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
}
