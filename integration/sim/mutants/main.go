// Command mutants shows that the simulations find defects: it puts each into a
// copy of the tree and runs TestSim and TestOnceFailed of the simulation there.
//
//	go run ./integration/sim/mutants -for 1m
//
// It fails if one is not found.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/integration/command"
)

func main() {
	limit := flag.Duration("for", time.Minute, "how long a defect is looked for")
	only := flag.String("only", "", "a regular expression that matches the names of those to look for")
	in := flag.String("in", "", "the folder, or the beginning of the path, of those to look for")
	verbose := flag.Bool("v", false, "print what was found")
	flag.Parse()
	command.Main("mutants", func(ctx context.Context, _ []string) error { return run(ctx, *limit, *only, *in, *verbose) })
}

func run(ctx context.Context, limit time.Duration, only, in string, verbose bool) error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	names, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	missed := 0
	for _, m := range all {
		if !names.MatchString(m.name) || !slices.ContainsFunc(m.edits, func(e edit) bool { return strings.HasPrefix(e.file, in) }) {
			continue
		}
		found, took, out, err := m.try(ctx, root, limit)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if !found {
			missed++
			fmt.Printf("NOT FOUND in %v: %s\n", took, m.name)
			continue
		}
		fmt.Printf("found in %v: %s: %s\n", took, m.name, firstViolation(out))
		if verbose {
			fmt.Println(out)
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d defects were not found", missed)
	}
	return nil
}

// try looks for a defect in a copy of the tree.
func (m sought) try(ctx context.Context, root string, limit time.Duration) (found bool, took effort, out string, err error) {
	dir, err := os.MkdirTemp("", "rehop-mutant")
	if err != nil {
		return false, took, "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := copyTree(ctx, root, dir); err != nil {
		return false, took, "", err
	}
	if err := m.apply(dir); err != nil {
		return false, took, "", err
	}
	at := filepath.Join(dir, m.simulation)
	binary := filepath.Join(dir, "sim.test")
	build := exec.CommandContext(ctx, "go", "test", "-trimpath", "-tags", "rehopsim", "-c", "-o", binary, ".") // -trimpath: what is not changed is in the build cache
	build.Dir = at
	if text, err := build.CombinedOutput(); err != nil {
		return false, took, "", fmt.Errorf("%w\n%s", err, text)
	}
	test := exec.CommandContext(ctx, binary, "-test.run", "TestSim$|TestOnceFailed", "-test.failfast", "-for", limit.String(), "-hung", limit.String())
	if m.simulation == services {
		test.Args = append(test.Args, "-shrink=false", "-kind", m.kind)
	}
	test.Dir = at
	var text bytes.Buffer
	test.Stdout, test.Stderr = &text, &text
	began := time.Now()
	err = test.Run()
	took = effort{time.Since(began), test.ProcessState.UserTime() + test.ProcessState.SystemTime()}
	var failed *exec.ExitError
	if errors.As(err, &failed) && ctx.Err() == nil {
		return true, took, text.String(), nil
	}
	return false, took, text.String(), err
}

// effort is how long the simulation ran, and how much of the processors it got: on a
// machine that does other things a minute is less.
type effort struct{ wall, processor time.Duration }

func (e effort) String() string {
	return fmt.Sprintf("%v (%v of the processors)", e.wall.Round(time.Second/10), e.processor.Round(time.Second/10))
}

// apply puts the defect into the tree at root.
func (m mutant) apply(root string) error {
	for _, e := range m.edits {
		path := filepath.Join(root, e.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := bytes.Count(text, []byte(e.old)); n != 1 {
			return fmt.Errorf("%s has %d times what is to be replaced, want once: %q", e.file, n, e.old)
		}
		if err := os.WriteFile(path, bytes.Replace(text, []byte(e.old), []byte(e.new), 1), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// findRoot returns the directory of go.work.
func findRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		return "", err
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// copyTree copies what belongs to the tree.
func copyTree(ctx context.Context, from, to string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = from
	out, err := list.Output()
	if err != nil {
		return err
	}
	for _, name := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		text, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// firstViolation returns the line of an output that says what is wrong.
func firstViolation(out string) string {
	lines := strings.Split(out, "\n")
	for _, line := range lines {
		for _, sign := range []string{"violation: ", "does not end", "panic: ", "DATA RACE"} {
			if _, what, ok := strings.Cut(line, sign); ok {
				return sign + what[:min(len(what), 240)]
			}
		}
	}
	return strings.TrimSpace(lines[0])
}
