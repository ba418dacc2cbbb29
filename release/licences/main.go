// Command licences lists the modules that the packages of each published module need on
// any of the platforms, with their licences:
//
//	go run ./release/licences          # compares the list with release/licences/licences.txt
//	go run ./release/licences -update  # writes it
//
// A licence that is unknown or not allowed is an error, as is a list that has changed.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rehop/rehop/release/module"
)

// systems are those whose dependencies are listed.
var systems = []string{"linux", "darwin", "windows"}

func main() {
	update := flag.Bool("update", false, "write the list")
	flag.Parse()
	if err := run(*update); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dependency is a module that published modules need.
type dependency struct {
	path     string
	licences []string
	users    map[string]bool // published modules by their directories, and their commands
}

func run(update bool) error {
	root, err := module.Root()
	if err != nil {
		return err
	}
	all := map[string]*dependency{}
	var faults []error
	for _, m := range module.Published {
		for _, system := range systems {
			found, err := needed(filepath.Join(root, filepath.FromSlash(m.Dir)), system)
			if err != nil {
				return err
			}
			for path, n := range found {
				d := all[path]
				if d == nil {
					d = &dependency{path: path, users: map[string]bool{}}
					all[path] = d
				}
				user := m.File()
				if !n.byLibrary {
					user += commands
				}
				d.users[user] = true
				licences, err := licencesIn(n.dir)
				if err != nil {
					faults = append(faults, fmt.Errorf("%s: %w", path, err))
				}
				d.licences = slices.Compact(slices.Sorted(slices.Values(append(d.licences, licences...))))
			}
		}
	}
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(all)) {
		d := all[path]
		users := slices.Sorted(maps.Keys(d.users))
		for _, licence := range d.licences {
			if !isAllowed(licence, users) {
				faults = append(faults, fmt.Errorf("%s: %s is not among the allowed licences: %s; and in commands only: %s",
					path, licence, strings.Join(allowed, ", "), strings.Join(allowedInCommands, ", ")))
			}
		}
		fmt.Fprintf(&text, "%s: %s (%s)\n", path, strings.Join(d.licences, " and "), strings.Join(users, ", "))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	name := filepath.Join(root, "release", "licences", "licences.txt")
	if update {
		return os.WriteFile(name, []byte(text.String()), 0o644)
	}
	have, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if string(have) != text.String() {
		return fmt.Errorf("the dependencies are not those of release/licences/licences.txt:\n%s\nread what has changed, then run: go run ./release/licences -update", text.String())
	}
	return nil
}

// commands ends the name of a published module whose commands alone need a dependency.
const commands = " commands"

// need is a module that a published module needs.
type need struct {
	dir       string
	byLibrary bool // a package needs it that users import
}

// needed returns the modules that the packages of a module need, but for our own.
func needed(dir, system string) (map[string]need, error) {
	command := exec.Command("go", "list", "-deps", "-json=ImportPath,Name,DepOnly,Deps,Module", "./...")
	command.Dir, command.Stderr = dir, os.Stderr
	command.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOOS="+system)
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s for %s: %w", dir, system, err)
	}
	type modulePath struct{ Path, Dir string }
	modules := map[string]modulePath{} // by the import paths of packages
	byLibrary := map[string]bool{}     // import paths
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var p struct {
			ImportPath, Name string
			DepOnly          bool
			Deps             []string
			Module           *modulePath
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if p.Module != nil && p.Module.Path != module.Prefix && !strings.HasPrefix(p.Module.Path, module.Prefix+"/") {
			modules[p.ImportPath] = *p.Module
		}
		if !p.DepOnly && p.Name != "main" {
			for _, path := range p.Deps {
				byLibrary[path] = true
			}
		}
	}
	found := map[string]need{}
	for path, m := range modules {
		found[m.Path] = need{m.Dir, found[m.Path].byLibrary || byLibrary[path]}
	}
	return found, nil
}
