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
	maker    maker
	network  string
	nodes    []*containerServer
}

// cluster starts all nodes at once: one that starts alone looks for the others
// until it has given up each of their names.
func (m maker) cluster(ctx context.Context) (*containerCluster, error) {
	c := &containerCluster{
		provider: m.provider,
		maker:    m,
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
	err = c.each(func(i int) (err error) {
		c.nodes[i], err = m.start(ctx, place{
			network:  c.network,
			hostname: peer(i),
			cookie:   cookie,
			conf:     conf,
		})
		return err
	})
	if err == nil {
		err = c.whole(ctx)
	}
	if err != nil {
		c.nodes = slices.DeleteFunc(c.nodes, func(n *containerServer) bool { return n == nil })
		_ = c.close(ctx) // why it did not start is the news; what is left the reaper takes
		return nil, err
	}
	return c, nil
}

// each does something with the number of each node, all at once.
func (c *containerCluster) each(do func(i int) error) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i := range c.nodes {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// whole returns when all nodes are one cluster. A node that finds nobody in time
// starts all the same, on its own.
func (c *containerCluster) whole(ctx context.Context) error {
	_, err := c.nodes[0].Exec(ctx, "rabbitmqctl", "await_online_nodes", strconv.Itoa(len(c.nodes)), "--timeout", "30")
	return err
}

// upgrade puts another container in the place of each, which has its data.
func (c *containerCluster) upgrade(ctx context.Context, version string) error {
	defer c.provider.Close()
	m := c.maker
	m.opts.Version = version
	var err error
	if m.image, err = findImage(ctx, c.provider.Client(), m.opts); err != nil {
		return err
	}
	if err := c.each(func(i int) error { return c.nodes[i].Stop(ctx) }); err != nil {
		return err
	}
	if err := c.each(func(i int) error {
		old := c.nodes[i].id
		at := c.nodes[i].at
		at.data = old
		fresh, err := m.create(ctx, at)
		if err != nil {
			return err
		}
		*c.nodes[i] = *fresh
		// Its volume stays, because the other container uses it.
		return errors.Join(remove(ctx, c.provider.Client(), old), fresh.Start(ctx))
	}); err != nil {
		return err
	}
	c.maker = m
	return c.whole(ctx)
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
