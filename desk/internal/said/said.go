// Package said writes what package desk says for a person at a page or a terminal.
package said

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/internal/letter"
)

// own is what the errors of package desk begin with for programs: the package, and the value that a
// field belongs to.
var own = regexp.MustCompile(`(^|\n|: )desk: (?:(?:Redrive|Filter|Page|Edit|By)\.)?`)

// Text returns a text of package desk without that, which tells nothing where the desk is named.
func Text(text string) string { return own.ReplaceAllString(text, "$1") }

// Group returns what the errors of a group have in common, from that of any of its letters: one name, whichever
// of them are left.
func Group(text string) string { return letter.Common(text, "…") }

// Import returns the command line that puts the letters of a file back into the queue of a source that they were
// deleted from. A store names no queue.
func Import(source, file string) string {
	queue, is := strings.CutPrefix(source, "queue ")
	if queue = ctl.Quote(queue); !is {
		queue = "QUEUE"
	}
	return "rehop dlq import " + queue + " " + ctl.Quote(file)
}

// Ends returns a text without its middle if it has more than n bytes: ids differ at their ends.
func Ends(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head, tail := n/2, len(s)-n/2
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:head] + "…" + s[tail:]
}
