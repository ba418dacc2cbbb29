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
const trialLimit = 2 * time.Minute

// row finds out how many messages make a round, then lets the sides take turns.
// The side that goes first changes from round to round.
func (b *bench) row(ctx context.Context, r row) (result, error) {
	res := result{Name: r.name}
	fmt.Fprintf(os.Stderr, "%s ", r.name)
	defer fmt.Fprintln(os.Stderr)
	n, err := b.calibrate(ctx, r)
	if err != nil {
		return res, err
	}
	res.Messages = n
	for round := range b.settings.Rounds {
		fmt.Fprint(os.Stderr, ".")
		for turn := range 2 {
			if (round+turn)%2 == 0 {
				err = b.measure(ctx, r, "rehop", r.rehop, n, &res.Rehop)
			} else {
				err = b.measure(ctx, r, "raw", r.raw, n, &res.Raw)
			}
			if err != nil {
				return res, err
			}
		}
	}
	res.Ratio = ratioOf(res.Rehop, res.Raw)
	return res, b.profile(ctx, r, n)
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
		if err := preload(ctx, b.url, p.work.Name, n); err != nil {
			return fmt.Errorf("set up: %w", err)
		}
	}
	runtime.GC() // what came before is not this side's
	t := newTrial(b.url, p.work, n)
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
