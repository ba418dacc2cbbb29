package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// source is one way to come by a broker.
type source interface {
	// open gives a broker that is ready for work. An unavailable error sends the
	// caller to the next source; any other ends the search, since then this
	// source is the right one and something is wrong with it.
	open(context.Context, Options) (server, error)
}

// unavailable is why a source has nothing to give, in words that end the
// sentence "tried ...".
type unavailable string

func (u unavailable) Error() string { return string(u) }

// sources are all there are, in the order in which they are tried.
var sources = []source{given{}, docker{}}

func open(ctx context.Context, opts Options, sources []source) (server, error) {
	var tried []string
	for _, src := range sources {
		s, err := src.open(ctx, opts)
		var no unavailable
		if errors.As(err, &no) {
			tried = append(tried, string(no))
			continue
		}
		return s, err
	}
	return nil, fmt.Errorf("broker: no RabbitMQ to be had; start Docker, or set AMQP_URL to a broker that runs (tried %s)",
		strings.Join(tried, "; "))
}
