package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"

	"github.com/rehop/rehop/release/module"
)

// candidate is a release in a scratch directory.
type candidate struct {
	version string
	scratch string
	tree    string // the clone of this version
	proxy   string // in the layout of GOPROXY=file://
	env     []string
}

func newCandidate(root, scratch, version string) (*candidate, error) {
	c := &candidate{version: version, scratch: scratch, tree: filepath.Join(scratch, "tree", version), proxy: filepath.Join(scratch, "proxy")}
	have, err := output(root, os.Environ(), "go", "env", "GOPROXY", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	proxies, cache, _ := strings.Cut(strings.TrimSpace(have), "\n")
	// The module cache of the scratch directory keeps candidates out of the user's own,
	// which serves the dependencies that it has.
	c.env = append(os.Environ(),
		"GOWORK=off", "GOTOOLCHAIN=local",
		"GOPROXY=file://"+filepath.ToSlash(c.proxy)+",file://"+filepath.ToSlash(filepath.Join(cache, "cache", "download"))+","+proxies,
		"GOMODCACHE="+filepath.Join(scratch, "modules"),
		"GONOSUMDB="+module.Prefix,
	)
	if err := os.MkdirAll(c.proxy, 0o755); err != nil {
		return nil, err
	}
	if _, err := output(root, os.Environ(), "git", "clone", "--quiet", "--shared", root, c.tree); err != nil {
		return nil, err
	}
	return c, nil
}

// flags returns the environment with GOFLAGS. With -trimpath the build cache has what an
// earlier check has built in another scratch directory.
func (c *candidate) flags(mod string) []string {
	return append(c.env[:len(c.env):len(c.env)], "GOFLAGS=-buildvcs=false -modcacherw -trimpath -mod="+mod)
}

// prepare edits each module as the release commit does, and commits. Each module finds
// those before it in the proxy, so that go.sum gets their hashes.
func (c *candidate) prepare(step func(string)) error {
	for _, m := range module.Published {
		dir := filepath.Join(c.tree, filepath.FromSlash(m.Dir))
		if err := c.edit(dir, true); err != nil {
			return err
		}
		if _, err := output(dir, c.flags("mod"), "go", "mod", "tidy"); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		if err := c.onlyOurLines(m); err != nil {
			return err
		}
		if err := c.commit("release " + m.Path + " " + c.version); err != nil {
			return err
		}
		if err := c.put(m, "HEAD"); err != nil {
			return err
		}
		step("prepared " + m.Path)
	}
	files, err := output(c.tree, os.Environ(), "git", "ls-files", "go.mod", "**/go.mod")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(files) {
		if err := c.edit(filepath.Join(c.tree, filepath.Dir(filepath.FromSlash(name))), false); err != nil {
			return err
		}
	}
	return c.commit("release " + c.version)
}

// edit sets the version in the require lines of our published modules. In a published
// module it also drops the lines that replace them: go install refuses a module with such lines.
func (c *candidate) edit(dir string, published bool) error {
	name := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	edited, err := edited(name, data, c.version, published)
	if err != nil {
		return err
	}
	return os.WriteFile(name, edited, 0o644)
}

func edited(name string, data []byte, version string, published bool) ([]byte, error) {
	f, err := modfile.Parse(name, data, nil)
	if err != nil {
		return nil, err
	}
	for _, m := range module.Published {
		for _, r := range f.Require {
			if r.Mod.Path == m.Path {
				if err := f.AddRequire(m.Path, version); err != nil {
					return nil, err
				}
				break
			}
		}
		if published {
			if err := f.DropReplace(m.Path, ""); err != nil {
				return nil, err
			}
		}
	}
	f.Cleanup()
	return f.Format()
}

// onlyOurLines returns an error if the last commit and go mod tidy have changed more than
// the lines of our own modules: then the go.mod of the tree is not tidy.
func (c *candidate) onlyOurLines(m module.Module) error {
	diff, err := output(c.tree, os.Environ(), "git", "diff", "--unified=0", "--", m.Dir)
	if err != nil {
		return err
	}
	if others := foreignLines(diff); len(others) > 0 {
		return fmt.Errorf("%s is not tidy: run GOWORK=off go mod tidy in %s\n%s", m.Path, m.Dir, strings.Join(others, "\n"))
	}
	return nil
}

// foreignLines returns the lines of a diff that are not about our own modules.
func foreignLines(diff string) (lines []string) {
	for line := range strings.Lines(diff) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---") {
			continue
		}
		switch text := strings.TrimSpace(line[1:]); {
		case strings.Contains(text, module.Prefix), text == "", text == ")", text == "replace (":
		default:
			lines = append(lines, line)
		}
	}
	return lines
}

func (c *candidate) commit(message string) error {
	_, err := output(c.tree, os.Environ(), "git", "-c", "user.name=release check", "-c", "user.email=release-check@invalid",
		"-c", "commit.gpgsign=false", "commit", "--quiet", "--all", "--allow-empty", "-m", message)
	return err
}

// publish tags the clone and makes the proxy from the tags. The hash of each module must
// be the one that prepare has written into go.sum.
func (c *candidate) publish() error {
	for _, m := range module.Published {
		before, err := dirhash.HashZip(c.file(m, ".zip"), dirhash.Hash1)
		if err != nil {
			return err
		}
		if _, err := output(c.tree, os.Environ(), "git", "tag", m.Tag(c.version)); err != nil {
			return err
		}
		if err := c.put(m, m.Tag(c.version)); err != nil {
			return err
		}
		after, err := dirhash.HashZip(c.file(m, ".zip"), dirhash.Hash1)
		if err != nil {
			return err
		}
		if before != after {
			return fmt.Errorf("%s at its tag is %s, and go.sum files have %s", m.Path, after, before)
		}
	}
	return nil
}

