package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
)

// chart is one of the drawing, with its lines.
type chart struct {
	title string
	lines []line
}

type line struct{ name, expr, colour string }

// charts answer the three questions of the dashboard that numbers can answer.
var charts = []chart{
	{"messages per second", []line{
		{"published", `sum(rate(messaging_client_sent_messages_total{rehop_place="queue",messaging_destination_name="observe.shop"}[5s]))`, "#2563eb"},
		{"into the store", `sum(rate(messaging_client_sent_messages_total{rehop_place="fallback"}[5s]))`, "#d97706"},
		{"done", `sum(rate(rehop_consumer_settled_total{rehop_disposition="done",messaging_destination_name="observe.orders"}[5s]))`, "#059669"},
	}},
	{"how far behind", []line{
		{"waiting to be handled", `sum(max by (messaging_destination_name) (rehop_queue_messages{rehop_queue_part="work"}))`, "#2563eb"},
		{"waiting for the next attempt", `sum(max by (messaging_destination_name) (rehop_queue_messages{rehop_queue_part="wait"}))`, "#7c3aed"},
		{"in the store", `sum(max by (rehop_state) (rehop_store_letters{rehop_state="ready"}))`, "#d97706"},
		{"held by handlers", `sum(rehop_consumer_held)`, "#db2777"},
	}},
	{"dead letters", []line{
		{"exhausted", `sum(rehop_consumer_settled_total{rehop_disposition="dead-letter",rehop_cause="exhausted"})`, "#dc2626"},
		{"permanent", `sum(rehop_consumer_settled_total{rehop_disposition="dead-letter",rehop_cause="permanent"})`, "#7f1d1d"},
	}},
}

const (
	width, height, left, gap = 860.0, 150.0, 56.0, 46.0
)

// draw writes the charts as SVG.
func draw(ctx context.Context, p *prometheus, path string, from, to time.Time) error {
	down, err := p.queryRange(ctx, `max(rehop_connection_status{rehop_status=~"down|connecting"}) == 1`, from, to)
	if err != nil {
		return err
	}
	x := func(at time.Time) float64 {
		return left + (width-left-10)*at.Sub(from).Seconds()/to.Sub(from).Seconds()
	}
	var b strings.Builder
	total := float64(len(charts))*(height+gap) + 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n", width, total)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="white"/>`+"\n", width, total)
	for i, c := range charts {
		top := float64(i)*(height+gap) + 34
		lines, highest := make([][]series, len(c.lines)), 1.0
		for j, l := range c.lines {
			if lines[j], err = p.queryRange(ctx, l.expr, from, to); err != nil {
				return err
			}
			for _, s := range lines[j] {
				for _, v := range s.Values {
					highest = math.Max(highest, v.value)
				}
			}
		}
		y := func(v float64) float64 { return top + height*(1-v/highest) }
		for _, s := range down {
			for _, v := range s.Values {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#fee2e2"/>`+"\n", x(v.at), top, x(v.at.Add(time.Second))-x(v.at)+0.3, height)
			}
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" font-weight="bold">%s</text>`+"\n", left, top-14, c.title)
		fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1fH%.1f" fill="none" stroke="#9ca3af"/>`+"\n", left, top, top+height, width-10)
		for _, v := range []float64{0, highest / 2, highest} {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end">%.0f</text>`+"\n", left-6, y(v)+4, v)
		}
		for s := 0.0; s <= to.Sub(from).Seconds(); s += 10 {
			at := from.Add(time.Duration(s * float64(time.Second)))
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#6b7280">%.0f s</text>`+"\n", x(at), top+height+14, s)
		}
		at := left + 150
		for j, l := range c.lines {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", at, top-14, l.colour, l.name)
			at += 10 + 7*float64(len(l.name))
			for _, s := range lines[j] {
				var d strings.Builder
				for k, v := range s.Values {
					command := "L"
					if k == 0 || v.at.Sub(s.Values[k-1].at) > 2*time.Second {
						command = "M"
					}
					fmt.Fprintf(&d, "%s%.1f %.1f", command, x(v.at), y(v.value))
				}
				fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", d.String(), l.colour)
			}
		}
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="#6b7280">Red: the program has no connection. Drawn by make observe from Prometheus's data.</text>`+"\n</svg>\n", left, total-8)
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
