// Package docs has the tests of the Markdown pages: the README and the folder docs.
//
// The code of a Go block is in a Go file, which go test runs. A comment above the block names
// the file and the region in it:
//
//	<!-- docs/examples/retries_test.go#handler -->
//
// "go test ./docs -update" writes the regions into the pages, the other blocks of the English
// pages into the Chinese ones, and the command lines of rehop into a file for its own test. Package markdown says how a region is marked.
package docs

import (
	"flag"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehop/rehop/docs/internal/markdown"
)

var update = flag.Bool("update", false, "write the regions of Go files into the pages")

const root = ".."

// pages returns the README, in each language, and the pages under docs.
func pages(t *testing.T) []markdown.Page {
	t.Helper()
	all := allPages(t)
	return slices.DeleteFunc(all, func(p markdown.Page) bool {
		return !strings.HasPrefix(p.Path, "docs/") && !strings.HasPrefix(p.Path, "README")
	})
}

// allPages returns also CHANGELOG, DESIGN and whatever else is in the root.
func allPages(t *testing.T) []markdown.Page {
	t.Helper()
	all, err := markdown.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("%d pages, want them all", len(all))
	}
	return all
}

// presentPages returns all pages but CHANGELOG, which tells of what was.
func presentPages(t *testing.T) []markdown.Page {
	t.Helper()
	return slices.DeleteFunc(allPages(t), func(p markdown.Page) bool { return p.Path == "CHANGELOG.md" })
}

func blocks(t *testing.T, p markdown.Page) []markdown.Block {
	t.Helper()
	found, err := p.Blocks()
	if err != nil {
		t.Error(err)
	}
	return found
}

func TestBlocksOfGoAreIncluded(t *testing.T) {
	for _, p := range pages(t) {
		changed := false
		for _, b := range slices.Backward(blocks(t, p)) { // so that the lines of earlier ones stay
			if b.Lang != "go" {
				continue
			}
			want, err := included(b)
			switch {
			case err != "":
				t.Errorf("%v: %s", b, err)
			case want == b.Text:
			case *update:
				p, changed = p.Replace(b, want), true
			default:
				t.Errorf("%v differs from %s; if that file is right: go test ./docs -update", b, b.Include)
			}
		}
		if changed {
			write(t, p)
		}
	}
}

func write(t *testing.T, p markdown.Page) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, p.Path), []byte(strings.Join(p.Lines, "\n")+"\n"), 0o644); err != nil {
		t.Error(err)
	}
}

// included returns the text that a Go block has to have, or why there is none.
func included(b markdown.Block) (text, why string) {
	if b.Include == "" {
		return "", "a Go block without a comment above it such as <!-- docs/examples/start_test.go#region -->"
	}
	name, region, _ := strings.Cut(b.Include, "#")
	if !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "examples/") {
		return "", name + " is run by no test and is no example"
	}
	file, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return "", err.Error()
	}
	text, err = markdown.Region(string(file), region)
	if err != nil {
		return "", name + ": " + err.Error()
	}
	return text, ""
}

