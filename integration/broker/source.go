package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// source is one way to come by a broker. An unavailable error sends the caller
// to the next source; any other ends the search, since then this source is the
// right one and something is wrong with it.
type source interface {
	// open gives a broker that is ready for work.
	open(context.Context, Options) (cluster, error)

	// versions says what open could give, such as "4.3". Of Options it looks at
	// Progress alone.
	versions(context.Context, Options) ([]string, error)
}

// cluster is what a source gives: at least one server.
type cluster interface {
	servers() []server
	partition(ctx context.Context, one, other server) error
	heal(context.Context) error
	upgrade(ctx context.Context, version string) error
	close(context.Context) error
}

// single is a cluster of one.
type single struct{ server }

func (s single) servers() []server               { return []server{s.server} }
func (s single) close(ctx context.Context) error { return s.Close(ctx) }
func (single) heal(context.Context) error        { return nil }
func (single) upgrade(context.Context, string) error {
	return errors.New("broker: Upgrade of a single node; ask for more in Options.Nodes")
}
func (single) partition(context.Context, server, server) error {
	return errors.New("broker: Partition of a single node; ask for more in Options.Nodes")
}

// unavailable is why a source has nothing to give, in words that end the
// sentence "tried ...".
type unavailable string

func (u unavailable) Error() string { return string(u) }

// sources are all there are, in the order in which they are tried.
var sources = []source{given{}, docker{}, process{}}

func open(ctx context.Context, opts Options, sources []source) (cluster, error) {
	return first(sources, func(src source) (cluster, error) { return src.open(ctx, opts) })
}

// first asks one source after the other, until one is not unavailable.
func first[T any](sources []source, ask func(source) (T, error)) (T, error) {
	var tried []string
	for _, src := range sources {
		answer, err := ask(src)
		var no unavailable
		if errors.As(err, &no) {
			tried = append(tried, string(no))
			continue
		}
		return answer, err
	}
	var nothing T
	return nothing, fmt.Errorf("broker: no RabbitMQ to be had; start Docker, or set AMQP_URL to a broker that runs (tried %s)",
		strings.Join(tried, "; "))
}
