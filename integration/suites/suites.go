// Command suites says which test suites a change needs, and notes which have passed.
//
//	suites                 every suite, and whether it is due
//	suites -for PATH ...   the suites of a change there
//	suites -due 2          the names of the two suites that need it most
//	suites -json           the names of all, as a list in JSON
//	suites -prove NAME     run a suite, and note in proved.txt that it passed
//
// table.txt says which paths a suite covers. proved.txt has a line for each suite that has
// passed whole: its name, the day, and two hashes of the paths as they were then, of its own
// and of those that it uses. A suite is due when one of its hashes has changed. So a fresh
// clone shows which suites are due, and needs no earlier commit.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rehop/rehop/integration/command"
)

//go:embed table.txt
var tableText string

func main() {
	command.Main("suites", func(ctx context.Context, args []string) error { return run(ctx, args, os.Stdout) })
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("suites", flag.ContinueOnError)
	due := flags.Int("due", 1, "print the names of so many suites that are due, those first that need it most")
	list := flags.Bool("json", false, "print the names of all suites as a list in JSON")
	paths := flags.Bool("for", false, "print the suites of the paths that follow")
	name := flags.String("prove", "", "run the suite of this name, and note that it passed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := parseTable(tableText)
	if err != nil {
		return fmt.Errorf("table.txt: %w", err)
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case len(given) > 1:
		return errors.New("want one of the flags -due, -for, -json and -prove")
	case *due < 1:
		return fmt.Errorf("-due is %d, want at least 1", *due)
	case !given["for"] && flags.NArg() > 0:
		return fmt.Errorf("argument %q: want none but behind -for", flags.Arg(0))
	}
	if *list {
		return json.NewEncoder(out).Encode(names(all))
	}
	r, err := openRepository(ctx)
	if err != nil {
		return err
	}
	switch {
	case *paths:
		return about(out, r.dir, all, flags.Args())
	case given["prove"]:
		return prove(ctx, r, all, *name, time.Now().UTC(), runMake)
	}
	states, err := r.states(ctx, all)
	if err != nil {
		return err
	}
	if given["due"] {
		for _, s := range needed(states, *due) {
			fmt.Fprintln(out, s.suite.name)
		}
		return nil
	}
	return print(out, states)
}

// prove runs a suite and notes that it passed, with the paths as they were before the run.
func prove(ctx context.Context, r *repository, all []suite, name string, day time.Time, test func(ctx context.Context, dir, target string) error) error {
	i := slices.IndexFunc(all, func(s suite) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("-prove is %q, want one of %s", name, strings.Join(names(all), ", "))
	}
	before, err := r.committed(ctx, all[i])
	if err != nil {
		return err
	}
	if err = test(ctx, r.dir, "test-"+name); err != nil {
		return fmt.Errorf("suite %s has not passed: %w", name, err)
	}
	after, err := r.committed(ctx, all[i])
	if err == nil && after != before {
		err = errors.New("its paths have changed while it ran")
	}
	if err != nil {
		return fmt.Errorf("suite %s has passed, and is not noted: %w", name, err)
	}
	return r.note(proof{name: name, day: day.Format(time.DateOnly), hashes: before})
}

// about prints the suites of a change in paths, from the root of the repository dir.
func about(out io.Writer, dir string, all []suite, paths []string) error {
	if len(paths) == 0 {
		return errors.New("-for wants a path, such as consumer")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, path := range paths {
		path = filepath.ToSlash(filepath.Clean(path))
		if _, err := os.Stat(filepath.Join(dir, path)); err != nil || !filepath.IsLocal(path) {
			return fmt.Errorf("-for: there is no %s below the root of the repository", path)
		}
		found := false
		for _, s := range all {
			switch {
			case overlaps(s.own, path):
				fmt.Fprintf(w, "%s\tmake test-%s\tis about it\n", path, s.name)
			case overlaps(s.ground, path):
				fmt.Fprintf(w, "%s\tmake test-%s\tuses it\n", path, s.name)
			default:
				continue
			}
			found = true
		}
		if !found {
			fmt.Fprintf(w, "%s\tmake test\tno suite beside the gate has it\n", path)
		}
	}
	return w.Flush()
}

func names(all []suite) (names []string) {
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

func print(out io.Writer, states []state) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range states {
		fmt.Fprintf(w, "make test-%s\tpassed %s\t%s\n", s.suite.name, cmp.Or(s.day, "never"), s.need)
	}
	return w.Flush()
}
