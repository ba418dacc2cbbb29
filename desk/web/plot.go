package web

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"
)

// scale says how letters and time fit into one plot, or into several that are compared.
type scale struct {
	Top    int           // letters at the upper edge
	Length time.Duration // from the left edge to now
	log    bool          // so that one letter is seen beside thousands
}

// scaleOf is the scale of all plots of the overview.
func scaleOf(rows []row) scale {
	s := scale{Top: 1, Length: time.Minute, log: true}
	for _, r := range rows {
		one := scaleOfOne(r.Plot)
		s.Top, s.Length = max(s.Top, one.Top), max(s.Length, one.Length)
	}
	return s
}

func scaleOfOne(points []point) scale {
	return scale{Top: topOf(points), Length: plotLength(points)}
}

func topOf(points []point) int {
	top := 1
	for _, p := range points {
		top = max(top, p.N)
	}
	return top
}

// part is how high a depth is, from 0 to 1.
func (s scale) part(n int) float64 {
	if s.log {
		return math.Log1p(float64(n)) / math.Log1p(float64(s.Top))
	}
	return float64(n) / float64(s.Top)
}

// plotArea draws a depth over the last hour, up to its last point: an open page gets the same plot until
// somebody has counted again. The text beside it says the same, so that nobody needs to see it.
func plotArea(points []point, s scale) template.HTML {
	const width, height = 240, 44
	if len(points) == 0 {
		return ""
	}
	now := points[len(points)-1].At
	x := func(at time.Time) float64 {
		return min(max(float64(width)*(1-now.Sub(at).Seconds()/s.Length.Seconds()), 0), width)
	}
	y := func(n int) float64 { return height - 2 - float64(height-6)*s.part(n) }
	var line strings.Builder
	fmt.Fprintf(&line, "M%.1f %.1f", x(points[0].At), y(points[0].N))
	for i, p := range points[1:] { // a depth lasts until the next one
		if p.N != points[i].N {
			fmt.Fprintf(&line, "L%.1f %.1fL%.1f %.1f", x(p.At), y(points[i].N), x(p.At), y(p.N))
		}
	}
	last := points[len(points)-1]
	fmt.Fprintf(&line, "L%.1f %.1f", float64(width), y(last.N))
	return template.HTML(fmt.Sprintf(
		`<svg class="plot" viewBox="0 0 %d %d" role="img" aria-label="depth: %s %s ago, at most %s, now %s" preserveAspectRatio="none"><path class="area" d="%sL%d %dL%.1f %dZ"/><path class="line" d="%s"/></svg>`,
		width, height, number(points[0].N), span(now.Sub(points[0].At)), number(topOf(points)), number(last.N), line.String(), width, height, x(points[0].At), height, line.String()))
}

// grown says how the last depth of a plot differs from the first one.
func grown(points []point) string {
	if len(points) == 0 {
		return "no change"
	}
	first, last := points[0].N, points[len(points)-1].N
	switch {
	case last != first:
		return fmt.Sprintf("%+d", last-first)
	case slices.ContainsFunc(points, func(p point) bool { return p.N != first }):
		return "as many as before"
	}
	return "no change"
}

// plotLength is how far back a plot reaches: a desk that has just begun knows little.
func plotLength(points []point) time.Duration {
	if len(points) == 0 {
		return time.Minute
	}
	return min(max(points[len(points)-1].At.Sub(points[0].At), time.Minute), plotFor)
}

// since says how far back a plot reaches.
func since(length time.Duration) string {
	if length < plotFor {
		return "last " + span(length)
	}
	return "last hour"
}

func span(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
	return fmt.Sprintf("%d min", int(d.Minutes()))
}

// plotBars draws how many letters failed in each part of a time.
func plotBars(counts []int, more bool, label string) template.HTML {
	const width, height = 120, 28
	top, sum := 1, 0
	for _, n := range counts {
		top, sum = max(top, n), sum+n
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="bars" viewBox="0 0 %d %d" role="img" aria-label="%s in the %s, at most %s at a time" preserveAspectRatio="none">`,
		width, height, template.HTMLEscapeString(someLetters(sum, more)), template.HTMLEscapeString(label), some(top, more))
	each := float64(width) / float64(max(len(counts), 1))
	for i, n := range counts {
		h := float64(height-2) * float64(n) / float64(top)
		if n > 0 {
			h = max(h, 2)
		}
		class := "bar"
		if n == 0 {
			class, h = "none", 1
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, float64(i)*each, float64(height)-h, max(each-1, 0.5), h)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}
