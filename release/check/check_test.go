package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/semver"
)

const example = `# Changelog

## [Unreleased]

### Added
- a

## [0.1.0] - 2027-01-01

- b
`

func TestNotes(t *testing.T) {
	for _, tt := range []struct{ version, want, err string }{
		{"v0.2.0-rc.1", "### Added\n- a", ""},
		{"v0.1.0", "- b", ""},
		{"v0.1.0-rc.1", "### Added\n- a", ""},
		{"v0.2.0", "", "no section [0.2.0]"},
	} {
		got, err := notes(example, tt.version)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("notes of %s are %q, %v; want %q, %q", tt.version, got, err, tt.want, tt.err)
		}
	}
	if _, err := notes("## [Unreleased]\n\n## [0.1.0]\n- b\n", "v0.2.0-rc.1"); err == nil {
		t.Error("notes of an empty section: no error")
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{"v0.1.0": true, "v1.2.3-rc.1": true, "0.1.0": false, "v0.1": false, "v2.0.0": false, "v1.0.0+x": false} {
		if err := validate(version); (err == nil) != want {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestNext(t *testing.T) {
	for version, want := range map[string]string{"v0.1.0-rc.1": "v0.1.0-rc.2", "v0.1.0-rc.9": "v0.1.0-rc.10", "v0.1.9": "v0.1.10", "v1.0.0-rc": "v1.0.0-rc.1"} {
		if got, err := next(version); got != want || err != nil || semver.Compare(got, version) <= 0 {
			t.Errorf("after %s comes %s, %v; want %s", version, got, err, want)
		}
	}
}

// TestList: the proxy names each version that it has, once.
func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"v0.1.0-rc.1.info", "v0.1.0-rc.1.zip", "v0.1.0-rc.2.info", "v0.1.0-rc.2.mod", "list"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := list(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "list")); err != nil || string(got) != "v0.1.0-rc.1\nv0.1.0-rc.2\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestEdited(t *testing.T) {
	const before = `module github.com/rehop/rehop/otel

go 1.25.0

replace (
	example.com/x => ../x
	github.com/rehop/rehop => ../
)

require (
	example.com/x v1.0.0
	github.com/rehop/rehop v0.0.0
	github.com/rehop/rehop/integration v0.0.0
)
`
	for _, published := range []bool{true, false} {
		after, err := edited("go.mod", []byte(before), "v0.1.0", published)
		if err != nil {
			t.Fatal(err)
		}
		text := string(after)
		if !strings.Contains(text, "github.com/rehop/rehop v0.1.0\n") || !strings.Contains(text, "integration v0.0.0") || !strings.Contains(text, "example.com/x => ../x") {
			t.Errorf("published %v:\n%s", published, text)
		}
		if strings.Contains(text, "rehop => ../") == published {
			t.Errorf("published %v: the replace line of rehop:\n%s", published, text)
		}
	}
}

// TestOutput: the error of a command has all that the command has printed.
func TestOutput(t *testing.T) {
	_, err := output(t.TempDir(), os.Environ(), "sh", "-c", "echo first; echo second >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "first") || !strings.Contains(err.Error(), "second") {
		t.Errorf("%v", err)
	}
	got, err := output(t.TempDir(), os.Environ(), "sh", "-c", "echo first; echo second >&2")
	if got != "first\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestPinned: a published module requires ours in the version of the release alone.
func TestPinned(t *testing.T) {
	const desk = "module github.com/rehop/rehop/desk\n\nrequire github.com/rehop/rehop "
	for mod, want := range map[string]string{
		desk + "v0.1.0\n": "",
		desk + "v0.0.9\n": "requires github.com/rehop/rehop@v0.0.9, want v0.1.0",
		desk + "v0.1.1\n": "requires github.com/rehop/rehop@v0.1.1, want v0.1.0",
		desk + "v0.1.0\n\nrequire github.com/rehop/rehop/store/sqlite v0.0.9\n": "store/sqlite@v0.0.9",
		desk + "v0.1.0\n\nreplace github.com/rehop/rehop => ../\n":              "replaces github.com/rehop/rehop",
		"module example.com/shop\n\nrequire example.com/x v1.0.0\n":             "",
	} {
		err := pinned([]byte(mod), "v0.1.0")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", mod, err, want)
		}
	}
}

func TestForeignLines(t *testing.T) {
	diff := "--- a/go.mod\n+++ b/go.mod\n@@ -3 +3 @@\n-\tgithub.com/rehop/rehop v0.0.0\n+\tgithub.com/rehop/rehop v0.1.0\n-replace (\n-)\n+\texample.com/x v1.0.0\n"
	if got := foreignLines(diff); !slices.Equal(got, []string{"+\texample.com/x v1.0.0"}) {
		t.Errorf("%q", got)
	}
}
