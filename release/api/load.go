package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/rehop/rehop/release/module"
)

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Name, Export string
	DepOnly                  bool
	Module                   *struct{ Path string }
}

// load returns the exported API of each published module that has one, by its path.
func load(root string) (map[string][]string, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Name,Export,DepOnly,Module"}
	for _, m := range module.Published {
		args = append(args, "./"+strings.TrimPrefix(m.Dir+"/...", "./"))
	}
	command := exec.Command("go", args...)
	command.Dir, command.Stderr = root, os.Stderr
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && p.Name != "main" && !strings.Contains(p.ImportPath+"/", "/internal/") {
			packages = append(packages, p)
		}
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	apis := map[string][]string{}
	for _, p := range packages {
		found, err := from.Import(p.ImportPath)
		if err != nil {
			return nil, err
		}
		apis[p.Module.Path] = append(apis[p.Module.Path], describe(found)...)
	}
	for path := range apis {
		slices.Sort(apis[path])
	}
	return apis, nil
}
