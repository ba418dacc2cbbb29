package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rehop/rehop/desk/internal/whereto"
	"github.com/rehop/rehop/store"
)

// Errors about the command line name the flag, the variable or the argument as it was typed, the
// value, and the values that are taken. cobra and pflag name less, and print URLs.

func usage(err error) error { return &exit{exitUsage, err} }

// typed is a word of the command line, as it is printed.
func typed(word string) string {
	if maybeSecret(word) {
		return "a text that is not shown, because it may have a password"
	}
	return strconv.Quote(word)
}

// secretText matches a URL, a login in front of a host, and a setting of a driver.
var secretText = regexp.MustCompile(`(?i)://|:.*@|(password|passwd|pwd)\s*=`)

// maybeSecret reports whether a text may have a password that was typed in the wrong place.
func maybeSecret(text string) bool { return secretText.MatchString(text) }

// withoutSecrets returns an error without the words of a command line, and the values of
// variables, that may have a password. They may have been typed in any place.
func withoutSecrets(text string, words []string) string {
	for _, name := range []string{"AMQP_VHOST", "REHOP_CONFIG", "REHOP_JOURNAL"} {
		words = append(words[:len(words):len(words)], os.Getenv(name))
	}
	for _, word := range words {
		if flag, value, found := strings.Cut(word, "="); found && strings.HasPrefix(flag, "-") {
			word = value
		}
		if !maybeSecret(word) {
			continue
		}
		quoted := strconv.Quote(word)
		for _, form := range []string{word, quoted[1 : len(quoted)-1], url.PathEscape(word)} {
			text = strings.ReplaceAll(text, form, "(not shown)")
		}
	}
	return text
}

// args returns a check of the arguments.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check(c, args) == nil {
			return nil
		}
		if len(args) > 0 && c.HasAvailableSubCommands() {
			return usage(fmt.Errorf("%s has no command %s%s; see %s --help", c.CommandPath(), typed(args[0]), meant(suggestions(c, args[0])), c.CommandPath()))
		}
		return usage(fmt.Errorf("%s: %s given; see %s --help", wanted(c), count(len(args)), c.CommandPath()))
	}
}

// wanted says which arguments a command takes.
func wanted(c *cobra.Command) string {
	_, arguments, _ := strings.Cut(c.Use, " ")
	if arguments == "" {
		return c.CommandPath() + " takes no arguments"
	}
	return "type " + c.CommandPath() + " " + arguments
}

func count(arguments int) string {
	switch arguments {
	case 0:
		return "no argument was"
	case 1:
		return "1 argument was"
	}
	return strconv.Itoa(arguments) + " arguments were"
}

// suggestions returns the commands that a word may mean.
func suggestions(c *cobra.Command, word string) []string {
	c.SuggestionsMinimumDistance = 2
	return c.SuggestionsFor(word)
}

func meant(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return ", did you mean " + strings.Join(words, " or ") + "?"
}

// flagFault says what is wrong with a flag.
func flagFault(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	var none *pflag.ValueRequiredError
	switch {
	case errors.As(err, &value):
		err = fmt.Errorf("--%s is %s, want %s", value.GetFlag().Name, typed(value.GetValue()), accepted(value.GetFlag()))
	case errors.As(err, &none):
		err = fmt.Errorf("--%s wants a value: %s", none.GetFlag().Name, none.GetFlag().Usage)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		// The rest of the word may be a value.
		name, _, _ := strings.Cut(unknown.GetSpecifiedShortnames(), "=")
		if c.Flags().Lookup(name) != nil {
			err = fmt.Errorf("there is no flag -%s, did you mean --%s?", name, name)
		} else {
			err = fmt.Errorf("there is no flag -%s; see %s --help", unknown.GetSpecifiedName(), c.CommandPath())
		}
	case errors.As(err, &unknown) && unknown.GetSpecifiedName() == "all" && slices.Contains([]string{"list", "groups", "export"}, c.Name()):
		err = fmt.Errorf("there is no flag --all: without a filter %s takes all letters", c.CommandPath())
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		err = fmt.Errorf("there is no flag %s%s; see %s --help", flagName(name), meant(near(c, name)), c.CommandPath())
	default:
		err = fmt.Errorf("a flag is written --name or --name=value; see %s --help", c.CommandPath())
	}
	return usage(err)
}

