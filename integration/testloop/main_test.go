package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module with one test, and returns its folder.
func module(t *testing.T, test string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example\n\ngo 1.25.0\n",
		"a_test.go": "package example\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Args\n\nfunc Test(t *testing.T) {\n" + test + "\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestEachRunThatFailsIsPrintedWithItsSeed(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	// The test fails in each run but the first.
	t.Chdir(module(t, `if _, err := os.Stat("again"); err == nil { t.Fatal("it is the second time") }
	if err := os.WriteFile("again", nil, 0o600); err != nil { t.Fatal(err) }`))
	var out bytes.Buffer
	err := run(t.Context(), []string{"-times", "3", "-busy", "0", "."}, &out)
	if err == nil || err.Error() != "2 runs failed" {
		t.Errorf("%v, want: 2 runs failed", err)
	}
	text := out.String()
	for _, want := range []string{"example, run 2, -shuffle 1", "example, run 3, -shuffle 1", "it is the second time", "example: 2 of 3 runs failed"} {
		if !strings.Contains(text, want) {
			t.Errorf("without %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "run 1,") {
		t.Errorf("the run that passed is printed:\n%s", text)
	}
	if err := run(t.Context(), []string{"-times", "1", "-busy", "0", "-run", "Other", "."}, &out); err != nil {
		t.Errorf("without the test that fails: %v", err)
	}
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-times", "0", "-busy", "-1"}, "-times is 0, want at least 1\n-busy is -1, want at least 0\nwant packages, such as ./consumer"},
		{[]string{"./missing"}, "go list: "},
	} {
		if err := run(t.Context(), tt.args, &bytes.Buffer{}); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.args, err, tt.want)
		}
	}
}

// What a package prints behind its failures, such as a table, does not hide them.
func TestALongOutputIsPrintedFromItsFirstFailureOn(t *testing.T) {
	long := strings.Repeat("a line of a table\n", 10_000)
	for name, text := range map[string]string{
		"behind what was logged": long + "--- FAIL: TestOne (0.1s)\n    why\n" + long,
		"at the beginning":       "--- FAIL: TestOne (0.1s)\n    why\n" + long,
		"before a panic":         long + "--- FAIL: TestOne (0.1s)\n    why\npanic: again\n" + long,
	} {
		if got := string(faults([]byte(text))); !strings.HasPrefix(got, "--- FAIL: TestOne (0.1s)\n    why\n") || len(got) != most {
			t.Errorf("%s: %d bytes that begin with %.60q", name, len(got), got)
		}
	}
	if got := string(faults([]byte(long + "exit"))); len(got) != most || !strings.HasSuffix(got, "exit") {
		t.Errorf("without a failure: %d bytes, want the end", len(got))
	}
}
