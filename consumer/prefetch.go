package consumer

import (
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/internal/route"
)

// prefetchOf returns the prefetch of a queue. If it is that of a lane, at least one message
// is sent ahead of the handlers: when a handler becomes free, this message shows that the
// lane is not empty.
func prefetchOf(cfg settings, source route.Facts, lane bool) intake.Prefetch {
	switch {
	case cfg.Prefetch > 0:
		return intake.Prefetch{Base: cfg.Prefetch, Fixed: true}
	case cfg.Batch.Size > 0:
		ahead := 1
		if source.ByPriority && !lane {
			ahead = 0 // what is sent ahead is handled before any of a higher priority
		}
		return intake.Prefetch{Base: prefetchOfBatches(cfg, ahead), Fixed: true}
	case cfg.KeyLimit > 0:
		return intake.Prefetch{Base: prefetchOfKeys(cfg.Config), Fixed: cfg.KeyLimit == 1 || !follows(source)}
	case lane:
		return intake.Prefetch{Base: min(cfg.Concurrency+1, maxConcurrency), Fixed: source.Single}
	}
	return intake.Prefetch{Base: cfg.Concurrency, Fixed: !follows(source)}
}

// follows reports whether the prefetch may follow the handlers. It may not where messages
// have priorities. On a queue with a single active consumer another process would take over
// while the prefetch changes, and a queue that others declared may have one.
func follows(source route.Facts) bool {
	return source.Kind == route.Letters || source.Kind == route.Work && !source.ByPriority && !source.Existing && !source.Single
}

// prefetchOfKeys returns the prefetch for messages with keys: more than what the handlers
// have, because the next messages may be of keys that are in hand. In order it stays the
// same: messages that go back could come to another process out of their order.
func prefetchOfKeys(cfg Config) int {
	return min(max(4*cfg.Concurrency, cfg.Concurrency+50), maxConcurrency)
}

// prefetchOfBatches returns the prefetch of a Config without one: a batch for each
// worker, and one that becomes full meanwhile.
func prefetchOfBatches(cfg settings, ahead int) int {
	n := (cfg.Concurrency + ahead) * cfg.Batch.Size
	if cfg.KeyLimit > 0 {
		n = max(n, min(4*n, maxConcurrency)) // the next messages may be of keys that are in hand
	}
	return n
}
