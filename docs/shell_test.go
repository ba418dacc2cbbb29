package docs

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/docs/internal/markdown"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// rules has a check for the first word of each command that a page may show. A check
// returns what is wrong. The lines of the command rehop are a file for a test beside the command.
var rules = map[string]func(t *testing.T, args []string) string{
	"make":  makes,
	"go":    goes,
	"rehop": func(*testing.T, []string) string { return "" },
	"curl":  curls,
	"git":   exactly("git clone https://github.com/rehop/rehop", "git clone https://github.com/rehop/rehop.git"),
	"mkdir": exactly("mkdir shop"),
	"cd":    exactly("cd shop", "cd rehop"),
	// The official image, with the management API; no test can pull it everywhere.
	"docker": exactly("docker run -d --name rabbitmq -p 5672:5672 -p 15672:15672 rabbitmq:4-management"),
	"export": func(t *testing.T, args []string) string { return variables(t, args[1:]) },
	"":       func(*testing.T, []string) string { return "" }, // nothing but variables, which are checked for all
}

func TestBlocksOfShellAreTrue(t *testing.T) {
	for _, p := range presentPages(t) {
		for _, b := range blocks(t, p) {
			if b.Lang != "sh" {
				continue
			}
			commands, err := markdown.Commands(b.Text)
			if err != nil {
				t.Errorf("%v: %v", b, err)
			}
			for _, c := range commands {
				name := ""
				if len(c.Args) > 0 {
					name = c.Args[0]
				}
				rule, known := rules[name]
				if !known {
					t.Errorf("%s:%d: no rule checks %q", b.Page, b.Line+c.Line, c)
					continue
				}
				for _, wrong := range []string{variables(t, c.Env), rule(t, c.Args)} {
					if wrong != "" {
						t.Errorf("%s:%d: %v: %s", b.Page, b.Line+c.Line, c, wrong)
					}
				}
			}
		}
	}
}