func flagName(name string) string {
	if maybeSecret(name) {
		return "of that name, which is not shown, because it may have a password"
	}
	return "--" + name
}

// near returns the flags of a command that a name may mean, by the rule for commands.
func near(c *cobra.Command, name string) []string {
	flags := &cobra.Command{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return suggestions(flags, "--"+name)
}

// accepted says which values a flag takes.
func accepted(f *pflag.Flag) string {
	if v, ok := f.Value.(interface{ accepted() string }); ok {
		return v.accepted()
	}
	switch f.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "float64":
		return "a number, such as 100 or 0.5"
	case "duration":
		return "a duration, such as 90s, 5m or 24h"
	case "bool":
		return "true or false"
	case "stringSlice":
		return "values with commas between them"
	}
	return "a text"
}

// topics is the check of the arguments of rehop help.
func topics(c *cobra.Command, args []string) error {
	at, rest, err := c.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return usage(fmt.Errorf("%s has no command %s%s; see %s --help", at.CommandPath(), typed(rest[0]), meant(suggestions(at, rest[0])), at.CommandPath()))
	}
	return nil
}

// states are the values of --state.
var states = []string{string(store.Held), string(store.Parked), string(store.Archived), string(store.Ready)}

// isState checks the values of --state, if the command has it.
func isState(c *cobra.Command) error {
	f := c.Flags().Lookup("state")
	if f == nil {
		return nil
	}
	list, _ := f.Value.(pflag.SliceValue)
	for _, state := range list.GetSlice() {
		if !slices.Contains(states, state) {
			return usage(fmt.Errorf("--state is %s, want held, parked, archived or ready", typed(state)))
		}
	}
	return nil
}

// isBlank refuses a condition of which nothing can be seen, such as that of a variable of the
// shell that is not set: without it more letters are meant. It also refuses a target that is a URL.
func isBlank(c *cobra.Command) (err error) {
	for _, name := range []string{"to", "store", "file", "redrive"} { // without it something else is done
		if flag := c.Flags().Lookup(name); flag != nil && flag.Changed && strings.TrimSpace(flag.Value.String()) == "" {
			return usage(fmt.Errorf("--%s is %q, want %s", name, flag.Value, flag.Usage))
		}
	}
	if to := c.Flags().Lookup("to"); to != nil {
		if _, err := whereto.Read(to.Value.String()); err != nil {
			return usage(fmt.Errorf("--to %w; want %s", err, to.Usage))
		}
	}
	known := &cobra.Command{}
	new(filter).flags(known)
	if c.Flags().Lookup("error-type") == nil { // it takes no letters by conditions
		return nil
	}
	c.Flags().Visit(func(flag *pflag.Flag) {
		if known.Flags().Lookup(flag.Name) == nil || err != nil {
			return
		}
		values := []string{flag.Value.String()}
		if list, several := flag.Value.(pflag.SliceValue); several {
			values = list.GetSlice()
		}
		names := map[string]bool{}
		for _, value := range values {
			name, _, _ := strings.Cut(value, "=")
			switch {
			case strings.TrimSpace(value) == "" || flag.Name == "header" && strings.TrimSpace(name) == "":
				err = usage(fmt.Errorf("--%s is %q, want a text that can be seen", flag.Name, value))
			case flag.Name == "header" && names[name]:
				err = usage(fmt.Errorf("--header names %s twice, and a header has one value", typed(name)))
			}
			names[name] = true
		}
		if len(values) == 0 {
			err = usage(fmt.Errorf("--%s is empty, want a text that can be seen", flag.Name))
		}
	})
	return err
}

