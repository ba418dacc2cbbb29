package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rehop/rehop/release/module"
)

//go:embed testdata/office/main.go
var office []byte

// upgrade makes the next candidate of the same commit, in the same proxy. It replaces a
// service that was built with this one by its build with the next one, while it works.
func (c *candidate) upgrade(root string, step func(string)) error {
	following, err := next(c.version)
	if err != nil {
		return err
	}
	second, err := newCandidate(c.tree, c.scratch, following)
	if err != nil {
		return err
	}
	if err := second.prepare(func(string) {}); err != nil {
		return err
	}
	if err := second.publish(); err != nil {
		return err
	}
	step("published " + following + " of the same commit into the same proxy")

	dir := filepath.Join(c.scratch, "office")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), office, 0o644); err != nil {
		return err
	}
	if _, err := output(dir, c.flags("mod"), "go", "mod", "init", "example.com/office"); err != nil {
		return err
	}
	for _, candidate := range []*candidate{c, second} {
		if err := candidate.buildOffice(dir); err != nil {
			return err
		}
		step("a service outside the tree builds with " + candidate.version)
	}
	known, err := output(dir, c.flags("mod"), "go", "list", "-m", "-versions", module.Prefix)
	if err != nil {
		return err
	}
	if fields := strings.Fields(known); !slices.Equal(fields, []string{module.Prefix, c.version, following}) {
		return fmt.Errorf("the proxy lists %q", known)
	}

	folder := filepath.Join(dir, "data")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	// The program of the old version publishes, so that the new one reads its messages.
	before, after := filepath.Join(dir, c.version), filepath.Join(dir, following)
	account, err := output(root, os.Environ(), "go", "run", "./integration/withbroker", "--", filepath.Join(before, "office"), "try", before, after, folder)
	if err != nil {
		return fmt.Errorf("upgrade from %s to %s: %w", c.version, following, err)
	}
	step("the service was replaced by its build with " + following + " while it worked:")
	for line := range strings.Lines(account) {
		fmt.Print("         ", line)
	}
	return nil
}

// buildOffice upgrades the modules that the service requires to this candidate, and makes a
// folder with the service and the command of this version.
func (c *candidate) buildOffice(dir string) error {
	bin := filepath.Join(dir, c.version)
	env := append(c.flags("mod"), "GOBIN="+bin)
	get := []string{"go", "get"}
	for _, m := range module.Published {
		if m.Dir != "desk" {
			get = append(get, m.Path+"@"+c.version)
		}
	}
	for _, command := range [][]string{
		get,
		{"go", "mod", "tidy"},
		{"go", "vet", "."},
		{"go", "build", "-o", filepath.Join(bin, "office"), "."},
		{"go", "install", module.Prefix + "/desk/cmd/rehop@" + c.version},
	} {
		if _, err := output(dir, env, command[0], command[1:]...); err != nil {
			return fmt.Errorf("a service with %s: %w", c.version, err)
		}
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	return pinned(mod, c.version)
}

var trailing = regexp.MustCompile(`\d+$`)

// next returns the version after this one: v0.1.0-rc.2 after v0.1.0-rc.1.
func next(version string) (string, error) {
	digits := trailing.FindString(version)
	if digits == "" {
		return version + ".1", nil
	}
	number, err := strconv.Atoi(digits)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(version, digits) + strconv.Itoa(number+1), nil
}
