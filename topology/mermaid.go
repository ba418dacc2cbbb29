package topology

import (
	"fmt"
	"strings"
)

// Mermaid returns the plan as a flowchart in the language of Mermaid, which GitHub and GitLab draw
// in a page: exchanges with their binding keys, work queues with their engines, waits with their
// times and the way back, and dead-letter queues. The lanes of [Lanes], the shards of [Shards] and
// the queues of [Delays] are one box each. The exchanges between a work queue and its waits are left
// out: [Plan.String] has them.
//
// Equal plans have equal texts. So a text that is kept beside the code of a service shows in a
// review what a change of its specifications does.
func (p Plan) Mermaid() string {
	m := mermaid{ids: map[string]string{}}
	m.text.WriteString("flowchart LR\n")
	for _, r := range p.rows() {
		main := m.box(r.main)
		for _, e := range r.from {
			m.arrow(m.box(e.box), strings.Join(e.keys, ", "), main)
		}
		for _, e := range r.to {
			for _, b := range e.boxes {
				to := m.box(b)
				m.arrow(main, e.way, to)
				if e.back != "" {
					m.arrow(to, e.back, main)
				}
			}
		}
	}
	return m.text.String()
}

// mermaid writes a flowchart.
type mermaid struct {
	text  strings.Builder
	boxes int
	ids   map[string]string // of the boxes, by what they stand for
}

var mermaidShapes = [...][2]string{
	exchangeLook: {"([", "])"},
	queueLook:    {"[", "]"},
	waitsLook:    {"{{", "}}"},
	lettersLook:  {"[(", ")]"},
	levelsLook:   {"{{", "}}"},
}

// box writes a box unless it is there, and returns its id.
func (m *mermaid) box(b box) string {
	space := "queue "
	if b.look == exchangeLook {
		space = "exchange "
	}
	if id, known := m.ids[space+b.names[0]]; known {
		return id
	}
	m.boxes++
	id := fmt.Sprintf("n%d", m.boxes)
	for _, name := range b.names {
		m.ids[space+name] = id
	}
	var lines []string
	for _, line := range b.lines {
		lines = append(lines, escapeMermaid(line))
	}
	shape := mermaidShapes[b.look]
	fmt.Fprintf(&m.text, "    %s%s\"%s\"%s\n", id, shape[0], strings.Join(lines, "<br>"), shape[1])
	return id
}

func (m *mermaid) arrow(from, text, to string) {
	if text != "" {
		text = fmt.Sprintf("|\"%s\"|", escapeMermaid(text))
	}
	fmt.Fprintf(&m.text, "    %s -->%s %s\n", from, text, to)
}

// escapeMermaid writes the numbers of the characters that Mermaid could take for its own language,
// or a browser for HTML.
func escapeMermaid(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= 0xa0, r == ' ', '0' <= r && r <= '9', 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', strings.ContainsRune(".,-_:/=+", r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}
