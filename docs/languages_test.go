package docs

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehop/rehop/docs/internal/markdown"
)

// chinese returns the path of the Chinese page of an English one.
func chinese(english string) string {
	if english == "README.md" {
		return "README.zh-CN.md"
	}
	return path.Join("docs/zh-CN", strings.TrimPrefix(english, "docs/"))
}

func isChinese(name string) bool {
	return name == "README.zh-CN.md" || strings.HasPrefix(name, "docs/zh-CN/")
}

// translated returns the English pages, and the Chinese page of each by the English path.
func translated(t *testing.T) (english []markdown.Page, other map[string]markdown.Page) {
	t.Helper()
	byPath := map[string]markdown.Page{}
	for _, p := range pages(t) {
		byPath[p.Path] = p
	}
	other = map[string]markdown.Page{}
	for _, p := range pages(t) {
		if isChinese(p.Path) {
			continue
		}
		english = append(english, p)
		if c, ok := byPath[chinese(p.Path)]; ok {
			other[p.Path] = c
		} else {
			t.Errorf("%s has no Chinese page %s", p.Path, chinese(p.Path))
		}
		delete(byPath, p.Path)
		delete(byPath, chinese(p.Path))
	}
	for name := range byPath {
		t.Errorf("%s is of no English page", name)
	}
	return english, other
}

func TestLanguagesAreEqual(t *testing.T) {
	english, other := translated(t)
	for _, p := range english {
		c, ok := other[p.Path]
		if !ok {
			continue
		}
		if *update {
			c = updated(t, p, c)
		}
		if difference := firstDifference(parts(t, p), parts(t, c)); difference != "" {
			t.Error(difference)
		}
	}
}

// updated returns a page with the blocks of another, if it has as many and of the same languages.
func updated(t *testing.T, from, to markdown.Page) markdown.Page {
	t.Helper()
	want, got := blocks(t, from), blocks(t, to)
	if !slices.EqualFunc(want, got, func(a, b markdown.Block) bool { return a.Lang == b.Lang && a.Include == b.Include }) {
		return to
	}
	changed := false
	for i, b := range slices.Backward(got) {
		if b.Text != want[i].Text {
			to, changed = to.Replace(b, want[i].Text), true
		}
	}
	if changed {
		write(t, to)
	}
	return to
}

// A part is what every language of a page has: a heading, a line of code, a row of a table, an item
// of a list, or a picture.
type part struct {
	page string
	line int
	what string
}

func (p part) String() string { return fmt.Sprintf("%s:%d: %s", p.page, p.line, p.what) }

var (
	heading = regexp.MustCompile(`^#+ `)
	item    = regexp.MustCompile(`^(?:-|\d+\.) `)
	picture = regexp.MustCompile(`!\[[^\]]*\]\(([^)]+)\)|\bsrc(?:set)?="([^"]+)"`)
)

// parts returns the parts of a page in their order, and its end.
func parts(t *testing.T, p markdown.Page) []part {
	t.Helper()
	code := map[int][]string{} // by the line of a row
	for _, s := range p.Code() {
		code[s.Line] = append(code[s.Line], "`"+s.Text+"`")
	}
	var found []part
	open := blocks(t, p)
	for i := 0; i < len(p.Lines); i++ {
		add := func(format string, args ...any) {
			found = append(found, part{p.Path, i + 1, fmt.Sprintf(format, args...)})
		}
		line := p.Lines[i]
		switch {
		case len(open) > 0 && open[0].Line == i+1:
			b := open[0]
			open = open[1:]
			add("a block of %s %s", b.Lang, b.Include)
			for _, line := range strings.SplitAfter(b.Text, "\n") {
				i++
				add("code %q", line)
			}
		case heading.MatchString(line):
			add("a heading of level %d", len(heading.FindString(line))-1)
		case strings.HasPrefix(line, "|"):
			slices.Sort(code[i+1])
			add("a row of a table with the code %s", strings.Join(code[i+1], " "))
		case item.MatchString(line):
			add("an item of a list")
		}
		for _, m := range picture.FindAllStringSubmatch(line, -1) {
			file, _, _ := p.Resolve(m[1] + m[2])
			add("the picture %s", strings.Replace(file, "docs/zh-CN/", "docs/", 1))
		}
	}
	return append(found, part{p.Path, len(p.Lines), "the end"})
}

// firstDifference returns the first place at which a page differs from its English one, or nothing.
func firstDifference(english, other []part) string {
	for i := range min(len(english), len(other)) {
		if english[i].what != other[i].what {
			return fmt.Sprintf("%v\nwant as in %v", other[i], english[i])
		}
	}
	return "" // of equal length: each has one end, as its last part
}

