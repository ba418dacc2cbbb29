// Package said writes what package desk says for a person at a page or a terminal.
package said

import "regexp"

// own is what the errors of package desk begin with for programs: the package, and the value that a
// field belongs to.
var own = regexp.MustCompile(`(^|\n|: )desk: (?:(?:Redrive|Filter|Page|Edit|By)\.)?`)

// Text returns a text of package desk without that, which tells nothing where the desk is named.
func Text(text string) string { return own.ReplaceAllString(text, "$1") }
