package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// parse returns the lines of a package that consists of source.
func parse(t *testing.T, source string) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "p.go", "package p\n"+source, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := (&types.Config{Importer: importer.Default()}).Check("p", set, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return describe(p)
}

func TestDescribe(t *testing.T) {
	for source, want := range map[string][]string{
		"const A uint8 = 1; const b = 2": {"p.A const uint8 = 1"},
		"var V, w error":                 {"p.V var error"},
		"func F(a int, f func(b string)) (c bool, err error) { panic(0) }": {"p.F func(int, func(string)) (bool, error)"},
		"func G[T any](list ...T) T { panic(0) }":                          {"p.G [T any] func(...T) T"},
		"type S struct { A int; b []int }":                                 {"p.S struct", "p.S.A field int"},
		"type S struct { A int }; func (S) M() {}; func (*S) N() {}; func (*S) o() {}": {
			"p.S comparable", "p.S struct", "p.S.A field int", "p.S.M method (S) func()", "p.S.N method (*S) func()"},
		"type n struct{}; func (n) M() {}; type S struct { n }": {"p.S comparable", "p.S struct", "p.S.M method (S) func()"},
		"type I interface { B(x int); A() }":                    {"p.I interface { A, B }", "p.I.A method func()", "p.I.B method func(int)"},
		"type I interface { A(); b() }":                         {"p.I sealed interface", "p.I.A method func()"},
		"type D map[string]int; type E = D":                     {"p.D type map[string]int", "p.E = D"},
		"type L[T any] struct { Of []T }":                       {"p.L [T any] struct", "p.L.Of field []T"},
	} {
		if got := parse(t, source); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", source, got, want)
		}
	}
}

// TestBreaks: a break needs its name in the changelog, and an addition needs nothing.
func TestBreaks(t *testing.T) {
	const before = "type C struct { A int; B []int }; func F(int) {}; type I interface { M() }"
	for _, tt := range []struct{ now, want string }{
		{before, ""},
		{before + "; func G() {}", ""},
		{"type C struct { A, N int; B []int }; func F(x int) {}; type I interface { M() }", ""},
		{"type C struct { B []int }; func F(int) {}; type I interface { M() }", "`p.C.A`"},
		{"type C struct { A int; B []int }; func F(int, ...int) {}; type I interface { M() }", "`p.F`"},
		{"type C struct { A int; B []int }; func F(int) {}; type I interface { M(); N() }", "`p.I`"},
	} {
		now := parse(t, tt.now)
		broken := unexplained(parse(t, before), now, "")
		if got := strings.Join(names(broken), ", "); got != tt.want {
			t.Errorf("%s breaks %q, want %q", tt.now, got, tt.want)
		}
		if left := unexplained(parse(t, before), now, "- Nobody needs "+tt.want+"."); len(left) > 0 {
			t.Errorf("%s: named in the changelog, and still a fault: %q", tt.now, left)
		}
	}
	if broken := unexplained(parse(t, before), nil, "`p.C.A` is gone"); len(broken) != len(parse(t, before))-1 {
		t.Errorf("the name of one field explains other lines: %q left", broken)
	}
}
