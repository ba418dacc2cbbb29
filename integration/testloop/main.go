// Testloop runs the tests of packages again and again beside a busy loop for each core, and
// prints each run that fails:
//
//	testloop [-times 20] [-race] [-run TestName] ./consumer ./producer
//
// A busy machine shows a test that assumes a scheduler's order, a quiet disk, or that
// something happens soon. Each run has the tests in an order of its own, which shows a test
// that assumes another one before it. The seed of the order is printed with a failure:
// go test -shuffle SEED runs that order again.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rehop/rehop/integration/command"
)

func main() {
	command.Main("testloop", func(ctx context.Context, args []string) error { return run(ctx, args, os.Stdout) })
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("testloop", flag.ContinueOnError)
	times := flags.Int("times", 20, "how often the tests of each package run")
	race := flags.Bool("race", false, "with the race detector")
	only := flags.String("run", "", "run only the tests that match this regular expression")
	busy := flags.Int("busy", runtime.NumCPU(), "how many busy loops run beside them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var errs []error
	if *times < 1 {
		errs = append(errs, fmt.Errorf("-times is %d, want at least 1", *times))
	}
	if *busy < 0 {
		errs = append(errs, fmt.Errorf("-busy is %d, want at least 0", *busy))
	}
	if flags.NArg() == 0 {
		errs = append(errs, errors.New("want packages, such as ./consumer"))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	packages, err := list(ctx, flags.Args())
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "testloop")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	failed := 0
	for _, p := range packages {
		binary := filepath.Join(dir, "test")
		if err := build(ctx, p, binary, *race); err != nil {
			return err
		}
		n, err := loop(ctx, p, binary, *only, *times, *busy, out)
		if err != nil {
			return err
		}
		failed += n
	}
	if failed > 0 {
		return fmt.Errorf("%d runs failed", failed)
	}
	return nil
}

// pkg is a package with tests.
type pkg struct{ path, dir string }

func list(ctx context.Context, patterns []string) (packages []pkg, err error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`
	text, err := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("go list: %w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	for line := range strings.Lines(string(text)) {
		if path, dir, found := strings.Cut(strings.TrimSpace(line), " "); found {
			packages = append(packages, pkg{path, dir})
		}
	}
	return packages, err
}

func build(ctx context.Context, p pkg, binary string, race bool) error {
	args := []string{"test", "-c", "-o", binary}
	if race {
		args = append(args, "-race")
	}
	if text, err := exec.CommandContext(ctx, "go", append(args, p.path)...).CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c %s: %w\n%s", p.path, err, text)
	}
	return nil
}

// loop runs the tests of one package beside busy loops, and returns how many runs failed.
func loop(ctx context.Context, p pkg, binary, only string, times, busy int, out io.Writer) (failed int, err error) {
	spinning, stop := context.WithCancel(ctx)
	defer stop()
	for range busy {
		go spin(spinning)
	}
	began := time.Now()
	for run := range times {
		c := exec.CommandContext(ctx, binary, "-test.shuffle=on", "-test.timeout=30m", "-test.run="+only)
		c.Dir = p.dir
		text, err := c.CombinedOutput()
		if ctx.Err() != nil {
			return failed, context.Cause(ctx)
		}
		if err != nil {
			failed++
			fmt.Fprintf(out, "%s, run %d, -shuffle %s: %v\n%s\n", p.path, run+1, seed(text), err, faults(text))
		}
	}
	fmt.Fprintf(out, "%s: %d of %d runs failed, in %v\n", p.path, failed, times, time.Since(began).Round(time.Second))
	return failed, nil
}

func spin(ctx context.Context) {
	for ctx.Err() == nil { //nolint:revive // being busy is its work
	}
}

// seed returns the seed of the order that a test binary has printed.
func seed(text []byte) string {
	_, rest, _ := strings.Cut(string(text), "-test.shuffle ")
	found, _, _ := strings.Cut(rest, "\n")
	return found
}

// most is how much of the output of a failed run is printed.
const most = 16 << 10

// faults returns the output of a failed run. Of a long one it returns the text from its first
// failure on, which a table may stand behind, and its end if there is none.
func faults(text []byte) []byte {
	if len(text) <= most {
		return text
	}
	from := len(text) - most
	for _, mark := range []string{"--- FAIL: ", "panic: ", "fatal error: ", "WARNING: DATA RACE"} {
		if bytes.HasPrefix(text, []byte(mark)) {
			from = 0
		} else if at := bytes.Index(text, []byte("\n"+mark)); at >= 0 {
			from = min(from, at+1)
		}
	}
	return text[from:min(from+most, len(text))]
}
