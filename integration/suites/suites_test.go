package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheTableNamesPathsAndTargetsThatAreThere(t *testing.T) {
	all, err := parseTable(tableText)
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nSUITES = " + strings.Join(names(all), " ") + "\n"; !strings.Contains(string(makefile), want) {
		t.Errorf("the Makefile has no line %q", strings.TrimSpace(want))
	}
	for _, s := range all {
		for _, path := range slices.Concat(s.own, s.ground) {
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("suite %s: %v", s.name, err)
			}
		}
		if !strings.Contains(string(makefile), "\ntest-"+s.name+":") {
			t.Errorf("suite %s: there is no target test-%s", s.name, s.name)
		}
	}
	text, err := os.ReadFile("proved.txt")
	if err != nil {
		t.Fatal(err)
	}
	proofs, err := parseProofs(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range proofs {
		if !slices.ContainsFunc(all, func(s suite) bool { return s.name == p.name }) {
			t.Errorf("proved.txt has suite %s, and table.txt has not", p.name)
		}
	}
}

// folders are the packages that a target of the Makefile tests, as go list takes them.
func folders(t *testing.T, target string) (patterns []string) {
	t.Helper()
	out, err := exec.Command("make", "--dry-run", "--no-print-directory", "-C", "../..", target).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(out), "\\\n", "")) {
		if dir, _, found := strings.Cut(strings.TrimPrefix(line, "cd "), " && "); found && strings.HasPrefix(line, "cd ") {
			patterns = append(patterns, "./"+dir)
			continue
		}
		if _, rest, found := strings.Cut(line, "go test "); found {
			for _, word := range strings.Fields(rest) {
				if strings.HasPrefix(word, "./") {
					patterns = append(patterns, word)
				}
			}
		}
	}
	return patterns
}

// golist lists packages by a template that gives folders or files, and returns these from the
// root of the repository.
func golist(t *testing.T, args ...string) []string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", append([]string{"list"}, args...)...)
	c.Dir = root
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for line := range strings.Lines(string(out)) {
		if dir, found := strings.CutPrefix(strings.TrimSpace(line), root); found {
			dirs = append(dirs, strings.TrimPrefix(filepath.ToSlash(dir), "/"))
		}
	}
	return dirs
}

// A suite that is noted as proved would otherwise not run after a change that can break it.
func TestASuiteCoversAllThatItImports(t *testing.T) {
	all, err := parseTable(tableText)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		patterns := folders(t, "test-"+s.name)
		if len(patterns) == 0 {
			t.Errorf("suite %s: its target tests no folder", s.name)
			continue
		}
		const files = "{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}\n{{end}}"
		for _, file := range golist(t, append([]string{"-deps", "-test", "-f", files}, patterns...)...) {
			if !covers(s.own, file) && !covers(s.ground, file) {
				t.Errorf("suite %s imports %s, which table.txt does not give it", s.name, file)
			}
		}
	}
}

// A folder that no target names would be tested by nobody.
func TestEveryFolderWithTestsHasATarget(t *testing.T) {
	all, err := parseTable(tableText)
	if err != nil {
		t.Fatal(err)
	}
	patterns := append(folders(t, "gate-units"), folders(t, "gate-brokers")...)
	for _, s := range all {
		patterns = append(patterns, folders(t, "test-"+s.name)...)
	}
	const withTests = "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}"
	tested := golist(t, append([]string{"-f", withTests}, patterns...)...)
	work, err := os.ReadFile("../../go.work")
	if err != nil {
		t.Fatal(err)
	}
	var modules []string
	for line := range strings.Lines(string(work)) {
		if word := strings.TrimSpace(line); strings.HasPrefix(word, ".") {
			modules = append(modules, word+"/...")
		}
	}
	for _, dir := range golist(t, append([]string{"-f", withTests}, modules...)...) {
		if !slices.Contains(tested, dir) {
			t.Errorf("no target of the gate or of a suite tests %s", dir)
		}
	}
}

func TestTableErrors(t *testing.T) {
	for _, tt := range []struct{ rule, text, want string }{
		{"no colon", "a b", "line 1: want a suite"},
		{"no path of its own", "\na: | b", "line 2: want a suite"},
		{"no name", ": b", "line 1: want a suite"},
		{"twice", "a: b\na: c", `line 2: suite "a" is there twice`},
	} {
		if _, err := parseTable(tt.text); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.rule, err, tt.want)
		}
	}
	if _, err := parseProofs("a 2026-01-01 f00"); err == nil {
		t.Error("a line of three words is a proof")
	}
}

