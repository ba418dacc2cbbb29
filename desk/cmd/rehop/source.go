package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/internal/ctl"
)

// place says where letters are: a queue, or a store of collected letters.
type place struct {
	store  string
	use    use
	window int
}

func (p *place) flags(c *cobra.Command) {
	c.Flags().StringVar(&p.store, "store", "", "collected letters, instead of a queue: SQLite file, postgres:// or mysql:// URL")
	c.Flags().IntVar(&p.window, "window", desk.MaxWindow, "letters of a queue that are looked at, at most")
	_ = c.MarkFlagFilename("store") // fails for unknown flags only
}

// open returns the source, and the rest of the arguments. send says that the broker is
// needed for a store too.
func (a *app) open(ctx context.Context, p place, args []string, send bool) (desk.Source, []string, error) {
	journal, err := a.journal()
	if err != nil {
		return nil, nil, err
	}
	if p.store != "" {
		letters, name, err := a.letters(ctx, p.store, p.use)
		if err != nil {
			return nil, nil, err
		}
		var conn *connection.Conn
		if send {
			if conn, err = a.connect(ctx); err != nil {
				return nil, nil, err
			}
		}
		c, err := desk.NewCollected(letters, conn, desk.CollectedConfig{Journal: journal, Name: "store " + name})
		if err != nil {
			return nil, nil, err
		}
		return c, args, nil
	}
	if len(args) == 0 {
		return nil, nil, usage(errors.New("which letters? Give the name of a queue, or --store"))
	}
	if err := isURL(args[:1]); err != nil {
		return nil, nil, err
	}
	conn, err := a.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	live, err := desk.NewLive(conn, args[0], desk.LiveConfig{Journal: journal, Window: p.window})
	if err != nil {
		return nil, nil, usage(err)
	}
	return live, args[1:], nil
}

// openFor opens the source of a command that takes letters by a filter: of a queue, or of
// --store.
func (a *app) openFor(ctx context.Context, p place, f *filter, args []string, send bool) (desk.Source, error) {
	switch {
	case p.store != "" && len(args) > 0:
		return nil, usage(fmt.Errorf("there are a queue, %s, and --store: letters are in one of them; --queue selects letters of a store by the queue that failed", typed(args[0])))
	case p.store == "" && len(f.States) > 0:
		return nil, usage(errors.New("--state is for --store: a letter in a queue has no state"))
	}
	source, _, err := a.open(ctx, p, args, send)
	return source, err
}

// filter are the flags that select letters.
type filter struct {
	desk.Filter
	cause   string
	headers []string
	older   span
	newer   span
	all     bool
}

// span is a flag for a time that reaches back: more than 0. The zero span is not given.
type span time.Duration

// Set is that of pflag.Value.
func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("not more than 0")
	}
	*s = span(d)
	return err
}

func (s *span) accepted() string { return "a duration of more than 0, such as 90m or 24h" }

func (s *span) String() string {
	if *s == 0 {
		return "" // has no default to show
	}
	return time.Duration(*s).String()
}

// Type is that of pflag.Value.
func (s *span) Type() string { return "duration" }

func (f *filter) flags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVar(&f.IDs, "id", nil, "id of a letter, as list and peek show it; given several times: any of them; beside other conditions: all hold")
	flags.StringArrayVar(&f.MessageIDs, "message-id", nil, "message id; given several times: any of them; beside other conditions: all hold")
	flags.StringVar(&f.Queue, "queue", "", "queue that failed")
	flags.StringVar(&f.Exchange, "exchange", "", "exchange that the message was first published to")
	flags.StringVar(&f.RoutingKey, "key", "", "routing key that the message was first published with")
	flags.StringVar(&f.cause, "cause", "", "why it is a letter, such as exhausted, permanent or crash-loop")
	flags.StringVar(&f.Error, "error", "", "text in the error, upper and lower case alike")
	flags.StringVar(&f.ErrorType, "error-type", "", "type of the error")
	flags.StringVar(&f.Fingerprint, "group", "", "fingerprint of a group, as groups shows it")
	flags.StringVar(&f.Text, "text", "", "text in the error, a header or the body")
	flags.StringArrayVar(&f.headers, "header", nil, "name of a header, or name=value; may be given several times")
	flags.Var(&f.older, "older", "failed longer ago than this, such as 24h")
	flags.Var(&f.newer, "newer", "failed within this time")
	flags.StringSliceVar(&f.States, "state", nil, "of collected letters: held, parked, archived or ready")
	_ = c.RegisterFlagCompletionFunc("cause", cobra.FixedCompletions([]string{
		string(rehop.CauseExhausted), string(rehop.CausePermanent), string(rehop.CauseExpired), string(rehop.CauseCrashLoop), string(rehop.CauseMaxLen),
		string(rehop.CauseRejected), string(rehop.CauseUnreadable), string(rehop.CauseUndecodable), string(rehop.CauseUnhandled),
		string(rehop.CauseUnroutable), string(rehop.CauseRefused), string(rehop.CauseNacked),
	}, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
}

func (f *filter) allFlag(c *cobra.Command) {
	c.Flags().BoolVar(&f.all, "all", false, "all letters: needed where nothing else selects some")
}

// read returns the filter of the flags.
func (f *filter) read() desk.Filter {
	d := f.Filter
	d.Cause = rehop.Cause(f.cause)
	for _, h := range f.headers {
		name, value, _ := strings.Cut(h, "=")
		if d.Headers == nil {
			d.Headers = map[string]string{}
		}
		d.Headers[name] = value
	}
	now := time.Now()
	if f.older > 0 {
		d.Before = now.Add(-time.Duration(f.older))
	}
	if f.newer > 0 {
		d.From = now.Add(-time.Duration(f.newer))
	}
	return d
}

// listLine returns the command line that lists the letters that the flags of c select, after
// a place; 0: from the beginning.
func listLine(c *cobra.Command, source desk.Source, after int64) string {
	line := "rehop dlq list"
	if about := source.About(); about.Live {
		line += " " + ctl.Quote(about.Queue)
	} else {
		line += " --store " + ctl.Quote(strings.TrimPrefix(about.Name, "store ")) // without a password
	}
	var p place
	var f filter
	known := &cobra.Command{}
	p.flags(known)
	f.flags(known)
	c.Flags().Visit(func(flag *pflag.Flag) {
		same := known.Flags().Lookup(flag.Name)
		selects := same != nil && same.Usage == flag.Usage || flag.Name == "limit" && c.Name() == "list" // --header of edit selects nothing
		if !selects || flag.Name == "store" {
			return
		}
		values := []string{flag.Value.String()}
		if list, several := flag.Value.(pflag.SliceValue); several {
			values = list.GetSlice()
		}
		for _, value := range values {
			line += " --" + flag.Name + " " + ctl.Quote(value)
		}
	})
	if after > 0 {
		line += fmt.Sprintf(" --after %d", after)
	}
	return line
}

// typable matches names that a shell reads as they are, and the command as a name.
var typable = regexp.MustCompile(`^[\pL\pN_./][\pL\pN_./:@%+,-]*$`)

// queueNames completes the name of a queue of dead letters. It offers only names that are typable: the
// script of bash inserts what several names have in common as it is, and runs the line at the next Tab.
func (a *app) queueNames(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second)
	defer cancel()
	conn, err := a.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	queues, err := desk.Queues(ctx, conn)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, q := range queues {
		if q.IsDeadLetters && typable.MatchString(q.Name) {
			names = append(names, q.Name+"\t"+letterCount(q.Ready))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
