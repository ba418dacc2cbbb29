package consumer_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// deafConn is the connection of a client whose handshake asks for no basic.cancel.
type deafConn struct{ net.Conn }

func (c deafConn) Write(p []byte) (int, error) {
	return c.Conn.Write(bytes.ReplaceAll(p, []byte("consumer_cancel_notify"), []byte("consumer_cancel_ignore")))
}

// A broker that deletes the queue does not say so. The consumer finds it out by asking the queue for a sign.
func TestAQueueIsDeletedAndNobodySaysSo(t *testing.T) {
	on(t, "3.10", topology.Quorum, func(w *fixture) {
		conn, err := connection.Open(w.Context(), connection.Config{
			URLs: []string{"amqp://guest:guest@broker"}, Name: "deaf",
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := w.broker.Dial(ctx, network, address)
				return deafConn{c}, err
			},
		})
		if err != nil {
			w.Fatal(err)
		}
		declaring := w.conn
		defer declaring.Close()
		w.conn = conn // which the fixture closes
		c, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		w.begun()
		w.broker.DeleteQueue(w.orders.Name)
		time.Sleep(30 * time.Second)
		if err := c.Health(); err == nil {
			w.Error("Health says nothing of the queue that is gone")
		}
		if err := topology.Declare(w.Context(), declaring, w.orders); err != nil {
			w.Fatal(err)
		}
		w.publish(1)
		time.Sleep(time.Minute)
		if err := c.Health(); err != nil {
			w.Error(err)
		}
		w.has(w.orders.Name)
		w.stopped(stop)
	})
}
