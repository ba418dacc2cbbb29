package otel

import (
	"context"
	"time"

	"github.com/rehop/rehop/store"
)

// scheduled are entries that are ready and not due yet.
const scheduled store.State = "scheduled"

// states of entries, as the metrics have them.
var states = []store.State{store.Ready, scheduled, store.Held, store.Parked, store.Archived}

// WatchStore asks a store how many entries it has, by state, and how old the oldest one
// is. Entries that are ready and not due yet are counted as "scheduled", and have no
// age. It asks at once and then every so often, 15 s if every is 0, until ctx ends. A
// look counts rows: with millions of entries choose a longer interval. All processes get
// the same numbers, so one process of a service is enough. After three looks that failed
// the numbers are gone until a look succeeds.
func (t *Telemetry) WatchStore(ctx context.Context, s *store.Store, every time.Duration) {
	w := &t.watched
	t.watch(ctx, every, "store "+s.Name(), func(ctx context.Context) error {
		counts, ages, err := lookAt(ctx, s)
		if err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, state := range states {
			w.letters.at(s.Name(), string(state)).n = int64(counts[state])
			if state != scheduled {
				w.oldest.at(s.Name(), string(state)).n = max(0, int64(ages[state].Seconds()))
			}
		}
		return nil
	}, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, state := range states {
			delete(w.letters.series, values{s.Name(), string(state)})
			delete(w.oldest.series, values{s.Name(), string(state)})
		}
	})
}

func lookAt(ctx context.Context, s *store.Store) (counts map[store.State]int, ages map[store.State]time.Duration, err error) {
	counts, ages = map[store.State]int{}, map[store.State]time.Duration{}
	if counts[scheduled], err = s.Count(ctx, store.Query{Scheduled: true}); err != nil {
		return nil, nil, err
	}
	for _, state := range states {
		if state == scheduled {
			continue
		}
		if counts[state], err = s.Count(ctx, store.Query{States: []store.State{state}}); err != nil {
			return nil, nil, err
		}
		if state == store.Ready {
			counts[state] = max(0, counts[state]-counts[scheduled]) // two looks: an entry may have become due between them
		}
		if counts[state] == 0 {
			continue
		}
		if ages[state], err = oldest(ctx, s, state); err != nil {
			return nil, nil, err
		}
	}
	return counts, ages, nil
}

// pages bounds how far oldest reads through entries that are not due.
const pages, page = 10, 100

// oldest returns how long the entry that was stored first is wanted already.
func oldest(ctx context.Context, s *store.Store, state store.State) (time.Duration, error) {
	q := store.Query{States: []store.State{state}, Limit: 1}
	for range pages {
		found, _, err := s.Find(ctx, q)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		for _, l := range found {
			if state != store.Ready || !l.Due.After(time.Now()) {
				return time.Since(later(l.Stored, l.Due)), nil
			}
		}
		q.After, q.Limit = found[len(found)-1].Number, page
	}
	return 0, nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
