package broker

import (
	"context"
	"fmt"
	"os"
)

// given is the broker that AMQP_URL names. It is somebody else's: it can be
// used, but not stopped.
type given struct{ amqpURL, managementURL string }

func (given) open(_ context.Context, opts Options) (server, error) {
	url := os.Getenv("AMQP_URL")
	if url == "" {
		return nil, unavailable("AMQP_URL, which is not set")
	}
	return given{amqpURL: url, managementURL: os.Getenv("RABBITMQ_MANAGEMENT_URL")}, nil
}

func (g given) AMQPURL() string       { return g.amqpURL }
func (g given) ManagementURL() string { return g.managementURL }

func (given) Stop(context.Context) error                      { return notOurs("Stop") }
func (given) Start(context.Context) error                     { return notOurs("Start") }
func (given) Kill(context.Context) error                      { return notOurs("Kill") }
func (given) Pause(context.Context) error                     { return notOurs("Pause") }
func (given) Unpause(context.Context) error                   { return notOurs("Unpause") }
func (given) Exec(context.Context, ...string) (string, error) { return "", notOurs("Exec") }
func (given) Logs(context.Context) (string, error)            { return "", notOurs("Logs") }
func (given) Close(context.Context) error                     { return nil }

func notOurs(verb string) error {
	return fmt.Errorf("broker: cannot %s the broker of AMQP_URL; unset AMQP_URL to get one in a container", verb)
}
