package compat

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/nodes"
)

var update = flag.Bool("update", false, "write the files of the current release")

var pool = nodes.NewPool("rehop-compat", nil)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	for _, err := range pool.Close(context.Background()) {
		fmt.Println(err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// versions are the brokers of rehoptest, as they call themselves.
var versions = map[string]connection.Version{
	"3.10": {Major: 3, Minor: 10, Patch: 8},
	"4.0":  {Major: 4, Minor: 0, Patch: 5},
	"4.3":  {Major: 4, Minor: 3, Patch: 6},
}

// compare compares text with a file of the current release, or writes it.
func compare(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join("testdata", Current, name)
	if *update {
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(name)
	must(t, err)
	if text != string(want) {
		t.Errorf("%s differs. Programs of that release run beside this one during a roll-out: package compat says what to do.\ngot:\n%swant:\n%s", name, text, want)
	}
}

// files calls do with the content of each file of a kind, of every release.
func files(t *testing.T, kind string, do func(t *testing.T, name string, text []byte)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "*", kind, "*"))
	must(t, err)
	if len(names) == 0 {
		t.Fatalf("no files of %s", kind)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		must(t, err)
		base := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
		t.Run(filepath.Base(filepath.Dir(filepath.Dir(name)))+"/"+base, func(t *testing.T) { do(t, base, text) })
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