func (c *candidate) file(m module.Module, extension string) string {
	return filepath.Join(c.proxy, filepath.FromSlash(m.Path), "@v", c.version+extension)
}

// put writes a module into the proxy, as it is at a revision of the clone.
func (c *candidate) put(m module.Module, revision string) error {
	if err := os.MkdirAll(filepath.Dir(c.file(m, "")), 0o755); err != nil {
		return err
	}
	subdir := m.Dir
	if subdir == "." {
		subdir = ""
	}
	var archive bytes.Buffer
	if err := zip.CreateFromVCS(&archive, gomodule.Version{Path: m.Path, Version: c.version}, c.tree, revision, subdir); err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	mod, err := os.ReadFile(filepath.Join(c.tree, filepath.FromSlash(m.Dir), "go.mod"))
	if err != nil {
		return err
	}
	for extension, data := range map[string][]byte{
		".zip":  archive.Bytes(),
		".mod":  mod,
		".info": fmt.Appendf(nil, `{"Version":%q}`, c.version),
	} {
		if err := os.WriteFile(c.file(m, extension), data, 0o644); err != nil {
			return err
		}
	}
	return list(filepath.Dir(c.file(m, "")))
}

// list writes the file that names the versions of a module in the proxy.
func list(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.info"))
	if err != nil {
		return err
	}
	var versions strings.Builder
	for _, name := range files {
		fmt.Fprintln(&versions, strings.TrimSuffix(filepath.Base(name), ".info"))
	}
	return os.WriteFile(filepath.Join(dir, "list"), []byte(versions.String()), 0o644)
}

// testPublished builds and tests a module as its zip has it.
func (c *candidate) testPublished(m module.Module) error {
	dir := filepath.Join(c.scratch, "published", m.File())
	if err := zip.Unzip(dir, gomodule.Version{Path: m.Path, Version: c.version}, c.file(m, ".zip")); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	if err := pinned(mod, c.version); err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "LICENSE")); err != nil {
		return fmt.Errorf("%s has no licence: %w", m.Path, err)
	}
	env := c.flags("readonly")
	if _, err := output(dir, env, "go", "build", "./..."); err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	if _, err := output(dir, env, "go", append([]string{"test", "-timeout", "10m", "-skip", m.Skip}, m.Tests...)...); err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	return nil
}

// pinned returns an error unless a go.mod file requires each of our modules in exactly this
// version, and replaces nothing. The desk, for one, uses internal packages of the root, which
// may change in any release.
func pinned(mod []byte, version string) error {
	f, err := modfile.Parse("go.mod", mod, nil)
	if err != nil {
		return err
	}
	if len(f.Replace) > 0 {
		return fmt.Errorf("go.mod replaces %s: go install refuses it", f.Replace[0].Old.Path)
	}
	for _, r := range f.Require {
		if (r.Mod.Path == module.Prefix || strings.HasPrefix(r.Mod.Path, module.Prefix+"/")) && r.Mod.Version != version {
			return fmt.Errorf("go.mod requires %s, want %s", r.Mod, version)
		}
	}
	return nil
}

//go:embed testdata/shop/main.go
var outside []byte

// useOutside requires the candidate in a program outside the tree, and installs the command.
func (c *candidate) useOutside() error {
	dir := filepath.Join(c.scratch, "outside")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), outside, 0o644); err != nil {
		return err
	}
	env := append(c.flags("mod"), "GOBIN="+dir)
	for _, command := range [][]string{
		{"go", "mod", "init", "example.com/shop"},
		{"go", "get", module.Prefix + "@" + c.version, module.Prefix + "/store/sqlite@" + c.version},
		{"go", "build", "-o", "shop", "."},
		{filepath.Join(dir, "shop"), filepath.Join(dir, "letters.db")},
		{"go", "install", module.Prefix + "/desk/cmd/rehop@" + c.version},
		{filepath.Join(dir, "rehop"), "--help"},
	} {
		if _, err := output(dir, env, command[0], command[1:]...); err != nil {
			return fmt.Errorf("outside the tree: %w", err)
		}
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	if strings.Contains(string(mod), module.Prefix+"/desk") {
		return fmt.Errorf("outside the tree: a program that imports the SDK requires the desk:\n%s", mod)
	}
	for _, want := range []string{module.Prefix + " " + c.version, module.Prefix + "/store/sqlite " + c.version} {
		if !strings.Contains(string(mod), want) {
			return fmt.Errorf("outside the tree: go.mod lacks %q:\n%s", want, mod)
		}
	}
	return nil
}

// copyBack writes the go.mod and go.sum files of the clone into the repository.
func (c *candidate) copyBack(root string) error {
	files, err := output(c.tree, os.Environ(), "git", "ls-files", "go.mod", "go.sum", "**/go.mod", "**/go.sum")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(files) {
		data, err := os.ReadFile(filepath.Join(c.tree, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// output runs a command and returns what it prints. Its error has all output.
func output(dir string, env []string, name string, args ...string) (string, error) {
	command := exec.Command(name, args...)
	command.Dir, command.Env = dir, env
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}
