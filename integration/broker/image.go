package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/moby/moby/client"

	"github.com/rehop/rehop/integration/images"
)

// pullPatience is how long a pull may go without news. A registry that cannot be
// reached must not cost the minutes that a working pull may well take.
const pullPatience = 10 * time.Second

// findImage returns an image that is on the Docker host, and gets it there if
// need be.
func findImage(ctx context.Context, cli client.APIClient, opts Options) (string, error) {
	present := func(image string) bool {
		_, err := cli.ImageInspect(ctx, image)
		return err == nil
	}
	if image := os.Getenv("RABBITMQ_IMAGE"); image != "" {
		if present(image) {
			return image, nil
		}
		if err := pull(ctx, cli, image, opts); err != nil {
			return "", fmt.Errorf("broker: no image %s here, and none to pull; unset RABBITMQ_IMAGE or correct it: %w", image, err)
		}
		return image, nil
	}

	official, built := "rabbitmq:"+opts.Version+"-management", images.Name(opts.Version)
	for _, image := range []string{official, built} {
		if present(image) {
			return image, nil
		}
	}
	pullErr := pull(ctx, cli, official, opts)
	if pullErr == nil {
		return official, nil
	}
	fmt.Fprintf(opts.Progress, "broker: cannot pull %s (%v); building one instead, about half a minute\n", official, pullErr)
	buildErr := images.Build(ctx, opts.Version, opts.Progress)
	if buildErr == nil {
		return built, nil
	}
	return "", fmt.Errorf("broker: no image of RabbitMQ %s to be had; load one into Docker and name it in RABBITMQ_IMAGE "+
		"(tried local %s and %s; pulling the first: %w; building the second: %w)", opts.Version, official, built, pullErr, buildErr)
}

// pull fetches an image and gives up when it hears nothing for pullPatience.
func pull(ctx context.Context, cli client.APIClient, image string, opts Options) error {
	fmt.Fprintf(opts.Progress, "broker: pulling %s\n", image)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(pullPatience, func() {
		cancel(fmt.Errorf("the registry has been silent for %v", pullPatience))
	})
	defer silence.Stop()

	progress, err := cli.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	for message, err := range progress.JSONMessages(ctx) {
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		if message.Error != nil {
			return errors.New(message.Error.Message)
		}
		silence.Reset(pullPatience)
	}
	return context.Cause(ctx)
}
