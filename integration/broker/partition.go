package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/moby/moby/client"
)

// partition makes each of the two drop what comes from the other. The rules are
// in the containers' own network namespaces, but set from outside, since images
// of RabbitMQ have no tools for it. To take a container off the network instead
// would take its clients away too, and its address.
//
// Incoming packets, not outgoing ones: the kernel tells a sender whose own packet
// it drops, and a network that is cut says nothing.
func (c *containerCluster) partition(ctx context.Context, one, other server) error {
	a, ok1 := one.(*containerServer)
	b, ok2 := other.(*containerServer)
	if !ok1 || !ok2 || a == b || a.at.network != c.network || b.at.network != c.network {
		return errors.New("broker: Partition wants two different nodes of this broker")
	}
	defer c.provider.Close()
	atA, err := a.address(ctx)
	if err != nil {
		return err
	}
	atB, err := b.address(ctx)
	if err != nil {
		return err
	}
	if err := atA.iptables(ctx, "--insert", "INPUT", "--source", atB.ip, "--jump", "DROP"); err != nil {
		return err
	}
	return atB.iptables(ctx, "--insert", "INPUT", "--source", atA.ip, "--jump", "DROP")
}

// heal drops the rules of every node that runs. Nobody else has any there, and
// those of a node that is down went with its namespace.
func (c *containerCluster) heal(ctx context.Context) error {
	defer c.provider.Close()
	for _, n := range c.nodes {
		at, err := n.address(ctx)
		if errors.Is(err, errDown) {
			continue
		}
		if err != nil {
			return err
		}
		if err := at.iptables(ctx, "--flush", "INPUT"); err != nil {
			return err
		}
	}
	return nil
}

var errDown = errors.New("it does not run")

// address is where a container is on its cluster's network, until it stops.
type address struct{ ip, namespace string }

func (c *containerServer) address(ctx context.Context) (address, error) {
	is, err := c.provider.Client().ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	if err != nil {
		return address{}, fmt.Errorf("broker: partition of %s: %w", c.name, err)
	}
	if !is.Container.State.Running {
		return address{}, fmt.Errorf("broker: partition of %s: %w", c.name, errDown)
	}
	settings := is.Container.NetworkSettings
	return address{
		ip: settings.Networks[c.at.network].IPAddress.String(),
		// By path and not by process id, which on a machine that is not the one
		// of Docker may be somebody else's.
		namespace: settings.SandboxKey,
	}, nil
}

func (a address) iptables(ctx context.Context, args ...string) error {
	args = append([]string{"--net=" + a.namespace, "iptables", "--wait"}, args...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("broker: partition needs root on the Linux machine that runs Docker, with nsenter and iptables: %w: %s",
			err, bytes.TrimSpace(out))
	}
	return nil
}
