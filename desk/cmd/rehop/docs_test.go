package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// Every command line of rehop in the pages, in blocks and in prose, is one that the parser takes.
// A test in docs holds the file to the pages.
func TestCommandsOfThePages(t *testing.T) {
	text, err := os.ReadFile("testdata/commands.txt")
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) < 10 {
		t.Errorf("%d commands were found, want all", len(lines))
	}
	for _, line := range lines {
		words := strings.Split(line, "\t")
		if err := parsed(words[1:], words[0] == "prose"); err != nil {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// The comparison that the page of reviews shows is the one that the command prints.
func TestComparisonOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/review.md")
	must(t, err)
	s := open(t)
	write := func(name string, waits delay.Schedule, engine topology.Engine) string {
		text, err := topology.MarshalSpecs(topology.WorkQueue{Name: "orders", Waits: waits, Engine: engine})
		must(t, err)
		path := filepath.Join(s.TempDir(), name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	former := write("former.json", delay.Schedule{time.Minute, 5 * time.Minute}, "")
	current := write("current.json", delay.Schedule{2 * time.Minute, 5 * time.Minute}, topology.EngineRepublish)
	s.run(exitPartly, "topology", "compare", former, current, "--broker", "4.3")
	if !strings.Contains(string(page), "\n"+s.out+"```") {
		t.Errorf("the page has another answer than\n%s", s.out)
	}
}

func TestParsedRefuses(t *testing.T) {
	for _, line := range []string{"nothing", "dlq nothing", "dlq send orders.dlq --nothing", "dlq show", "doctor now", "dlq send orders.dlq --rate fast"} {
		if err := parsed(strings.Fields(line), false); err == nil {
			t.Errorf("rehop %s is parsed, want an error", line)
		}
	}
}

// parsed parses a command line and runs nothing. Prose may name a command without its
// arguments.
func parsed(args []string, prose bool) error {
	root := (&app{}).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	rest = c.Flags().Args()
	if c.HasSubCommands() && len(rest) > 0 {
		return cobra.NoArgs(c, rest)
	}
	if prose && len(rest) == 0 {
		return nil
	}
	if err := c.ValidateArgs(rest); err != nil {
		return err
	}
	if err := c.ValidateRequiredFlags(); err != nil {
		return err
	}
	return c.ValidateFlagGroups()
}
