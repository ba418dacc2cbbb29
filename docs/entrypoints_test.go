package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An entry point is an exported function, or an exported method that takes an argument: a
// method without one is an accessor. An example names each in the code that pkg.go.dev
// shows, and go test runs it, because it has an output.
func TestEveryEntryPointHasAnExampleThatRuns(t *testing.T) {
	folders := publicFolders(t)
	if len(folders) < 10 {
		t.Fatalf("public packages in %q, want them all", folders)
	}
	for _, folder := range folders {
		points, shown := entryPoints(t, folder)
		if len(points) == 0 {
			continue // the overview in the root
		}
		for _, p := range points {
			if name := p[strings.LastIndex(p, ".")+1:]; !shown[name] {
				t.Errorf("%s: no example with an output calls %s", folder, p)
			}
		}
	}
}

// publicFolders returns the folders of the packages that other modules may import.
func publicFolders(t *testing.T) (folders []string) {
	t.Helper()
	private := []string{"internal", "integration", "examples", "docs", "release", "cmd", "testdata"}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (slices.Contains(private, d.Name()) || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".go") && !slices.Contains(folders, filepath.Dir(path)):
			folders = append(folders, filepath.Dir(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

// entryPoints returns the entry points of a package, and the names that its examples call.
func entryPoints(t *testing.T, folder string) (points []string, shown map[string]bool) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	shown = map[string]bool{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(path, "_test.go") {
			points = append(points, declared(file)...)
			continue
		}
		for _, e := range doc.Examples(file) {
			if e.Output != "" || e.EmptyOutput {
				ast.Inspect(e.Code, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.SelectorExpr: // producer.New, worker.Run
						shown[n.Sel.Name] = true
					case *ast.CallExpr: // New, in an example inside the package
						if f, ok := n.Fun.(*ast.Ident); ok {
							shown[f.Name] = true
						}
					}
					return true
				})
			}
		}
	}
	return points, shown
}

// declared returns the entry points that a file declares.
func declared(file *ast.File) (points []string) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		switch {
		case !ok || !f.Name.IsExported():
		case f.Recv == nil:
			points = append(points, f.Name.Name)
		case f.Type.Params.NumFields() > 0:
			of := f.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if name, ok := of.(*ast.Ident); ok && name.IsExported() {
				points = append(points, name.Name+"."+f.Name.Name)
			}
		}
	}
	return points
}

var linked = regexp.MustCompile(`https://github\.com/rehop/rehop/blob/main/(\S+)`)

// The comments of packages link to pages of this repository.
func TestPagesThatPackagesLinkToExist(t *testing.T) {
	n := 0
	for _, folder := range publicFolders(t) {
		paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range linked.FindAllSubmatch(text, -1) {
				n++
				if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("%d links, want them all", n)
	}
}
