package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A sample says where the orders are at one moment.
type sample struct {
	at                      time.Duration // since the shop began
	taken, inStore, handled int
	away                    bool // no connection to the broker
}

// watch takes samples until ctx ends. health is that of the connection.
func (t *tally) watch(ctx context.Context, health func() error) (samples []sample) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		t.mu.Lock()
		samples = append(samples, sample{
			at:    time.Since(t.began),
			taken: len(t.confirmed) + len(t.stored), inStore: len(t.stored) - len(t.forwarded), handled: len(t.arrived),
			away: health() != nil,
		})
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return samples
		case <-tick.C:
		}
	}
}

// plot draws the samples as an SVG.
func plot(samples []sample) string {
	const width, height, left, right, top, bottom = 760, 380, 70, 20, 56, 340
	last := samples[len(samples)-1]
	most := (last.taken/1000 + 1) * 1000
	x := func(at time.Duration) float64 {
		return left + (width-left-right)*at.Seconds()/last.at.Seconds()
	}
	y := func(n int) float64 { return bottom - (bottom-top)*float64(n)/float64(most) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="17" fill="#4b5563">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	for i, s := range samples {
		if s.away && (i == 0 || !samples[i-1].away) {
			end := i
			for end < len(samples)-1 && samples[end].away {
				end++
			}
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#fee2e2"/>`+"\n", x(s.at), top, x(samples[end].at)-x(s.at), bottom-top)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#b91c1c">no connection</text>`+"\n", (x(s.at)+x(samples[end].at))/2, top+24)
		}
	}
	for n := 0; n <= most; n += 1000 {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#e5e7eb"/><text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n", left, y(n), width-right, left-10, y(n)+6, n)
	}
	for at := time.Duration(0); at <= last.at; at += 10 * time.Second {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f s</text>`+"\n", x(at), bottom+26, at.Seconds())
	}
	for i, l := range []struct {
		name, colour string
		thick        int
		of           func(sample) int
	}{
		{"orders taken", "#93c5fd", 7, func(s sample) int { return s.taken }},
		{"in the store", "#d97706", 3, func(s sample) int { return s.inStore }},
		{"handled", "#059669", 3, func(s sample) int { return s.handled }},
	} {
		var d strings.Builder
		for k, s := range samples {
			fmt.Fprintf(&d, "%s%.1f %.1f", []string{"M", "L"}[min(k, 1)], x(s.at), y(l.of(s)))
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="%d"/>`+"\n", d.String(), l.colour, l.thick)
		fmt.Fprintf(&b, `<path d="M%d 28h28" stroke="%s" stroke-width="%d"/><text x="%d" y="34">%s</text>`+"\n", left+i*190, l.colour, l.thick, left+i*190+38, l.name)
	}
	return b.String() + "</svg>\n"
}
