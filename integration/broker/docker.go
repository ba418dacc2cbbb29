package broker

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// docker runs brokers in containers.
type docker struct{}

func (docker) open(ctx context.Context, opts Options) (server, error) {
	provider, err := connect(ctx)
	if err != nil {
		return nil, unavailable(fmt.Sprintf("Docker, which does not answer: %v", err))
	}
	// Idle connections only; whoever needs the provider again gets new ones.
	defer provider.Close()

	image, err := findImage(ctx, provider.Client(), opts)
	if err != nil {
		return nil, err
	}
	if err := startReaper(); err != nil {
		return nil, err
	}
	host := daemonHost(provider.Client())
	for attempt := 1; ; attempt++ {
		c, err := create(ctx, provider, image, host, opts)
		if err != nil {
			return nil, err
		}
		if err = c.Start(ctx); err == nil {
			return c, nil
		}
		_ = c.Close(ctx) // why it did not start is the news; what is left the reaper takes
		if attempt == 5 || !portTaken(err) {
			return nil, err
		}
	}
}

// connect returns a provider of a Docker that answers.
func connect(ctx context.Context) (*testcontainers.DockerProvider, error) {
	settings()
	provider, err := testcontainers.NewDockerProvider()
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

// create makes the container of a broker, not yet started, on ports of its own.
func create(ctx context.Context, provider *testcontainers.DockerProvider, image, host string, opts Options) (*containerServer, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	bind := netip.IPv4Unspecified()
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		bind = ip // the broker of a test is nobody else's business
	}
	binding := func(port int) []network.PortBinding {
		return []network.PortBinding{{HostIP: bind, HostPort: strconv.Itoa(port)}}
	}
	env := map[string]string{
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": fmt.Sprintf(
			"-rabbit dead_letter_worker_publisher_confirm_timeout %d", opts.LetterTimeout.Milliseconds()),
	}
	for k, v := range opts.Env {
		env[k] = v
	}
	made, err := provider.CreateContainer(ctx, testcontainers.ContainerRequest{
		Image:        image,
		Name:         fmt.Sprintf("%s-%s-%d", opts.Name, opts.Version, ports[0]),
		Labels:       map[string]string{runLabel: runID},
		Env:          env,
		ExposedPorts: []string{"5672/tcp", "15672/tcp"},
		HostConfigModifier: func(hc *container.HostConfig) {
			hc.PortBindings = network.PortMap{
				network.MustParsePort("5672/tcp"):  binding(ports[0]),
				network.MustParsePort("15672/tcp"): binding(ports[1]),
			}
		},
		Files: []testcontainers.ContainerFile{{
			Reader:            strings.NewReader("loopback_users.guest = false\n" + opts.Conf + "\n"),
			ContainerFilePath: "/etc/rabbitmq/conf.d/90-broker.conf",
			FileMode:          0o644,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("broker: create a container of %s: %w", image, err)
	}
	return &containerServer{
		provider:      provider,
		container:     made,
		id:            made.GetContainerID(),
		amqpURL:       fmt.Sprintf("amqp://guest:guest@%s:%d/", host, ports[0]),
		managementURL: fmt.Sprintf("http://guest:guest@%s:%d", host, ports[1]),
	}, nil
}
