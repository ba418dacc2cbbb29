// Package changelog finds sections of CHANGELOG.md.
package changelog

import "strings"

// Section returns the text below the heading "## [name]", and whether there is one.
func Section(text, name string) (section string, ok bool) { return below(text, "## ", "## ["+name+"]") }

// Part returns the text below the heading "### name" of a section.
func Part(section, name string) (part string, ok bool) { return below(section, "### ", "### "+name) }

// below returns the lines after the one that begins with heading, as far as the next one
// that begins with level.
func below(text, level, heading string) (part string, ok bool) {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, level) {
			if ok {
				break
			}
			ok = strings.HasPrefix(line, heading)
			continue
		}
		if ok {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, "")), ok
}
