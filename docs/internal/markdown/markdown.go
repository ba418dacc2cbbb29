// Package markdown reads the Markdown pages of the project, for the tests that keep them
// true.
package markdown

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// A Page is one file of Markdown.
type Page struct {
	Path  string // with slashes, from the root of the tree
	Lines []string
}

// A Block is the code between two fences.
type Block struct {
	Page    string
	Line    int // of the opening fence, from 1
	Lang    string
	Include string // file#region of the comment above the fence, or empty
	Text    string
}

// A Span is a piece of one line: inline code, or the target of a link.
type Span struct {
	Page string
	Line int
	Text string
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }
func (s Span) String() string  { return fmt.Sprintf("%s:%d: %s", s.Page, s.Line, s.Text) }

// Pages returns the Markdown files under the folder root.
func Pages(root string) ([]Page, error) {
	var names []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata"):
			return fs.SkipDir
		case !d.IsDir() && filepath.Ext(name) == ".md":
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var pages []Page
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return nil, err
		}
		pages = append(pages, Page{filepath.ToSlash(relative), strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")})
	}
	return pages, nil
}

var (
	fence   = regexp.MustCompile("^(```+|~~~+)\\s*([\\w.+-]*)\\s*$")
	include = regexp.MustCompile(`^<!-- (\S+\.go(?:#[\w-]+)?) -->$`)
	heading = regexp.MustCompile(`^(#{1,6})\s+(.*?)\s*#*$`)
	code    = regexp.MustCompile("`([^`]+)`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	source  = regexp.MustCompile(`\b(?:src|srcset|href)="([^"]+)"`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	linked  = regexp.MustCompile(`\[([^\[\]]*)\]\([^()]*\)`)
)

// Blocks returns the blocks of a page, or an error if a fence is not closed, is indented, or
// names no language.
func (p Page) Blocks() ([]Block, error) {
	var blocks []Block
	open := ""
	for i, line := range p.Lines {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == "" && m != nil:
			if m[2] == "" {
				return nil, fmt.Errorf("%s:%d: a fence without a language: text, if it is none", p.Path, i+1)
			}
			open = m[1]
			b := Block{Page: p.Path, Line: i + 1, Lang: m[2]}
			if i > 0 {
				if above := include.FindStringSubmatch(p.Lines[i-1]); above != nil {
					b.Include = above[1]
				}
			}
			blocks = append(blocks, b)
		case open != "" && line == open:
			open = ""
		case open != "":
			blocks[len(blocks)-1].Text += line + "\n"
		case strings.Contains(line, "```") || strings.HasPrefix(strings.TrimSpace(line), "~~~"):
			return nil, fmt.Errorf("%s:%d: a fence that is indented or has more than a language", p.Path, i+1)
		}
	}
	if open != "" {
		return nil, fmt.Errorf("%s: the fence at line %d is not closed", p.Path, blocks[len(blocks)-1].Line)
	}
	return blocks, nil
}

// prose calls f with each line that is outside of blocks.
func (p Page) prose(f func(number int, line string)) {
	open := ""
	for i, line := range p.Lines {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == "" && m != nil:
			open = m[1]
		case open != "" && line == open:
			open = ""
		case open == "":
			f(i+1, line)
		}
	}
}

// Headings returns the headings of a page, each with its leading #.
func (p Page) Headings() []string {
	var headings []string
	p.prose(func(_ int, line string) {
		if m := heading.FindStringSubmatch(line); m != nil {
			headings = append(headings, m[1]+" "+m[2])
		}
	})
	return headings
}

// Code returns the inline code of a page.
func (p Page) Code() []Span {
	var spans []Span
	p.prose(func(number int, line string) {
		for _, m := range code.FindAllStringSubmatch(line, -1) {
			spans = append(spans, Span{p.Path, number, m[1]})
		}
	})
	return spans
}

// Links returns the targets of the links and pictures of a page.
func (p Page) Links() []Span {
	var spans []Span
	p.prose(func(number int, line string) {
		line = code.ReplaceAllString(line, "code")
		for _, expression := range []*regexp.Regexp{link, source} {
			for _, m := range expression.FindAllStringSubmatch(line, -1) {
				spans = append(spans, Span{p.Path, number, m[1]})
			}
		}
	})
	return spans
}

// Anchors returns the names that a link may have after its #.
func (p Page) Anchors() map[string]bool {
	anchors := map[string]bool{}
	seen := map[string]int{}
	for _, h := range p.Headings() {
		_, text, _ := strings.Cut(h, " ")
		name := slug(linked.ReplaceAllString(text, "$1"))
		if n := seen[name]; n > 0 {
			anchors[fmt.Sprintf("%s-%d", name, n)] = true
		} else {
			anchors[name] = true
		}
		seen[name]++
	}
	p.prose(func(_ int, line string) {
		for _, m := range anchor.FindAllStringSubmatch(line, -1) {
			anchors[m[1]] = true
		}
	})
	return anchors
}

// slug returns the anchor that GitHub makes of a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// Resolve returns the file, from the root of the tree, and the anchor that a link of a page
// leads to, and false if the link leads out of the tree.
func (p Page) Resolve(target string) (file, anchor string, local bool) {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return "", "", false
	}
	file, anchor, _ = strings.Cut(target, "#")
	if file == "" {
		return p.Path, anchor, true
	}
	return path.Join(path.Dir(p.Path), file), anchor, true
}

// Region returns the lines of a Go file between the comments "begin name" and "end name",
// dedented. A region may be in several pieces, which follow each other. Lines that end with
// the comment "hidden" are left out, and so are the comments of other regions. An empty name
// is the whole file.
func Region(file, name string) (string, error) {
	var lines []string
	in, found := name == "", name == ""
	for _, line := range strings.Split(strings.TrimSuffix(file, "\n"), "\n") {
		bare := strings.TrimSpace(line)
		switch {
		case name != "" && bare == "// begin "+name:
			if in {
				return "", fmt.Errorf("the region %s begins twice", name)
			}
			in, found = true, true
		case name != "" && bare == "// end "+name:
			if !in {
				return "", fmt.Errorf("the region %s ends before it begins", name)
			}
			in = false
		case !in || strings.HasPrefix(bare, "// begin ") || strings.HasPrefix(bare, "// end ") || strings.HasSuffix(bare, "// hidden"):
		default:
			lines = append(lines, line)
		}
	}
	switch {
	case !found:
		return "", fmt.Errorf("there is no region %s", name)
	case in && name != "":
		return "", fmt.Errorf("the region %s does not end", name)
	}
	return dedent(lines), nil
}

// dedent removes the tabs that all lines begin with, and empty lines at both ends.
func dedent(lines []string) string {
	common := -1
	for _, line := range lines {
		if tabs := len(line) - len(strings.TrimLeft(line, "\t")); line != "" && (common < 0 || tabs < common) {
			common = tabs
		}
	}
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line[min(max(common, 0), len(line)):] + "\n")
	}
	if trimmed := strings.Trim(text.String(), "\n"); trimmed != "" {
		return trimmed + "\n"
	}
	return ""
}

// Replace returns the page with other text in a block.
func (p Page) Replace(b Block, text string) Page {
	end := b.Line
	for p.Lines[end] != p.fenceOf(b) {
		end++
	}
	lines := append([]string{}, p.Lines[:b.Line]...)
	lines = append(lines, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	return Page{p.Path, append(lines, p.Lines[end:]...)}
}

func (p Page) fenceOf(b Block) string { return fence.FindStringSubmatch(p.Lines[b.Line-1])[1] }
