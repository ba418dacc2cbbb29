package said

import "strings"

// Line is a line of a body: " " stays, "-" goes, "+" comes, and "…" stands for lines that stay.
type Line struct{ Mark, Text string }

// maxLines is how many lines of a body are shown.
const maxLines = 400

// Lines returns the lines that differ between two bodies as they are shown, with some of those
// around them: all between the first and the last difference. If the bodies are shown alike, it says why.
func Lines(was, is, alike string) (lines []Line) {
	const around = 3
	if was == is {
		return []Line{{"…", alike}}
	}
	a, b := strings.Split(was, "\n"), strings.Split(is, "\n")
	head, tail := 0, 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	add := func(mark string, texts []string) {
		for _, text := range texts {
			lines = append(lines, Line{mark, text})
		}
	}
	if head > around {
		lines = append(lines, Line{"…", ""})
	}
	add(" ", a[max(head-around, 0):head])
	add("-", a[head:len(a)-tail])
	add("+", b[head:len(b)-tail])
	add(" ", a[len(a)-tail:min(len(a)-tail+around, len(a))])
	if tail > around {
		lines = append(lines, Line{"…", ""})
	}
	if len(lines) > maxLines {
		lines = append(lines[:maxLines], Line{"…", ""})
	}
	return lines
}
