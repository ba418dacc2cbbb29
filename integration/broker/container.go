package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcexec "github.com/testcontainers/testcontainers-go/exec"
)

// stopPatience is how long a server may take to stop before Docker kills it,
// which a test would mistake for an orderly end.
const stopPatience = 60 * time.Second

// containerServer is a broker in a container.
type containerServer struct {
	provider               *testcontainers.DockerProvider
	container              testcontainers.Container
	id                     string
	name                   string
	at                     place
	amqpURL, managementURL string
	amqpsURL               string // empty without TLS
}

func (c *containerServer) Name() string          { return c.name }
func (c *containerServer) AMQPURL() string       { return c.amqpURL }
func (c *containerServer) AMQPSURL() string      { return c.amqpsURL }
func (c *containerServer) ManagementURL() string { return c.managementURL }

func (c *containerServer) Start(ctx context.Context) error {
	defer c.provider.Close()
	if err := c.container.Start(ctx); err != nil {
		return fmt.Errorf("broker: start: %w", err)
	}
	return c.awaitReady(ctx)
}

func (c *containerServer) Stop(ctx context.Context) error {
	defer c.provider.Close()
	patience := stopPatience
	if err := c.container.Stop(ctx, &patience); err != nil {
		return fmt.Errorf("broker: stop: %w", err)
	}
	return nil
}

func (c *containerServer) Kill(ctx context.Context) error {
	defer c.provider.Close()
	cli := c.provider.Client()
	if _, err := cli.ContainerKill(ctx, c.id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		return fmt.Errorf("broker: kill: %w", err)
	}
	// Killed is not yet gone: only after that can it be started again.
	gone := cli.ContainerWait(ctx, c.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-gone.Result:
		return nil
	case err := <-gone.Error:
		return fmt.Errorf("broker: kill: %w", err)
	}
}

// Pause tries again where the kernel does not freeze the server in the time that runc gives
// it, as on a busy machine. The server runs on after such a try.
func (c *containerServer) Pause(ctx context.Context) error {
	defer c.provider.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := poll(ctx, func() (bool, error) {
		_, err := c.provider.Client().ContainerPause(ctx, c.id, client.ContainerPauseOptions{})
		if err != nil && strings.Contains(err.Error(), "unable to freeze") {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("broker: pause: %w", err)
	}
	return nil
}

func (c *containerServer) Unpause(ctx context.Context) error {
	defer c.provider.Close()
	if _, err := c.provider.Client().ContainerUnpause(ctx, c.id, client.ContainerUnpauseOptions{}); err != nil {
		return fmt.Errorf("broker: unpause: %w", err)
	}
	return nil
}

func (c *containerServer) Exec(ctx context.Context, args ...string) (string, error) {
	defer c.provider.Close()
	if len(args) == 0 {
		return "", errors.New("broker: Exec without a command")
	}
	code, reader, err := c.container.Exec(ctx, args, tcexec.Multiplexed())
	if err != nil {
		return "", fmt.Errorf("broker: %s: %w", strings.Join(args, " "), err)
	}
	output, err := io.ReadAll(reader)
	if err != nil {
		return "", fmt.Errorf("broker: %s: %w", strings.Join(args, " "), err)
	}
	if code != 0 {
		return string(output), fmt.Errorf("broker: %s: exit status %d: %s",
			strings.Join(args, " "), code, bytes.TrimSpace(output))
	}
	return string(output), nil
}

func (c *containerServer) Logs(ctx context.Context) (string, error) {
	defer c.provider.Close()
	var text strings.Builder
	if err := c.copyLogs(ctx, &text, client.ContainerLogsOptions{}); err != nil {
		return "", err
	}
	return text.String(), nil
}

func (c *containerServer) copyLogs(ctx context.Context, to io.Writer, options client.ContainerLogsOptions) error {
	options.ShowStdout, options.ShowStderr = true, true
	logs, err := c.provider.Client().ContainerLogs(ctx, c.id, options)
	if err != nil {
		return fmt.Errorf("broker: logs: %w", err)
	}
	defer logs.Close()
	if _, err := stdcopy.StdCopy(to, to, logs); err != nil {
		return fmt.Errorf("broker: logs: %w", err)
	}
	return nil
}

// Close is given time of its own: it is often called because ctx is over.
func (c *containerServer) Close(ctx context.Context) error {
	defer c.provider.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return remove(ctx, c.provider.Client(), c.id)
}

// remove takes a container away in whatever state it is, with its volumes.
func remove(ctx context.Context, cli client.APIClient, id string) error {
	_, err := cli.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("broker: remove container %.12s: %w", id, err)
	}
	return nil
}
