package broker

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// docker runs brokers in containers.
type docker struct{}

func (docker) open(ctx context.Context, opts Options) (cluster, error) {
	provider, err := connect(ctx)
	if err != nil {
		return nil, unavailable(fmt.Sprintf("Docker, which does not answer: %v", err))
	}
	// Idle connections only; whoever needs the provider again gets new ones.
	defer provider.Close()

	opts.Version = cmp.Or(opts.Version, Series[len(Series)-1])
	image, err := findImage(ctx, provider.Client(), opts)
	if err != nil {
		return nil, err
	}
	if err := startReaper(); err != nil {
		return nil, err
	}
	m := maker{provider: provider, image: image, host: daemonHost(provider.Client()), opts: opts}
	if opts.Nodes > 1 {
		return m.cluster(ctx)
	}
	c, err := m.start(ctx, place{})
	if err != nil {
		return nil, err
	}
	return single{c}, nil
}

func (docker) versions(ctx context.Context, _ Options) ([]string, error) {
	provider, err := connect(ctx)
	if err != nil {
		return nil, unavailable(fmt.Sprintf("Docker, which does not answer: %v", err))
	}
	return slices.Clone(Series), provider.Close()
}

// connect returns a provider of a Docker that answers.
func connect(ctx context.Context) (*testcontainers.DockerProvider, error) {
	settings()
	if err := answers(ctx, os.Getenv("DOCKER_HOST")); err != nil {
		return nil, err
	}
	// Without a name for Docker's bridge every container would also join a second
	// network, by which the nodes of a cluster may reach each other: a cut of
	// their own network would then cut nothing.
	provider, err := testcontainers.NewDockerProvider(testcontainers.WithDefaultBridgeNetwork(testcontainers.Bridge))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := provider.Client().Ping(ctx, client.PingOptions{}); err != nil {
		_ = provider.Close()
		return nil, err
	}
	return provider, nil
}

// answers returns why the Docker that DOCKER_HOST names does not answer. Asked
// for one that is not there, testcontainers silently takes another.
func answers(ctx context.Context, host string) error {
	if host == "" {
		return nil
	}
	cli, err := client.New(client.FromEnv)
	if err != nil {
		return err
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = cli.Ping(ctx, client.PingOptions{})
	return err
}

// settings adapts testcontainers, once, before its first use reads them.
var settings = sync.OnceFunc(func() {
	// Its own reaper is one more image to pull; ours (see reaper.go) is this program.
	if _, ok := os.LookupEnv("TESTCONTAINERS_RYUK_DISABLED"); !ok {
		_ = os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true") // fails for malformed names only
	}
	log.SetDefault(log.NewNoopLogger())
})

// daemonHost is where the ports of containers appear. We do not ask
// testcontainers: inside a container that has Docker's socket it looks for a
// gateway, which older engines do not name, and waits for it in vain.
func daemonHost(cli client.APIClient) string {
	if host := os.Getenv("TESTCONTAINERS_HOST_OVERRIDE"); host != "" {
		return host
	}
	if daemon, err := url.Parse(cli.DaemonHost()); err == nil && daemon.Hostname() != "" {
		return daemon.Hostname() // tcp://host:port, a Docker elsewhere
	}
	return "127.0.0.1"
}
