// Package said writes what package desk says for a person at a page or a terminal.
package said

import (
	"regexp"
	"strings"

	"github.com/rehop/rehop/internal/ctl"
)

// own is what the errors of package desk begin with for programs: the package, and the value that a
// field belongs to.
var own = regexp.MustCompile(`(^|\n|: )desk: (?:(?:Redrive|Filter|Page|Edit|By)\.)?`)

// Text returns a text of package desk without that, which tells nothing where the desk is named.
func Text(text string) string { return own.ReplaceAllString(text, "$1") }

// Import returns the command line that puts the letters of a file back into the queue of a source that they were
// deleted from. A store names no queue.
func Import(source, file string) string {
	queue, is := strings.CutPrefix(source, "queue ")
	if queue = ctl.Quote(queue); !is {
		queue = "QUEUE"
	}
	return "rehop dlq import " + queue + " " + ctl.Quote(file)
}
