// Package module lists the modules of the repository that are published. All have the
// same version.
package module

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Module is a published module.
type Module struct {
	Path  string
	Dir   string   // from the root of the repository, with slashes
	Tests []string // its packages whose tests need no broker and little time
	Skip  string   // tests of those that read files outside the module; a pattern of go test
}

// Published are the modules in the order of their dependencies: each requires only
// modules before it.
var Published = []Module{
	{"github.com/rehop/rehop", ".", []string{"./delay", "./xdeath", "./service", "./store", "./internal/header", "./internal/copies", "./internal/levels"}, ""},
	{"github.com/rehop/rehop/store/sqlite", "store/sqlite", []string{"./..."}, ""},
	{"github.com/rehop/rehop/store/elastic", "store/elastic", []string{"./..."}, ""},
	{"github.com/rehop/rehop/otel", "otel", []string{"./..."}, ""},
	{"github.com/rehop/rehop/desk", "desk", []string{"./cmd/...", "./web"}, "^TestComparisonOfThePage$"},
}

// Prefix begins the path of every module of the repository.
const Prefix = "github.com/rehop/rehop"

// Tag returns the tag of a version of the module.
func (m Module) Tag(version string) string {
	if m.Dir == "." {
		return version
	}
	return m.Dir + "/" + version
}

// File returns a name for files about the module, without an extension.
func (m Module) File() string {
	if m.Dir == "." {
		return "rehop"
	}
	return strings.ReplaceAll(m.Dir, "/", "-")
}

// Root returns the root of the repository that the working directory is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.work above the working directory: run in the repository")
		}
		dir = parent
	}
}
