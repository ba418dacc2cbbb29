package consumer

import (
	"context"
	"errors"
	"testing"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// What the next Run begins with is not taken back by the end of the one before.
func TestRunHasLeftEverythingBeforeItMayRunAgain(t *testing.T) {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://broker"}, Dial: broker.Dial})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	for rule, source := range map[string]topology.Source{
		"a work queue":                topology.WorkQueue{Name: "orders"},
		"shards that processes share": topology.Shards{Name: "bills", Count: 2, SingleActiveConsumer: true},
	} {
		t.Run(rule, func(t *testing.T) {
			c, err := New(conn, source, func(context.Context, *Delivery) error { return nil }, Config{})
			if err != nil {
				t.Fatal(err)
			}
			ended := false
			err = c.run(t.Context(), func() {
				ended = true
				if c.runs != nil {
					t.Error("Run may run again, and Pause would reach its old lanes")
				}
				if err := c.Health(); !errors.Is(err, errNotRunning) {
					t.Errorf("Run may run again, and Health is %v", err)
				}
			})
			if !ended || !errors.Is(err, connection.ErrClosed) {
				t.Errorf("ended: %t, %v; want that it has, with ErrClosed", ended, err)
			}
		})
	}
}
