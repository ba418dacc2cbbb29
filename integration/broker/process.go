package broker

import (
	"context"
	"fmt"
)

// process runs a broker as a child of this process, from what is installed.
type process struct{}

func (process) open(ctx context.Context, opts Options) (cluster, error) {
	if opts.Nodes > 1 {
		return nil, unavailable(fmt.Sprintf("a child process, which is one node and not %d", opts.Nodes))
	}
	inst, err := findInstallation(ctx, opts.Progress)
	if err != nil {
		return nil, err
	}
	if err := mustBe(opts.Version, inst.version, "what is installed", "start Docker, which has all versions"); err != nil {
		return nil, err
	}
	if err := startReaper(); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		p, err := newProcessServer(inst, opts)
		if err != nil {
			return nil, err
		}
		if err = p.Start(ctx); err == nil {
			return single{p}, nil
		}
		_ = p.Close(ctx) // why it did not start is the news; what is left the reaper takes
		if attempt == 5 || !portTaken(err) {
			return nil, err
		}
	}
}

func (process) versions(ctx context.Context, opts Options) ([]string, error) {
	inst, err := findInstallation(ctx, opts.Progress)
	return []string{seriesOf(inst.version)}, err
}
