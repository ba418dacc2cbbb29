package consumer

import (
	"errors"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/route"
)

func lostTo(code int) error {
	return fmt.Errorf("%w: %w", connection.ErrSessionLost, &amqp.Error{Code: code, Server: true})
}

func TestQueuesPartAfterTwoInternalErrors(t *testing.T) {
	t.Parallel()
	type internal struct {
		generation uint64
		at         time.Duration
	}
	for name, c := range map[string]struct {
		faults []internal
		want   uint64 // partings
	}{
		"one":                                    {[]internal{{1, 0}}, 0},
		"one, of which each queue tells":         {[]internal{{1, 0}, {1, time.Second}, {1, time.Second}}, 0},
		"two within a minute":                    {[]internal{{1, 0}, {2, durations.PartsWithin}}, 1},
		"two with more than a minute between":    {[]internal{{1, 0}, {2, durations.PartsWithin + 1}}, 0},
		"the second and a third within a minute": {[]internal{{1, 0}, {2, durations.PartsWithin + 1}, {5, durations.PartsWithin + 2}}, 1},
		"a third does not part them again":       {[]internal{{1, 0}, {2, 1}, {3, 2}}, 1},
		"an earlier one that is told late":       {[]internal{{1, 0}, {2, durations.PartsWithin + 1}, {1, durations.PartsWithin + 2}}, 0},
		"a fourth does":                          {[]internal{{1, 0}, {2, 1}, {3, 2}, {4, 3}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f faults
			begin := time.Now()
			for _, i := range c.faults {
				f = f.with(i.generation, begin.Add(i.at))
			}
			if f.partings != c.want {
				t.Errorf("%d partings, want %d", f.partings, c.want)
			}
		})
	}
}

func TestWhereAQueueIsConsumed(t *testing.T) {
	t.Parallel()
	stuck := ended{reach: consumed, err: lostTo(amqp.InternalError)}
	for name, c := range map[string]struct {
		before place
		ended  ended
		want   place
	}{
		"it shares, and loses its session":           {place{}, ended{reach: consumed, err: lostTo(amqp.ConnectionForced)}, place{}},
		"it shares, and an internal error comes":     {place{}, stuck, place{}},
		"alone, an internal error":                   {place{apart: true}, stuck, place{apart: true, failed: 1}},
		"alone, another one":                         {place{apart: true, failed: 1}, stuck, place{apart: true, failed: 2}},
		"alone, one after it has lived for long":     {place{apart: true}, ended{reach: consumed, lived: durations.SharesAfter, err: lostTo(amqp.InternalError)}, place{apart: true, failed: 1}},
		"alone, one before it consumes":              {place{apart: true}, ended{reach: opened, err: lostTo(amqp.InternalError)}, place{apart: true}},
		"alone, and the channel is refused":          {place{apart: true}, ended{reach: consumed, err: &amqp.Error{Code: amqp.InternalError, Server: true}}, place{apart: true}},
		"alone, and the connection is lost soon":     {place{apart: true, failed: 3}, ended{reach: consumed, lived: durations.SharesAfter - 1, err: lostTo(amqp.ConnectionForced)}, place{apart: true, failed: 3}},
		"alone, and it lives":                        {place{apart: true, partings: 1}, ended{reach: consumed, lived: durations.SharesAfter, partings: 2, err: errShares}, place{partings: 2}},
		"alone, and it lives after it has failed":    {place{apart: true, failed: 9}, ended{reach: consumed, lived: durations.SharesAfter, err: errShares}, place{}},
		"there is no socket of its own":              {place{apart: true}, ended{err: errors.New("refused")}, place{}},
		"there is none any more for one that failed": {place{apart: true, failed: 1}, ended{err: errors.New("refused")}, place{apart: true, failed: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.before.after(c.ended); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
	if got, want := (place{}).next(1), (place{apart: true, partings: 1}); got != want {
		t.Errorf("after a parting %+v, want %+v", got, want)
	}
	if got := (place{partings: 1}).next(1); got.apart {
		t.Errorf("without another parting %+v", got)
	}
}

func TestPausesOfAQueueWhoseMessageCannotBeHandedOver(t *testing.T) {
	t.Parallel()
	const usual = 700 * time.Millisecond
	limited := &route.Facts{DeliveryLimit: 20}
	for _, c := range []struct {
		failed int
		known  *route.Facts
		want   time.Duration
	}{
		{0, nil, usual},
		{1, nil, 2 * durations.LongestPauseConsumed},
		{2, &route.Facts{}, 4 * durations.LongestPauseConsumed},
		{5, nil, durations.LongestPauseApart},
		{1000, nil, durations.LongestPauseApart},
		{1, limited, usual},
		{20, limited, usual}, // the message is moved at the next return
		{21, limited, 2 * durations.LongestPauseConsumed},
	} {
		if got := (place{apart: true, failed: c.failed}).pause(usual, c.known); got != c.want {
			t.Errorf("after %d failures, with the route %+v: %v, want %v", c.failed, c.known, got, c.want)
		}
	}
}
