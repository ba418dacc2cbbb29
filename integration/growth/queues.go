package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/topology"
)

// queues is about work queues with four waits each.
func queues() experiment {
	return experiment{
		name: "queues", x: "work queues", at: []int{1, 10, 50, 100, 200},
		columns: []string{"first, s", "again, s", "broker memory, MiB", "client heap, MiB"},
		plots: []plotted{
			{file: "queues", title: "Declare of work queues with four waits each", y: "s", columns: []int{0, 1}},
			{file: "queues-memory", title: "memory of the broker with work queues of four waits each", y: "MiB", columns: []int{2}},
		},
		measure: declared,
	}
}

func declared(ctx context.Context, g *growth, n int) (figures []float64, err error) {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{g.url}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var specs []topology.Spec
	prefix := "rehop-growth-" + rand.Text()
	for i := range n {
		specs = append(specs, topology.WorkQueue{
			Name: fmt.Sprintf("%s.%03d", prefix, i), Type: topology.Quorum,
			Waits: delay.Schedule{time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute},
		})
	}
	defer func() { err = errors.Join(err, topology.Delete(context.WithoutCancel(ctx), conn, specs...)) }()
	for range 2 {
		began := time.Now()
		if err := topology.Declare(ctx, conn, specs...); err != nil {
			return nil, err
		}
		figures = append(figures, time.Since(began).Seconds())
	}
	memory, err := g.brokerMemory(ctx)
	return append(figures, memory, heap()), err
}

// brokerMemory returns what the broker says of its node after its next report, in MiB.
func (g *growth) brokerMemory(ctx context.Context) (float64, error) {
	if !pause.For(ctx, 10*time.Second) { // the management plugin asks every 5 s
		return 0, ctx.Err()
	}
	address, err := url.JoinPath(g.api, "api/nodes")
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, err
	}
	if request.URL.User == nil {
		request.SetBasicAuth("guest", "guest")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", request.URL.Redacted(), answer.Status)
	}
	var nodes []struct {
		Used float64 `json:"mem_used"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&nodes); err != nil {
		return 0, err
	}
	if len(nodes) == 0 {
		return 0, errors.New("the broker lists no node")
	}
	return nodes[0].Used / (1 << 20), nil
}

// purge empties all queues of a topology.
func purge(specs []topology.Spec, v connection.Version) func(*amqp.Channel) error {
	return func(ch *amqp.Channel) error {
		plan, err := topology.NewPlan(v, specs...)
		if err != nil {
			return err
		}
		for _, name := range plan.Queues() {
			if _, err := ch.QueuePurge(name, false); err != nil {
				return err
			}
		}
		return nil
	}
}