func TestWhichSuiteIsNeededFirst(t *testing.T) {
	now := hashes{"own", "ground"}
	proofs := []proof{
		{"ground long ago", "2026-01-01", hashes{"own", "other"}},
		{"own lately", "2026-03-01", hashes{"other", "ground"}},
		{"own long ago", "2026-02-01", hashes{"other", "other"}},
		{"proved", "2025-01-01", now},
	}
	var states []state
	for _, name := range []string{"proved", "ground long ago", "own lately", "own long ago", "never"} {
		states = append(states, stateOf(suite{name: name}, now, proofs))
	}
	var names []string
	for _, s := range needed(states, 10) {
		names = append(names, s.suite.name)
	}
	if want := []string{"never", "own long ago", "own lately", "ground long ago"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if two := needed(states, 2); len(two) != 2 {
		t.Errorf("%d suites, want 2", len(two))
	}
}

func TestAbout(t *testing.T) {
	all, err := parseTable("sdk = a b\nx: b c | sdk\ny: d | sdk")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	dir := t.TempDir()
	for _, path := range []string{"a", "b/inner", "c", "e"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := about(&out, dir, all, []string{"b/inner", "./a/", "e"}); err != nil {
		t.Fatal(err)
	}
	want := "b/inner  make test-x  is about it\nb/inner  make test-y  uses it\na        make test-x  uses it\na        make test-y  uses it\n" +
		"e        make test    no suite beside the gate has it\n"
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
	for _, path := range []string{"nowhere", "..", "/"} {
		if err := about(&out, dir, all, []string{path}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// checkout is a repository with the paths a and b and the suites of table.
type checkout struct {
	*testing.T
	*repository
	all []suite
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{T: t, repository: &repository{t.TempDir()}}
	for _, args := range [][]string{{"init", "-q"}, {"config", "user.email", "a@example.com"}, {"config", "user.name", "a"}} {
		c.run(args...)
	}
	var err error
	if c.all, err = parseTable("x: a | b integration/suites"); err != nil {
		t.Fatal(err)
	}
	c.write("a/file", "1")
	c.write("b/file", "1")
	c.write("integration/suites/other", "1")
	c.write(provedFile, "")
	c.commit()
	return c
}

func (c *checkout) run(args ...string) {
	c.Helper()
	if out, err := exec.Command("git", append([]string{"-C", c.dir}, args...)...).CombinedOutput(); err != nil {
		c.Fatalf("git %s: %v: %s", args, err, out)
	}
}

func (c *checkout) write(path, text string) {
	c.Helper()
	path = filepath.Join(c.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		c.Fatal(err)
	}
}

func (c *checkout) commit() {
	c.Helper()
	c.run("add", "-A")
	c.run("commit", "-qm", "change")
}

// prove proves the suite with a run that does what test does.
func (c *checkout) prove(test func() error) error {
	day := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	return prove(c.Context(), c.repository, c.all, "x", day, func(_ context.Context, dir, target string) error {
		if dir != c.dir || target != "test-x" {
			c.Errorf("make %s in %s", target, dir)
		}
		return test()
	})
}

func (c *checkout) want(rule string, want need) {
	c.Helper()
	states, err := c.states(c.Context(), c.all)
	if err != nil {
		c.Fatal(err)
	}
	if states[0].need != want {
		c.Errorf("%s: %v, want %v", rule, states[0].need, want)
	}
}

func passes() error { return nil }

func TestASuiteIsProvedByARunThatPassed(t *testing.T) {
	c := newCheckout(t)
	c.want("it has never passed", ownChanged)
	if err := c.prove(func() error { return errors.New("a test failed") }); err == nil {
		t.Error("a run that failed is no error")
	}
	c.want("it has failed", ownChanged)
	if err := c.prove(passes); err != nil {
		t.Fatal(err)
	}
	c.want("it has passed, not committed", proved)
	c.commit()
	c.want("the line of a suite is committed in its own ground", proved)
	c.write("b/file", "2")
	c.commit()
	c.want("its ground has changed", groundChanged)
	c.write("a/file", "2")
	c.commit()
	c.want("its own path has changed", ownChanged)
	if err := c.prove(passes); err != nil {
		t.Fatal(err)
	}
	c.want("it has passed again", proved)
	if text, _ := os.ReadFile(filepath.Join(c.dir, provedFile)); bytes.Count(text, []byte("\nx 2026-05-04 ")) != 1 {
		t.Errorf("proved.txt:\n%s", text)
	}
	c.run("mv", "a/file", "a/renamed")
	c.commit()
	c.want("a file has another name", ownChanged)
}

func TestWhatIsNotCommittedProvesNothing(t *testing.T) {
	c := newCheckout(t)
	c.write("a/new", "1")
	if err := c.prove(passes); err == nil || !strings.Contains(err.Error(), "a/new") {
		t.Errorf("with a file that is not committed: %v", err)
	}
	c.commit()
	if err := c.prove(func() error { c.write("b/file", "changed"); return nil }); err == nil || !strings.Contains(err.Error(), "b/file") {
		t.Errorf("with a file that changes during the run: %v", err)
	}
	c.commit()
	if err := c.prove(func() error { c.write("b/file", "again"); c.commit(); return nil }); err == nil {
		t.Error("a commit during the run counts as proved")
	}
	c.want("none of them is noted", ownChanged)
}
