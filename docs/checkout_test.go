package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rehop/rehop/docs/internal/markdown"
)

// The commands of the page of the first program build it outside of this tree, beside a checkout.
func TestTheFirstProgramIsBuiltWithACheckout(t *testing.T) {
	for _, name := range []string{"docs/start.md", "docs/zh-CN/start.md"} {
		t.Run(name, func(t *testing.T) {
			all := pages(t)
			page := all[slices.IndexFunc(all, func(p markdown.Page) bool { return p.Path == name })]
			dir := t.TempDir()
			for _, b := range blocks(t, page) {
				switch b.Lang {
				case "go":
					if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(b.Text), 0o600); err != nil {
						t.Fatal(err)
					}
				case "sh":
					commands, err := markdown.Commands(b.Text)
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range commands {
						dir = follow(t, dir, c.Args)
					}
				}
			}
			if t.Failed() {
				return
			}
			if _, err := os.Stat(filepath.Join(dir, "shop")); err != nil {
				t.Error("the page does not end with a program: ", err)
			}
		})
	}
}

// follow does what a reader's shell does with a command, as far as no broker is needed. It returns the shell's folder.
func follow(t *testing.T, dir string, args []string) string {
	t.Helper()
	switch args[0] {
	case "git": // the checkout is this tree, with what is not committed
		tree, err := filepath.Abs(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(tree, filepath.Join(dir, "rehop")); err != nil {
			t.Fatal(err)
		}
	case "mkdir":
		if err := os.Mkdir(filepath.Join(dir, args[1]), 0o700); err != nil {
			t.Fatal(err)
		}
	case "cd":
		return filepath.Join(dir, args[1])
	case "go":
		args = slices.Clone(args)
		if slices.Equal(args, []string{"go", "run", "."}) {
			args[1] = "build"
		}
		run := exec.CommandContext(t.Context(), args[0], args[1:]...)
		run.Dir = dir
		run.Env = append(os.Environ(), "GOBIN="+t.TempDir())
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return dir
}
