package otel

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/otel/internal/catalog"
)

// watched is what is asked for, and does not tell by itself.
type watched struct {
	mu                                           sync.Mutex
	components                                   []*component
	health, letters, oldest, messages, consumers family
}

// component is something with a Health.
type component struct {
	name   string
	health func() error
}

func (w *watched) init(i *instruments) {
	w.health = familyOf(catalog.Health)
	w.letters, w.oldest = familyOf(catalog.Letters), familyOf(catalog.OldestLetter)
	w.messages, w.consumers = familyOf(catalog.QueueMessages), familyOf(catalog.QueueConsumers)
	i.observe(func(o metric.Observer) {
		w.mu.Lock()
		components := slices.Clone(w.components)
		w.mu.Unlock()
		status := make([]string, len(components))
		for i, c := range components {
			status[i] = statusOf(c.health()) // not under the lock: it is the user's code
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		clear(w.health.series)
		for i, c := range components {
			for _, s := range []string{healthy, degraded, unhealthy} {
				series := w.health.at(c.name, s)
				if s == status[i] {
					series.n = 1
				}
			}
		}
		for _, f := range []*family{&w.health, &w.letters, &w.oldest, &w.messages, &w.consumers} {
			f.read(o)
		}
	}, &w.health, &w.letters, &w.oldest, &w.messages, &w.consumers)
}

const healthy, degraded, unhealthy = "healthy", "degraded", "unhealthy"

func statusOf(err error) string {
	var health *rehop.HealthError
	switch {
	case err == nil:
		return healthy
	case errors.As(err, &health) && health.Degraded:
		return degraded
	}
	return unhealthy
}

// Health reports the health of a Conn, a consumer or anything else with such a
// method. health is called whenever metrics are collected, and must not wait. After
// stop it is called no more.
//
//	stop := telemetry.Health("orders", worker.Health)
func (t *Telemetry) Health(name string, health func() error) (stop func()) {
	w := &t.watched
	c := &component{name, health}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.components = append(w.components, c)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.components = slices.DeleteFunc(w.components, func(other *component) bool { return other == c })
	}
}

// defaultEvery is the time between two looks.
const defaultEvery = 15 * time.Second

// patience is how many looks in a row may fail before the last numbers are too old to
// be shown.
const patience = 3

// watch looks at once and then every so often, until ctx ends.
func (t *Telemetry) watch(ctx context.Context, every time.Duration, what string, look func(context.Context) error, forget func()) {
	every = cmp.Or(every, defaultEvery)
	tick := time.NewTicker(every)
	defer tick.Stop()
	defer forget()
	for failures := 0; ; {
		bounded, cancel := context.WithTimeout(ctx, max(every, time.Second))
		err := look(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if failures > 0 {
				t.log.Info("telemetry: "+what+" can be asked again", "failures", failures)
			}
			failures = 0
		default:
			if failures++; failures == 1 {
				t.log.Warn("telemetry: "+what+" cannot be asked", "error", err)
			}
			if failures == patience {
				forget()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