var (
	inlineCommand = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )*(?:make|go) `)
	anyCommand    = regexp.MustCompile(`^go (?:test|install|get|generate|func.*)$|PACKAGE$|NAME$`) // of no package or target, or no command
)

// Prose names commands, too.
func TestInlineCommandsAreTrue(t *testing.T) {
	for _, p := range presentPages(t) {
		for _, s := range p.Code() {
			if !inlineCommand.MatchString(s.Text) || anyCommand.MatchString(s.Text) {
				continue
			}
			commands, err := markdown.Commands(s.Text)
			if err != nil {
				continue // it is Go, such as go forwarder.Run(ctx)
			}
			for _, c := range commands {
				for _, wrong := range []string{variables(t, c.Env), rules[c.Args[0]](t, c.Args)} {
					if wrong != "" {
						t.Errorf("%v: %s", s, wrong)
					}
				}
			}
		}
	}
}

// A file has the command lines of rehop in the pages, for the test in desk/cmd/rehop that parses
// them. A line is for a block or for prose, and has the arguments between tabs.
func TestCommandsOfRehopAreListed(t *testing.T) {
	const name = "desk/cmd/rehop/testdata/commands.txt"
	lines := map[string]bool{}
	list := func(kind, text string) {
		commands, err := markdown.Commands(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for _, c := range commands {
			if len(c.Args) > 1 && c.Args[0] == "rehop" {
				lines[kind+"\t"+strings.Join(c.Args[1:], "\t")+"\n"] = true
			}
		}
	}
	for _, p := range allPages(t) {
		for _, s := range p.Code() {
			if strings.HasPrefix(s.Text, "rehop ") {
				list("prose", s.Text)
			}
		}
		for _, b := range blocks(t, p) {
			if b.Lang == "sh" {
				list("block", b.Text)
			}
		}
	}
	want := strings.Join(slices.Sorted(maps.Keys(lines)), "")
	if *update {
		if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, name) != want {
		t.Errorf("%s has other commands than the pages: go test ./docs -update, and then go test ./desk/cmd/rehop", name)
	}
}

func exactly(allowed ...string) func(*testing.T, []string) string {
	return func(_ *testing.T, args []string) string {
		if line := strings.Join(args, " "); !slices.Contains(allowed, line) {
			return fmt.Sprintf("want one of %q", allowed)
		}
		return ""
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// makes checks that targets exist, and that the Makefile uses variables.
func makes(t *testing.T, args []string) string {
	makefile := read(t, "Makefile")
	for _, target := range args[1:] {
		if variable, _, found := strings.Cut(target, "="); found {
			if !strings.Contains(makefile, "$("+variable+")") {
				return "the Makefile does not use " + variable
			}
			continue
		}
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).MatchString(makefile) {
			return "the Makefile has no target " + target
		}
	}
	return ""
}

// goes checks that packages, tests and modules exist. That they build is the business of
// make lint, which vets every module.
func goes(t *testing.T, args []string) string {
	if len(args) < 2 {
		return "go, and then?"
	}
	var paths []string
	for _, arg := range args[2:] {
		if strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "github.com/rehop/") {
			paths = append(paths, arg)
		}
	}
	switch args[1] {
	case "run", "install", "build", "test", "vet":
		if slices.Equal(args, []string{"go", "run", "."}) {
			return "" // in a folder of the reader
		}
		if len(paths) == 0 {
			return "of which package?"
		}
		for i, path := range paths {
			list := exec.CommandContext(t.Context(), "go", "list", "-find", "-f", "{{.Name}}", path)
			list.Dir = root
			var told bytes.Buffer // downloads, too
			list.Stderr = &told
			out, err := list.Output()
			if err != nil {
				return told.String()
			}
			if program := strings.TrimSpace(string(out)) == "main"; !program && (args[1] == "install" || args[1] == "run" && i == 0) {
				return path + " is no program"
			}
		}
		return unknownTest(t, args, paths)
	case "mod":
		return exactly("go mod init shop", "go mod tidy", "go mod edit -replace github.com/rehop/rehop=../rehop")(t, args)
	case "generate":
	case "tool":
		return exactly("go tool pprof")(t, args)
	default:
		return "no rule for go " + args[1]
	}
	return ""
}

// unknownTest looks for the tests and flags that a command names.
func unknownTest(t *testing.T, args, paths []string) string {
	var source strings.Builder
	for _, path := range paths {
		err := filepath.WalkDir(filepath.Join(root, strings.TrimSuffix(path, "/...")), func(name string, d fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(name) == ".go" {
				text, err := os.ReadFile(name)
				source.Write(text)
				return err
			}
			return err
		})
		if err != nil && strings.HasPrefix(path, "./") {
			return err.Error()
		}
	}
	own := []string{"-C", "-v", "-race", "-count", "-timeout", "-args", "-tags"} // of go test
	for i, arg := range args {
		if arg == "--" {
			break // and a command of the reader
		}
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case arg == "-run" && args[1] == "test":
			if i+1 == len(args) {
				return "of which test?"
			}
			for _, one := range strings.Split(args[i+1], "|") {
				test, _, _ := strings.Cut(strings.Trim(one, "^$"), "/") // and not the case in it
				if !regexp.MustCompile(`func \w*` + test).MatchString(source.String()) {
					return "there is no test " + one
				}
			}
		case strings.HasPrefix(arg, "-") && !slices.Contains(own, arg) && !strings.Contains(source.String(), `"`+name+`"`):
			return "no flag is defined as " + arg
		}
	}
	return ""
}

// variables checks that a program or a test of ours reads the environment variables.
func variables(t *testing.T, assignments []string) string {
	var sources strings.Builder
	for _, name := range []string{"connection/env.go", "desk/cmd/rehop/app.go", "desk/cmd/rehop/desk.go", "desk/cmd/rehop/letters.go", "integration/broker/given.go", "integration/broker/image.go", "integration/broker/available.go", "integration/store/suite_test.go"} {
		sources.WriteString(read(t, name))
	}
	for _, a := range assignments {
		name, _, _ := strings.Cut(a, "=")
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(sources.String()) {
			return "nothing reads " + name
		}
	}
	return ""
}

// curls sends the request to a service like the one of the page.
func curls(t *testing.T, args []string) string {
	ops, err := consumer.Operator(worker(t, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", ops))
	method, target := http.MethodGet, ""
	for i := 1; i < len(args); i++ {
		switch {
		case args[i] == "-X" && i+1 < len(args):
			i++
			method = args[i]
		case strings.HasPrefix(args[i], "localhost:8080/") && target == "":
			target = strings.TrimPrefix(args[i], "localhost:8080")
		default:
			return "no rule for " + args[i]
		}
	}
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(method, "http://localhost:8080"+target, nil))
	if answer.Code >= 300 {
		return fmt.Sprint(answer.Code, " ", answer.Body)
	}
	return ""
}

// worker returns a consumer that has not begun.
func worker(t *testing.T, queue string) *consumer.Consumer {
	t.Helper()
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w, err := consumer.New(conn, topology.WorkQueue{Name: queue}, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}