func TestFirstDifference(t *testing.T) {
	page := func(text string) markdown.Page {
		return markdown.Page{Path: "p.md", Lines: strings.Split(text, "\n")}
	}
	english := "# A\n\n```sh\nmake\n```\n\n| `x` |\n|---|\n\n- one\n- two\n\n![p](p.svg)\n<img src=\"q.svg\">"
	for other, want := range map[string]string{
		english:                                                  "",
		strings.ReplaceAll(english, "A", "甲"):                    "",
		strings.Replace(english, "# ", "", 1):                    "p.md:3: a block of sh",
		strings.Replace(english, "# ", "## ", 1):                 "p.md:1: a heading of level 2",
		strings.Replace(english, "make", "make a", 1):            `p.md:4: code "make a\n"`,
		strings.Replace(english, "```sh", "```text", 1):          "p.md:3: a block of text",
		strings.Replace(english, "\n|---|", "", 1):               "p.md:9: an item of a list",
		strings.Replace(english, "`x`", "`y`", 1):                "p.md:7: a row of a table with the code `y`",
		strings.Replace(english, "\n- two", "", 1):               "p.md:12: the picture p.svg",
		strings.Replace(english, "[p]", "[甲]", 1):                "",
		strings.Replace(english, "q.svg", "r.svg", 1):            "p.md:14: the picture r.svg",
		strings.Replace(english, "\n<img src=\"q.svg\">", "", 1): "p.md:13: the end",
		english + "\n- three":                                    "p.md:15: an item of a list",
	} {
		got := firstDifference(parts(t, page(english)), parts(t, page(other)))
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %q", other, got, want)
		}
	}
}

// Only a line at the top of a README leads to the other language.
func TestLinksStayInTheirLanguage(t *testing.T) {
	english, other := translated(t)
	for _, p := range english {
		c := other[p.Path]
		for _, l := range p.Links() {
			if file, _, local := p.Resolve(l.Text); local && isChinese(file) && file != c.Path {
				t.Errorf("%v leads to a Chinese page", l)
			}
		}
		for _, l := range c.Links() {
			file, _, local := c.Resolve(l.Text)
			if _, ok := other[file]; ok && local && file != p.Path {
				t.Errorf("%v: want %s", l, chinese(file))
			}
		}
		if path.Base(p.Path) == "README.md" {
			for _, pair := range [][2]markdown.Page{{p, c}, {c, p}} {
				if links := pair[0].Links(); len(links) == 0 || resolved(pair[0], links[0]) != pair[1].Path || links[0].Line > 3 {
					t.Errorf("%s does not begin with a link to %s", pair[0].Path, pair[1].Path)
				}
			}
		}
	}
}

func resolved(p markdown.Page, l markdown.Span) string {
	file, _, _ := p.Resolve(l.Text)
	return file
}

// A Chinese picture shows the same as the English one.
func TestChinesePicturesDifferInTheirWordsOnly(t *testing.T) {
	pictures, err := filepath.Glob("zh-CN/*.svg")
	if err != nil || len(pictures) == 0 {
		t.Fatalf("no Chinese picture: %v", err)
	}
	words := regexp.MustCompile(`(<(?:text|title)[^>]*>)[^<]+`)
	for _, name := range pictures {
		want := words.ReplaceAllString(read(t, "docs/"+filepath.Base(name)), "$1")
		if words.ReplaceAllString(read(t, "docs/"+name), "$1") != want {
			t.Errorf("%s has other shapes or colours than the English one", name)
		}
	}
}

// Chinese text has full-width punctuation, and a space beside a word or a number of Latin letters.
func TestChineseIsPunctuated(t *testing.T) {
	inline := regexp.MustCompile("`[^`]+`")
	target := regexp.MustCompile(`\]\([^()\s]+\)`)
	wrong := regexp.MustCompile(`\p{Han}[,.;:!?()]|[,;:!?(]\p{Han}|\p{Han}[A-Za-z0-9]|[A-Za-z0-9%]\p{Han}|[，。；：、（）！？「」] +[^ |]|[^ |\-] +[，。；：、（）！？」]`)
	for _, p := range pages(t) {
		if !isChinese(p.Path) {
			continue
		}
		code := map[int]bool{}
		for _, b := range blocks(t, p) {
			for i := range strings.Count(b.Text, "\n") {
				code[b.Line+i] = true
			}
		}
		for i, line := range p.Lines {
			if code[i] {
				continue
			}
			line = target.ReplaceAllString(inline.ReplaceAllString(line, "x"), "]")
			if found := wrong.FindString(line); found != "" {
				t.Errorf("%s:%d: %q in %s", p.Path, i+1, found, line)
			}
		}
	}
}
