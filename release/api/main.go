// Command api compares the exported API of the published modules with the files that
// describe it, a line for each identifier, field and method:
//
//	go run ./release/api           # compares
//	go run ./release/api -update   # writes release/api/current
//	go run ./release/api -release  # makes the current API the one of the last release
//
// It fails if release/api/current is not the API of the tree. It also fails if an
// identifier of release/api/released is missing or has changed, unless CHANGELOG.md names
// it below the heading "### Breaking" of its unreleased section.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rehop/rehop/release/internal/changelog"
	"github.com/rehop/rehop/release/module"
)

func main() {
	update := flag.Bool("update", false, "write the API of the tree into release/api/current")
	released := flag.Bool("release", false, "copy release/api/current to release/api/released")
	flag.Parse()
	if err := run(*update, *released); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(update, released bool) error {
	root, err := module.Root()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "release", "api")
	apis, err := load(root)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	unreleased, _ := changelog.Section(string(text), "Unreleased")
	breaking, _ := changelog.Part(unreleased, "Breaking")
	var faults []error
	for _, m := range module.Published {
		now, ok := apis[m.Path]
		if !ok { // a command
			continue
		}
		current := filepath.Join(dir, "current", m.File()+".txt")
		if update {
			if err := write(current, now); err != nil {
				return err
			}
		}
		have, err := read(current)
		if err != nil {
			return err
		}
		if removed, added := difference(have, now); len(removed)+len(added) > 0 {
			faults = append(faults, fmt.Errorf("the API of %s is not the one of release/api/current/%s.txt:\n%srun: go run ./release/api -update",
				m.Path, m.File(), list(removed, added)))
		}
		former := filepath.Join(dir, "released", m.File()+".txt")
		if released {
			if err := write(former, now); err != nil {
				return err
			}
		}
		old, err := read(former)
		if err != nil {
			return err
		}
		if broken := unexplained(old, now, breaking); len(broken) > 0 {
			faults = append(faults, fmt.Errorf("programs that use %s may no longer compile:\n%sname each of them in CHANGELOG.md, section [Unreleased], below ### Breaking: %s",
				m.Path, list(broken, nil), strings.Join(names(broken), ", ")))
		}
	}
	return errors.Join(faults...)
}

// difference returns the lines that only one of two APIs has.
func difference(before, after []string) (removed, added []string) {
	return without(before, after), without(after, before)
}

func without(list, others []string) (left []string) {
	has := map[string]bool{}
	for _, line := range others {
		has[line] = true
	}
	for _, line := range list {
		if !has[line] {
			left = append(left, line)
		}
	}
	return left
}

// unexplained returns the lines of a former API that are missing now and whose names the
// text about breaks does not have.
func unexplained(former, now []string, breaking string) (lines []string) {
	for _, line := range without(former, now) {
		if !strings.Contains(breaking, "`"+name(line)+"`") {
			lines = append(lines, line)
		}
	}
	return lines
}

// name returns the name of a line, such as producer.Config.Window: its first word.
func name(line string) string {
	word, _, _ := strings.Cut(line, " ")
	return word
}

func names(lines []string) (all []string) {
	for _, line := range lines {
		if n := "`" + name(line) + "`"; len(all) == 0 || all[len(all)-1] != n {
			all = append(all, n)
		}
	}
	return all
}

func list(removed, added []string) string {
	var s strings.Builder
	for _, line := range removed {
		fmt.Fprintf(&s, "  - %s\n", line)
	}
	for _, line := range added {
		fmt.Fprintf(&s, "  + %s\n", line)
	}
	return s.String()
}

func write(name string, lines []string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// read returns the lines of a file, and none of a file that does not exist: nothing has
// been released then.
func read(name string) ([]string, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimRight(string(data), "\n"), "\n"), err
}