// isURL refuses a URL in the place of a queue: no error, and no journal, is to have its
// password.
func isURL(queues []string) error {
	for _, queue := range queues {
		if maybeSecret(queue) {
			return usage(errors.New("the name of a queue is a URL or has a password, which is not shown; give the URL of the broker as --url, and of a store as --store"))
		}
	}
	return nil
}

// missing says which flags a command needs beside those that were given, and how they are
// typed.
func missing(c *cobra.Command) error {
	var names, wants []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, required := f.Annotations[cobra.BashCompOneRequiredFlag]; required && f.Value.String() == "" {
			names = append(names, "--"+f.Name)
			wants = append(wants, fmt.Sprintf("--%s: %s", f.Name, f.Usage))
		}
	})
	if names == nil {
		return nil
	}
	example, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n")
	return usage(fmt.Errorf("%s needs %s; such as: %s", c.CommandPath(), strings.Join(wants, ", and "), example))
}

// fields are the fields and arguments of package desk and web that a flag or a variable sets,
// as their errors name them.
var fields = strings.NewReplacer(
	"desk: Redrive.ID ", "--redrive ", "desk: Redrive.Rate ", "--rate ", "desk: Redrive.Limit ", "--limit ", "desk: Redrive.Canary ", "--canary ",
	"desk: Redrive.To ", "--to ", "desk: Redrive.CopyTo ", "--copy ", "desk: Redrive.CopyTo:", "the copy:", "desk: Edit.Set: header ", "--header: header ", "desk: Edit.Remove: header ", "--remove-header: header ",
	"desk: LiveConfig.Window ", "--window ", "desk: Page.Limit ", "--limit ", "desk: Page.After ", "--after ", "desk: Peek: n ", "--limit ", "desk: Audit: n ", "--limit ",
	"desk: ImportOptions.From ", "--from ",
	"web: Config.Specs: topology:", "--specs:", "web: Config.PruneAfter ", "--prune-after ", "web: address ", "--listen is ", "web: Access.Token ", "REHOP_DESK_TOKEN ", "web: Access.Password ", "REHOP_DESK_PASSWORD ",
	"web: Access has one of User and Password, want both or none", "one of REHOP_DESK_USER and REHOP_DESK_PASSWORD is set, want both or none",
)

// renamed is an error whose text has other names.
type renamed struct {
	text string
	err  error
}

func (e *renamed) Error() string { return e.text }
func (e *renamed) Unwrap() error { return e.err }

// named returns an error of a package with the names that the person at the command line knows.
func (a *app) named(err error) error {
	if err == nil {
		return nil
	}
	if text := a.rename(err.Error()); text != err.Error() {
		return &renamed{text, err}
	}
	return err
}

// rename returns a text of a package with the names that the person at the command line knows.
func (a *app) rename(text string) string {
	text = fields.Replace(text)
	for name, flag := range a.setBy {
		text = strings.ReplaceAll(text, name, flag)
	}
	if a.tokenFile != "" {
		text = strings.ReplaceAll(text, "REHOP_DESK_TOKEN ", "the token of --token-file ")
	}
	return text
}

// ofFlag returns an error about a file or folder that a flag names, with the flag.
func ofFlag(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// setBroker sets the variables of connection.FromEnv that flags replace, and remembers the
// flags.
func (a *app) setBroker() error {
	a.setBy = map[string]string{}
	for _, f := range []struct{ name, flag, value string }{
		{"AMQP_URL", "--url", strings.Join(slices.DeleteFunc(slices.Clone(a.urls), func(u string) bool { return u == "" }), ",")},
		{"AMQP_VHOST", "--vhost", a.vhost},
		{"AMQP_MANAGEMENT_URL", "--management-url", a.management},
	} {
		if f.value == "" {
			continue
		}
		if err := os.Setenv(f.name, f.value); err != nil {
			return ofFlag(f.flag, err)
		}
		a.setBy[f.name] = f.flag
	}
	return nil
}
