package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/internal/markdown"
)

// Every command line of rehop in the pages, in blocks and in prose, is one that the parser takes.
func TestCommandsOfThePages(t *testing.T) {
	pages, err := markdown.Pages("../../..")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	check := func(where, text string, prose bool) {
		commands, err := markdown.Commands(text)
		if err != nil {
			t.Errorf("%s: %v", where, err)
		}
		for _, c := range commands {
			if len(c.Args) < 2 || c.Args[0] != "rehop" {
				continue
			}
			checked++
			if err := parsed(c.Args[1:], prose); err != nil {
				t.Errorf("%s: %v: %v", where, c, err)
			}
		}
	}
	for _, p := range pages {
		for _, s := range p.Code() {
			if strings.HasPrefix(s.Text, "rehop ") {
				check(s.String(), s.Text, true)
			}
		}
		blocks, err := p.Blocks()
		if err != nil {
			continue // the tests in docs say so
		}
		for _, b := range blocks {
			if b.Lang == "sh" {
				check(b.String(), b.Text, false)
			}
		}
	}
	if checked < 10 {
		t.Errorf("%d commands were found, want all", checked)
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
