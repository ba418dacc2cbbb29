package broker

import (
	"context"
	"errors"
	"io"
)

// Kind is one source of brokers that are ours.
type Kind struct {
	Name   string
	source source
}

var Container, Process = Kind{"container", docker{}}, Kind{"process", process{}}

// Start is Start where this source is the only one.
func (k Kind) Start(ctx context.Context, opts Options) (*Broker, error) {
	return start(ctx, opts, []source{k.source})
}

// Versions says what Start could give, or why it could give nothing.
func (k Kind) Versions(ctx context.Context) ([]string, error) {
	return k.source.versions(ctx, Options{}.withDefaults())
}

// Started reports whether what a server has printed says that it is up.
func Started(printed io.Reader) bool {
	_, err := io.Copy(&lineFinder{line: []byte(startedLine)}, printed)
	return errors.Is(err, errFound)
}
