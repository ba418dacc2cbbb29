package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// containerCluster is several containers on a network of their own.
type containerCluster struct {
	provider *testcontainers.DockerProvider
	network  string
	nodes    []*containerServer
}

// cluster starts all nodes at once: one that starts alone looks for the others
// until it has given up each of their names.
func (m maker) cluster(ctx context.Context) (*containerCluster, error) {
	c := &containerCluster{
		provider: m.provider,
		network:  m.opts.Name + "-" + rand.Text(),
		nodes:    make([]*containerServer, m.opts.Nodes),
	}
	_, err := m.provider.Client().NetworkCreate(ctx, c.network, client.NetworkCreateOptions{
		Labels: map[string]string{runLabel: runID},
	})
	if err != nil {
		return nil, fmt.Errorf("broker: create a network: %w", err)
	}
	cookie, conf := rand.Text(), peers(m.opts.Nodes)
	errs := make([]error, m.opts.Nodes)
	var wg sync.WaitGroup
	for i := range c.nodes {
		wg.Go(func() {
			c.nodes[i], errs[i] = m.start(ctx, place{
				network:  c.network,
				hostname: peer(i),
				cookie:   cookie,
				conf:     conf,
			})
		})
	}
	wg.Wait()
	err = errors.Join(errs...)
	if err == nil {
		// A node that finds nobody in time starts all the same, on its own.
		_, err = c.nodes[0].Exec(ctx, "rabbitmqctl", "await_online_nodes", strconv.Itoa(m.opts.Nodes), "--timeout", "30")
	}
	if err != nil {
		c.nodes = slices.DeleteFunc(c.nodes, func(n *containerServer) bool { return n == nil })
		_ = c.close(ctx) // why it did not start is the news; what is left the reaper takes
		return nil, err
	}
	return c, nil
}

func peer(i int) string { return fmt.Sprintf("rmq%d", i+1) }

// peers is the configuration that makes n nodes find each other.
func peers(n int) string {
	var conf strings.Builder
	fmt.Fprintln(&conf, "cluster_formation.peer_discovery_backend = classic_config")
	for i := range n {
		fmt.Fprintf(&conf, "cluster_formation.classic_config.nodes.%d = rabbit@%s\n", i+1, peer(i))
	}
	return conf.String()
}

func (c *containerCluster) servers() []server {
	var all []server
	for _, n := range c.nodes {
		all = append(all, n)
	}
	return all
}

func (c *containerCluster) close(ctx context.Context) error {
	defer c.provider.Close()
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Close(ctx))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(append(errs, removeNetwork(ctx, c.provider.Client(), c.network))...)
}

// removeNetwork takes a network away that no container is on any more.
func removeNetwork(ctx context.Context, cli client.APIClient, network string) error {
	_, err := cli.NetworkRemove(ctx, network, client.NetworkRemoveOptions{})
	if err != nil && !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("broker: remove network %s: %w", network, err)
	}
	return nil
}
