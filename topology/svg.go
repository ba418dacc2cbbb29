package topology

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// SVG returns the drawing of [Plan.Mermaid] as a picture, for a page that does not draw Mermaid. It
// is 980 pixels wide and has a row for each work queue, so it may be high. It has light and dark
// colours, as the reader prefers.
//
// With queues, the picture has only the rows of these: of a work queue, one of its waits, or its
// dead-letter queue. It is "" if there is none.
func (p Plan) SVG(queues ...string) string {
	s := svg{trunks: map[string]trunk{}}
	y := svgGap
	for _, r := range p.rows() {
		if len(queues) == 0 || slices.ContainsFunc(queues, r.isAbout) {
			y += s.row(r, y) + svgGap
		}
	}
	if len(queues) > 0 && s.Len() == 0 {
		return ""
	}
	return fmt.Sprintf(svgHead, svgWidth, y, svgWidth, y) + s.String() + "</svg>\n"
}

// The grid of a drawing, in pixels: where its three columns begin, and how wide they are.
const (
	svgWidth = 980
	svgGap   = 20
	svgLine  = 18
	svgPad   = 8
	svgChar  = 7.25 // the width of a character

	fromAt, fromWide = 10, 230
	mainAt, mainWide = 310, 260
	toAt, toWide     = 700, 270
)

var svgClasses = [...]string{exchangeLook: "exchange", queueLook: "queue", waitsLook: "waits", lettersLook: "letters", levelsLook: "waits"}

type svg struct {
	strings.Builder
	trunks map[string]trunk // of the exchanges that are drawn
}

// trunk is where the arrows of later rows leave the box of an exchange.
type trunk struct{ x, y int }

// The trunks of exchanges are side by side.
const (
	trunkAt   = fromAt + fromWide + 8
	trunkWide = 7
	trunks    = 6 // before one has the place of the first again
)

// row draws a row and returns its height. The main box is as high as the row, so that
// all arrows are level.
func (s *svg) row(r row, y int) (height int) {
	left, right := 0, 0
	for _, e := range r.from {
		lines := slices.Concat(e.lines, e.keys)
		from, drawn := s.trunks[e.names[0]]
		if drawn {
			lines = e.keys
		}
		h := svgHeight(lines, fromWide)
		way := y + left + h/2
		if drawn {
			s.texts(fromAt, y+left, fromWide, lines, "")
			fmt.Fprintf(s, "<path class=\"way\" d=\"M%d %dH%dV%dH%d\" marker-end=\"url(#h)\"/>\n", fromAt+fromWide, from.y, from.x, way, mainAt)
		} else {
			s.trunks[e.names[0]] = trunk{trunkAt + len(s.trunks)%trunks*trunkWide, way}
			s.box(svgClasses[e.look], fromAt, y+left, fromWide, h, lines)
			s.arrow("way", fromAt+fromWide, mainAt, way, "")
		}
		left += h + svgGap/2
	}
	for _, e := range r.to {
		var lines []string
		for _, b := range e.boxes {
			if len(e.boxes) == 1 {
				lines = b.lines
			} else {
				lines = append(lines, b.lines[0])
			}
		}
		look := svgClasses[e.boxes[0].look]
		h := svgHeight(lines, toWide)
		way := y + right + h/2
		if e.back != "" {
			h = max(h, 60)
			way = y + right + 20
			s.arrow(look, toAt, mainAt+mainWide, way+28, e.back)
		}
		s.arrow(look, mainAt+mainWide, toAt, way, e.way)
		s.box(look, toAt, y+right, toWide, h, lines)
		right += h + svgGap/2
	}
	height = max(left-svgGap/2, right-svgGap/2, svgHeight(r.main.lines, mainWide))
	s.box(svgClasses[r.main.look], mainAt, y, mainWide, height, r.main.lines)
	return height
}

func svgHeight(lines []string, wide int) int {
	n := 0
	for _, line := range lines {
		n += len(wrapped(line, wide))
	}
	return n*svgLine + 2*svgPad
}

func (s *svg) box(class string, x, y, wide, high int, lines []string) {
	fmt.Fprintf(s, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\"/>\n", class, x, y, wide, high)
	name := ` class="name"`
	if x == toAt && class != svgClasses[lettersLook] {
		name = "" // a list of equals
	}
	s.texts(x, y, wide, lines, name)
}

// texts writes the lines of a box. The first one has a class.
func (s *svg) texts(x, y, wide int, lines []string, name string) {
	y += svgPad - 5
	for _, line := range lines {
		for _, part := range wrapped(line, wide) {
			y += svgLine
			fmt.Fprintf(s, "<text%s x=\"%d\" y=\"%d\">", name, x+svgPad, y)
			_ = xml.EscapeText(s, []byte(part)) // a Builder takes all
			s.WriteString("</text>\n")
		}
		name = ""
	}
}

func (s *svg) arrow(class string, from, to, y int, text string) {
	fmt.Fprintf(s, "<path class=\"%s\" d=\"M%d %dH%d\" marker-end=\"url(#h)\"/>\n", class, from, y, to)
	if text != "" {
		fmt.Fprintf(s, "<text class=\"mid\" x=\"%d\" y=\"%d\">%s</text>\n", (from+to)/2, y-5, text)
	}
}

// wrapped returns the lines of a text in a box. Characters beyond Latin, Greek and Cyrillic count
// twice. A line ends behind a space if it has one, else before a dot or behind another sign, else anywhere.
func wrapped(text string, wide int) (lines []string) {
	room, used, begin := int(float64(wide-2*svgPad)/svgChar), 0, 0
	for i, r := range text {
		width := svgCells(r)
		if used += width; used <= room {
			continue
		}
		line := text[begin:i]
		if at := strings.LastIndexByte(line, ' '); at >= 0 {
			line = line[:at+1]
		} else if at := strings.LastIndexAny(line, ".-_/:,"); at > 0 {
			if line[at] != '.' {
				at++
			}
			line = line[:at]
		}
		lines, begin, used = append(lines, line), begin+len(line), 0
		for _, r := range text[begin:i] {
			used += svgCells(r)
		}
		used += width
	}
	return append(lines, cmp.Or(text[begin:], " "))
}

// svgCells is how many characters wide a character is.
func svgCells(r rune) int {
	if r >= 0x1100 {
		return 2
	}
	return 1
}

const svgHead = `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<title>The topology: exchanges, the queues that are consumed, and their waits and dead-letter queues</title>
<style>
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }
.name { font-weight: 600 }
.mid { text-anchor: middle; fill: #59636e }
rect { stroke-width: 1.5 }
.exchange { fill: #f6f8fa; stroke: #59636e }
.queue { fill: #ddf4ff; stroke: #0969da }
.waits { fill: #fff1e5; stroke: #bc4c00 }
.letters { fill: #ffebe9; stroke: #cf222e }
path { fill: none; stroke-width: 1.5; stroke: #59636e }
marker path { fill: #59636e; stroke: none }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.mid { fill: #9198a1 }
.exchange { fill: #151b23; stroke: #9198a1 }
.queue { fill: #121d2f; stroke: #4493f8 }
.waits { fill: #221a0f; stroke: #db6d28 }
.letters { fill: #25171c; stroke: #f85149 }
path { stroke: #9198a1 }
marker path { fill: #9198a1 }
}
</style>
<defs><marker id="h" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 10 5 0 10z"/></marker></defs>
`
