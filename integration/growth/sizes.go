package main

import "context"

// sizes is about the size of messages.
func sizes() experiment {
	return experiment{
		name: "sizes", x: "bytes a message", at: []int{64, 1 << 10, 16 << 10, 128 << 10, 1 << 20},
		columns: []string{"rehop, messages/s", "amqp091-go, messages/s", "ratio"},
		plots:   []plotted{{file: "sizes", title: "64 publish, 64 handle", y: "messages/s", columns: []int{0, 1}, logX: true, logY: true}},
		measure: func(ctx context.Context, g *growth, x int) ([]float64, error) {
			rehop, raw, err := g.both(ctx, load{size: x})
			return []float64{rehop, raw, rehop / raw}, err
		},
	}
}

// shards is about the number of shards, on one node.
func shards() experiment {
	return experiment{
		name: "shards", x: "shards", at: []int{1, 2, 4, 8},
		columns: []string{"rehop, messages/s", "amqp091-go, messages/s", "ratio"},
		plots:   []plotted{{file: "shards", title: "64 publish, 64 handle, in order by key", y: "messages/s", columns: []int{0, 1}}},
		measure: func(ctx context.Context, g *growth, x int) ([]float64, error) {
			rehop, raw, err := g.both(ctx, load{size: 256, shards: x})
			return []float64{rehop, raw, rehop / raw}, err
		},
	}
}