func TestBlocksAreOfKnownLanguages(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range blocks(t, p) {
			if !slices.Contains([]string{"go", "sh", "text", "go.mod", "mermaid", "yaml"}, b.Lang) {
				t.Errorf("%v: no test reads blocks of %s", b, b.Lang)
			}
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	anchors := map[string]map[string]bool{}
	all := allPages(t)
	for _, p := range all {
		anchors[p.Path] = p.Anchors()
	}
	for _, p := range all {
		for _, l := range p.Links() {
			file, anchor, local := p.Resolve(l.Text)
			if !local {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil || strings.HasPrefix(file, "..") {
				t.Errorf("%v: there is no %s", l, file)
			} else if anchor != "" && strings.HasSuffix(file, ".md") && !anchors[file][anchor] {
				t.Errorf("%v: %s has no such heading", l, file)
			}
		}
	}
}

// Comments, messages and help texts name pages too.
func TestNamesOfPagesAreRight(t *testing.T) {
	page := regexp.MustCompile(`\bdocs/[\w/.-]+\.(?:md|svg|png)\b`)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && slices.Contains([]string{".git", "bin"}, d.Name()) {
				return fs.SkipDir
			}
			return err
		}
		if !slices.Contains([]string{".go", ".html", ".yml", ".json", ".md", ".js", ""}, filepath.Ext(name)) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, found := range page.FindAllString(string(text), -1) {
			if _, err := os.Stat(filepath.Join(root, found)); err != nil && !strings.HasSuffix(name, "markdown_test.go") {
				t.Errorf("%s: there is no %s", name, found)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A reader gets from the README to each page without a page of another language.
func TestEveryPageIsReachedFromTheReadme(t *testing.T) {
	for _, readme := range []string{"README.md", chinese("README.md")} {
		byPath := map[string]markdown.Page{}
		for _, p := range pages(t) {
			if isChinese(p.Path) == isChinese(readme) {
				byPath[p.Path] = p
			}
		}
		reached := map[string]bool{readme: true}
		for queue := []string{readme}; len(queue) > 0; queue = queue[1:] {
			for _, l := range byPath[queue[0]].Links() {
				if file, _, local := byPath[queue[0]].Resolve(l.Text); local && byPath[file].Path != "" && !reached[file] {
					reached[file] = true
					queue = append(queue, file)
				}
			}
		}
		for name := range byPath {
			if !reached[name] {
				t.Errorf("no link leads from %s to %s", readme, name)
			}
		}
	}
}

func TestPagesAreShort(t *testing.T) {
	for _, p := range pages(t) {
		most := 120
		if strings.HasPrefix(p.Path, "README") {
			most = 190
		}
		if len(p.Lines) > most {
			t.Errorf("%s has %d lines, want at most %d", p.Path, len(p.Lines), most)
		}
	}
}

// A page begins with its question and with code, and ends with the faults. These have no faults
// to tell of.
var lists = []string{"README.md", "glossary.md", "benchmarks.md", "growth.md", "faq.md", "faq-operate.md", "coming-from.md"}

func TestPagesBeginWithCodeAndEndWithFaults(t *testing.T) {
	const firstScreen = 25
	last := map[string]string{"docs": "## What can go wrong", "docs/zh-CN": "## 问题排查"}
	for _, p := range pages(t) {
		want, known := last[path.Dir(p.Path)]
		if !known || slices.Contains(lists, path.Base(p.Path)) {
			continue
		}
		if found := blocks(t, p); len(found) == 0 || found[0].Line > firstScreen {
			t.Errorf("%s begins without code or a command", p.Path)
		}
		if h := p.Headings(); h[len(h)-1] != want {
			t.Errorf("%s ends with %q, want %q", p.Path, h[len(h)-1], want)
		}
	}
}

// A picture for a dark page shows the same as the one for a light page.
func TestDarkPicturesDifferInTheirColoursOnly(t *testing.T) {
	dark, err := filepath.Glob("*-dark.svg")
	if err != nil || len(dark) == 0 {
		t.Fatalf("no dark picture: %v", err)
	}
	inChinese, err := filepath.Glob("zh-CN/*-dark.svg")
	if err != nil {
		t.Fatal(err)
	}
	dark = append(dark, inChinese...)
	colour := regexp.MustCompile(`#[0-9a-f]{6}\b`)
	for _, name := range dark {
		var shapes []string
		for _, name := range []string{name, strings.Replace(name, "-dark", "", 1)} {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			shapes = append(shapes, colour.ReplaceAllString(string(text), "#"))
		}
		if shapes[0] != shapes[1] {
			t.Errorf("%s has other shapes or words than the light one", name)
		}
	}
}

// A go.mod block names modules of this tree.
func TestBlocksOfModulesAreTrue(t *testing.T) {
	replaced := regexp.MustCompile(`(github\.com/rehop/rehop\S*) => \.\./rehop(\S*)`)
	for _, p := range pages(t) {
		for _, b := range blocks(t, p) {
			if b.Lang != "go.mod" {
				continue
			}
			found := replaced.FindAllStringSubmatch(b.Text, -1)
			if len(found) == 0 {
				t.Errorf("%v replaces nothing", b)
			}
			for _, m := range found {
				if text, err := os.ReadFile(filepath.Join(root, m[2], "go.mod")); err != nil || !strings.HasPrefix(string(text), "module "+m[1]+"\n") {
					t.Errorf("%v: %s is not in %s", b, m[1], m[2])
				}
			}
		}
	}
}

// Whoever is woken by an alert finds its name, and what to do.
func TestAlertsAreExplained(t *testing.T) {
	alert := regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)
	row := regexp.MustCompile("(?m)^\\| `(Rehop\\w+)` \\|(?: [^|\\s][^|\n]* \\|){2}$") // when it fires, and what to do
	rules, err := os.ReadFile(filepath.Join(root, "otel/alerts/rehop.yml"))
	if err != nil {
		t.Fatal(err)
	}
	names := func(found [][]string) (list []string) {
		for _, f := range found {
			list = append(list, f[1])
		}
		return list
	}
	want := names(alert.FindAllStringSubmatch(string(rules), -1))
	if len(want) == 0 {
		t.Fatal("no alert in the rules")
	}
	for _, page := range []string{"observability.md", "zh-CN/observability.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(row.FindAllStringSubmatch(string(text), -1)); !slices.Equal(got, want) {
			t.Errorf("%s explains %v, want %v", page, got, want)
		}
	}
}
