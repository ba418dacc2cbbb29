package broker

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// given is the broker that AMQP_URL names. It is somebody else's: it can be
// used, but not stopped.
type given struct{}

func (given) open(ctx context.Context, opts Options) (cluster, error) {
	nodes := givenNodes()
	if nodes == nil {
		return nil, unavailable("AMQP_URL, which is not set")
	}
	if len(nodes) < opts.Nodes {
		return nil, fmt.Errorf("broker: %d nodes are wanted, AMQP_URL and AMQP_URLS name %d; unset them to get a cluster in containers",
			opts.Nodes, len(nodes))
	}
	if opts.Version != "" {
		version, err := serverVersion(ctx, nodes[0].amqpURL)
		if err != nil {
			return nil, err
		}
		if err := mustBe(opts.Version, version, "the broker of AMQP_URL", "unset AMQP_URL to get one of that version"); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

func (given) versions(ctx context.Context, _ Options) ([]string, error) {
	nodes := givenNodes()
	if nodes == nil {
		return nil, unavailable("AMQP_URL, which is not set")
	}
	version, err := serverVersion(ctx, nodes[0].amqpURL)
	return []string{seriesOf(version)}, err
}

// givenNodes reads the environment. AMQP_URLS counts only if it begins with
// AMQP_URL: otherwise the two are not about the same broker.
func givenNodes() givenCluster {
	url := os.Getenv("AMQP_URL")
	if url == "" {
		return nil
	}
	nodes := givenCluster{{amqpURL: url, managementURL: os.Getenv("RABBITMQ_MANAGEMENT_URL")}}
	if all := strings.Split(os.Getenv("AMQP_URLS"), ","); all[0] == url {
		for _, other := range all[1:] {
			nodes = append(nodes, givenServer{amqpURL: other})
		}
	}
	return nodes
}

type givenCluster []givenServer

func (g givenCluster) servers() []server {
	var all []server
	for _, s := range g {
		all = append(all, s)
	}
	return all
}

func (givenCluster) partition(context.Context, server, server) error { return notOurs("Partition") }
func (givenCluster) heal(context.Context) error                      { return notOurs("Heal") }
func (givenCluster) upgrade(context.Context, string) error           { return notOurs("Upgrade") }
func (givenCluster) close(context.Context) error                     { return nil }

type givenServer struct{ amqpURL, managementURL string }

func (givenServer) Name() string            { return "" }
func (g givenServer) AMQPURL() string       { return g.amqpURL }
func (givenServer) AMQPSURL() string        { return "" }
func (g givenServer) ManagementURL() string { return g.managementURL }

func (givenServer) Stop(context.Context) error                      { return notOurs("Stop") }
func (givenServer) Start(context.Context) error                     { return notOurs("Start") }
func (givenServer) Kill(context.Context) error                      { return notOurs("Kill") }
func (givenServer) Pause(context.Context) error                     { return notOurs("Pause") }
func (givenServer) Unpause(context.Context) error                   { return notOurs("Unpause") }
func (givenServer) Exec(context.Context, ...string) (string, error) { return "", notOurs("Exec") }
func (givenServer) Logs(context.Context) (string, error)            { return "", notOurs("Logs") }
func (givenServer) Close(context.Context) error                     { return nil }

func notOurs(verb string) error {
	return fmt.Errorf("broker: cannot %s the broker of AMQP_URL; unset AMQP_URL to get one that can be", verb)
}
