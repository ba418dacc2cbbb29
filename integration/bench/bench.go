package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/rehop/rehop/connection"
)

// bench runs rows on one broker.
type bench struct {
	url      string
	conn     *connection.Conn // for queues: it carries nothing that is measured
	settings settings
}

// trialLimit bounds one side in one round beyond its duration: reaching it means
// that a message is missing and not that the machine is slow.
const trialLimit = 30 * time.Second

// row finds out how many messages make a round, then lets the sides take turns.
// The side that goes first changes from round to round.
func (b *bench) row(ctx context.Context, r row) (result, error) {
	res := result{Name: r.name, Shards: r.shards}
	fmt.Fprintf(os.Stderr, "%s ", r.name)
	defer fmt.Fprintln(os.Stderr)
	n, err := b.calibrate(ctx, r)
	if err != nil {
		return res, err
	}
	res.Messages = n
	sides := []peer{{"rehop", r.rehop}, {"raw", r.raw}}
	if b.settings.Peers {
		sides = append(sides, r.peers...)
	}
	of := make([][]sample, len(sides))
	for round := range b.settings.Rounds {
		fmt.Fprint(os.Stderr, ".")
		for turn := range sides {
			i := (round + turn) % len(sides)
			if res.Failed[sides[i].name] != "" {
				continue
			}
			err := b.measure(ctx, r, sides[i].name, sides[i].do, n, &of[i])
			switch {
			case err == nil:
			case i < 2 || ctx.Err() != nil:
				return res, err
			default: // what another library does wrong is no reason to measure nothing
				fmt.Fprintf(os.Stderr, " %v ", err)
				res.fail(sides[i].name, err)
			}
		}
	}
	res.Rehop, res.Raw = of[0], of[1]
	for i, p := range sides[2:] {
		if res.Failed[p.name] == "" {
			res.Peers = with(res.Peers, p.name, of[i+2])
		}
	}
	res.Ratio = ratioOf(res.Rehop, res.Raw)
	return res, b.profile(ctx, r, n)
}

func (r *result) fail(name string, err error) { r.Failed = with(r.Failed, name, err.Error()) }

func with[V any](m map[string]V, name string, v V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[name] = v
	return m
}

// calibrate returns how many messages the raw side moves in the duration of a
// round. It warms both sides up.
func (b *bench) calibrate(ctx context.Context, r row) (int, error) {
	const least = 4 * maxBack
	n := least
	for range 2 {
		var of []sample
		if err := b.measure(ctx, r, "raw", r.raw, n, &of); err != nil {
			return 0, err
		}
		n = max(least, int(of[0].perSecond()*b.settings.Duration.Seconds()/4))
	}
	var of []sample
	if err := b.measure(ctx, r, "rehop", r.rehop, n, &of); err != nil {
		return 0, err
	}
	return 4 * n, nil
}

// measure adds one sample of one side, if it did its work.
func (b *bench) measure(ctx context.Context, r row, name string, do side, n int, to *[]sample) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.settings.Duration+trialLimit,
		fmt.Errorf("not done within %v", b.settings.Duration+trialLimit))
	defer cancel()
	p, err := b.newPlace(ctx, r)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	defer p.remove()
	if r.loaded {
		fill := preload
		if r.keys > 0 {
			fill = preloadKeys(r.keys)
		}
		if err := fill(ctx, b.url, p.work.Name, n); err != nil {
			return fmt.Errorf("set up: %w", err)
		}
	}
	runtime.GC() // what came before is not this side's
	t := newTrial(b.url, p.work, n)
	t.shards, t.order = p.shards, newInOrder()
	if err := do(ctx, t); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s := t.sample()
	var faults error
	if r.end != inWorkQueue {
		faults = t.missing()
	}
	back, err := p.verify(ctx, r.end, n)
	if err := errors.Join(faults, err); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.Back = back
	*to = append(*to, s)
	return nil
}
