package markdown

import (
	"fmt"
	"strings"
	"testing"
)

func page(text string) Page {
	return Page{"docs/a.md", strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
}

func TestBlocks(t *testing.T) {
	p := page("# A\n\n<!-- x_test.go#y -->\n```go\na\n\nb\n```\n```sh\nmake\n```\n")
	blocks, err := p.Blocks()
	if err != nil || len(blocks) != 2 {
		t.Fatal(blocks, err)
	}
	if got, want := blocks[0], (Block{"docs/a.md", 4, "go", "x_test.go#y", "a\n\nb\n"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := blocks[1], (Block{"docs/a.md", 9, "sh", "", "make\n"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := strings.Join(p.Replace(blocks[0], "c\n").Lines, "\n"), "# A\n\n<!-- x_test.go#y -->\n```go\nc\n```\n```sh\nmake\n```"; got != want {
		t.Errorf("replaced: %q, want %q", got, want)
	}
	for _, text := range []string{"```\nx\n```\n", "```go\nx\n", "- a\n  ```go\n  x\n  ```\n", "```go title\nx\n```\n"} {
		if _, err := page(text).Blocks(); err == nil {
			t.Errorf("%q has blocks, want an error", text)
		}
	}
}

func TestLinksAndAnchors(t *testing.T) {
	p := page("# The `x` of it, or: y\n## [A](b.md) b\n## [A](c.md) b\n[x](../README.md#a) and `[no](code.md)` ![p](q.png)\n<img src=\"r.svg\">\n```text\n[no](block.md)\n```\n<a id=\"here\"></a>\n")
	if got, want := fmt.Sprint(p.Links()), "[docs/a.md:2: b.md docs/a.md:3: c.md docs/a.md:4: ../README.md#a docs/a.md:4: q.png docs/a.md:5: r.svg]"; got != want {
		t.Errorf("links %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(p.Anchors()), "map[a-b:true a-b-1:true here:true the-x-of-it-or-y:true]"; got != want {
		t.Errorf("anchors %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(p.Code()), "[docs/a.md:1: x docs/a.md:4: [no](code.md)]"; got != want {
		t.Errorf("code %s, want %s", got, want)
	}
	if file, anchor, local := p.Resolve("../README.md#a"); file != "README.md" || anchor != "a" || !local {
		t.Error(file, anchor, local)
	}
	if file, anchor, local := p.Resolve("#b"); file != "docs/a.md" || anchor != "b" || !local {
		t.Error(file, anchor, local)
	}
}

func TestRegion(t *testing.T) {
	file := "package p\n\nfunc f() {\n\t// begin a\n\tx()\n\t// begin b\n\tif y {\n\t\tz() // hidden\n\n\t\tw()\n\t}\n\t// end b\n\t// end a\n\tv()\n\t// begin a\n\tu()\n\t// end a\n}\n"
	for name, want := range map[string]string{
		"a": "x()\nif y {\n\n\tw()\n}\nu()\n",
		"b": "if y {\n\n\tw()\n}\n",
		"":  "package p\n\nfunc f() {\n\tx()\n\tif y {\n\n\t\tw()\n\t}\n\tv()\n\tu()\n}\n",
	} {
		if got, err := Region(file, name); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	for _, file := range []string{"", "// begin a\nx\n", "x\n// end a\n", "// begin a\n// begin a\nx\n// end a\n"} {
		if got, err := Region(file, "a"); err == nil {
			t.Errorf("%q: %q, want an error", file, got)
		}
	}
}

func TestCommands(t *testing.T) {
	commands, err := Commands("# one\nmake demo   # two\nA_B=1 C=x go run . | jq -r '.a | .b' && rehop dlq \\\n  --error \"no # stock\"\n")
	want := "[{2 [] [make demo]} {3 [A_B=1 C=x] [go run .]} {3 [] [jq -r .a | .b]} {3 [] [rehop dlq --error no # stock]}]"
	got := fmt.Sprint(func() (all []string) {
		for _, c := range commands {
			all = append(all, fmt.Sprintf("{%d %v %v}", c.Line, c.Env, c.Args))
		}
		return all
	}())
	if got != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	for _, text := range []string{"a $B", "a > b", "a \"b", "a $(b)", "a \"$b\"", "a *"} {
		if c, err := Commands(text); err == nil {
			t.Errorf("%q: %v, want an error", text, c)
		}
	}
}
