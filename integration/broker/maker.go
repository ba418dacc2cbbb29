package broker

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
)

// maker makes the containers of one broker.
type maker struct {
	provider *testcontainers.DockerProvider
	image    string
	host     string // where the ports of containers appear
	opts     Options
}

// place is where a container stands in a cluster. The zero value is a broker of
// its own.
type place struct {
	network, hostname string
	cookie            string // the secret that the nodes share
	conf              string
	ports             []int  // of AMQP, the management API and AMQP over TLS; nil for free ones
	data              string // the id of the container that has the data; empty for a new node
}

// start makes and starts a container, again on other ports if somebody was
// faster to take those that were free.
func (m maker) start(ctx context.Context, at place) (*containerServer, error) {
	for attempt := 1; ; attempt++ {
		c, err := m.create(ctx, at)
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

// create makes a container, not yet started.
func (m maker) create(ctx context.Context, at place) (*containerServer, error) {
	if at.ports == nil {
		var err error
		if at.ports, err = freePorts(3); err != nil {
			return nil, err
		}
	}
	ports := at.ports
	bind := netip.IPv4Unspecified()
	if ip, err := netip.ParseAddr(m.host); err == nil && ip.IsLoopback() {
		bind = ip // the broker of a test is nobody else's business
	}
	binding := func(port int) []network.PortBinding {
		return []network.PortBinding{{HostIP: bind, HostPort: strconv.Itoa(port)}}
	}
	env := map[string]string{"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": m.opts.erlArgs()}
	maps.Copy(env, m.opts.Env)
	request := testcontainers.ContainerRequest{
		Image:          m.image,
		Name:           fmt.Sprintf("%s-%s-%d", m.opts.Name, m.opts.Version, ports[0]),
		Labels:         map[string]string{runLabel: runID},
		Env:            env,
		ExposedPorts:   []string{"5672/tcp", "15672/tcp", "5671/tcp"},
		ConfigModifier: func(c *container.Config) { c.Hostname = at.hostname },
		HostConfigModifier: func(hc *container.HostConfig) {
			hc.PortBindings = network.PortMap{
				network.MustParsePort("5672/tcp"):  binding(ports[0]),
				network.MustParsePort("15672/tcp"): binding(ports[1]),
				network.MustParsePort("5671/tcp"):  binding(ports[2]),
			}
			if at.data != "" {
				hc.VolumesFrom = []string{at.data}
			}
		},
		Files: []testcontainers.ContainerFile{{
			Reader:            strings.NewReader("loopback_users.guest = false\n" + at.conf + m.opts.TLS.conf("5671", "/etc/rabbitmq") + m.opts.Conf + "\n"),
			ContainerFilePath: "/etc/rabbitmq/conf.d/90-broker.conf",
			FileMode:          0o644,
		}},
	}
	for name, text := range m.opts.TLS.files() {
		request.Files = append(request.Files, testcontainers.ContainerFile{
			Reader:            strings.NewReader(text),
			ContainerFilePath: "/etc/rabbitmq/" + name,
			FileMode:          0o644,
		})
	}
	if at.network != "" {
		// A file and not RABBITMQ_ERLANG_COOKIE, about which every command complains.
		request.Files = append(request.Files, testcontainers.ContainerFile{
			Reader:            strings.NewReader(at.cookie),
			ContainerFilePath: "/var/lib/rabbitmq/.erlang.cookie",
			FileMode:          0o400,
		})
		request.Networks = []string{at.network}
		request.NetworkAliases = map[string][]string{at.network: {at.hostname}}
	}
	made, err := m.provider.CreateContainer(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("broker: create a container of %s: %w", m.image, err)
	}
	amqpsURL := ""
	if m.opts.TLS != nil {
		amqpsURL = fmt.Sprintf("amqps://guest:guest@%s:%d/", m.host, ports[2])
	}
	id := made.GetContainerID()
	if at.hostname == "" {
		at.hostname = id[:12] // Docker's own choice
	}
	return &containerServer{
		provider:      m.provider,
		container:     made,
		id:            id,
		name:          "rabbit@" + at.hostname,
		at:            at,
		amqpURL:       fmt.Sprintf("amqp://guest:guest@%s:%d/", m.host, ports[0]),
		amqpsURL:      amqpsURL,
		managementURL: fmt.Sprintf("http://guest:guest@%s:%d", m.host, ports[1]),
	}, nil
}
