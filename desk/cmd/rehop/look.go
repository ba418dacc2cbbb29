package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
	"github.com/rehop/rehop/internal/ctl"
)

func (a *app) listCommand() *cobra.Command {
	var p place
	var f filter
	var page desk.Page
	c := &cobra.Command{
		Use:   "list [QUEUE]",
		Short: "List the queues of dead letters, or the letters of one",
		Example: `  rehop dlq list
  rehop dlq list orders.dlq --error timeout --newer 24h
  rehop dlq list --store letters.db --cause exhausted --output wide`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			if len(rest) == 0 && p.store == "" {
				return a.listQueues(c)
			}
			source, err := a.openFor(c.Context(), p, &f, rest, false)
			if err != nil {
				return err
			}
			list, err := source.List(c.Context(), f.read(), page)
			if err != nil {
				return err
			}
			return a.printLetters(list, func() string { return listLine(c, source, list.Next) })
		},
	}
	p.flags(c)
	f.flags(c)
	c.Flags().IntVarP(&page.Limit, "limit", "n", 100, "letters to show, at most 1000")
	c.Flags().Int64Var(&page.After, "after", 0, "place of the last letter of the page before")
	return c
}

// listQueues lists the queues of dead letters.
func (a *app) listQueues(c *cobra.Command) error {
	conn, err := a.connect(c.Context())
	if err != nil {
		return err
	}
	queues, err := desk.Queues(c.Context(), conn)
	if err != nil {
		return err
	}
	queues = slices.DeleteFunc(queues, func(q desk.Queue) bool { return !q.IsDeadLetters })
	if a.format == "json" {
		return a.json(orEmpty(queues))
	}
	var rows [][]string
	for _, q := range queues {
		rows = append(rows, []string{q.Name, strconv.Itoa(q.Ready), strconv.Itoa(q.Unacked), strconv.Itoa(q.Consumers), q.Type, orDash(q.Refusal)})
	}
	table(a.out, []string{"QUEUE", "LETTERS", "IN HAND", "CONSUMERS", "TYPE", "NOT LOOKED INTO"}, rows)
	a.taken(queues)
	return nil
}

func (a *app) peekCommand() *cobra.Command {
	var p place
	var n int
	c := &cobra.Command{
		Use:     "peek QUEUE",
		Short:   "Look at the letters at the head of a queue",
		Example: `  rehop dlq peek orders.dlq -n 5`,
		Args:    args(cobra.ExactArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			source, _, err := a.open(c.Context(), place{window: p.window}, rest, false)
			if err != nil {
				return err
			}
			list, err := source.(*desk.Live).Peek(c.Context(), n)
			if err != nil {
				return err
			}
			return a.printLetters(list, nil)
		},
	}
	c.Flags().IntVarP(&n, "limit", "n", 10, "letters to show")
	c.Flags().IntVar(&p.window, "window", desk.MaxWindow, "letters that are taken and handed back, at most")
	return c
}

func (a *app) groupsCommand() *cobra.Command {
	var p place
	var f filter
	c := &cobra.Command{
		Use:   "groups [QUEUE]",
		Short: "Group letters by what they failed of",
		Example: `  rehop dlq groups orders.dlq
  rehop dlq groups --store letters.db --newer 1h`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			source, err := a.openFor(c.Context(), p, &f, rest, false)
			if err != nil {
				return err
			}
			groups, err := source.Groups(c.Context(), f.read())
			if err != nil {
				return err
			}
			return a.printGroups(groups)
		},
	}
	p.flags(c)
	f.flags(c)
	return c
}

func (a *app) printGroups(groups desk.Groups) error {
	if a.format == "json" {
		type groupJSON struct {
			Group    string     `json:"group"`
			Error    string     `json:"error,omitzero"`
			Count    int        `json:"count"`
			More     bool       `json:"more,omitzero"`
			First    time.Time  `json:"first,omitzero"`
			Last     time.Time  `json:"last,omitzero"`
			Redriven int        `json:"redriven"`
			Example  letterJSON `json:"example"`
		}
		out := []groupJSON{}
		for _, g := range groups.Groups {
			out = append(out, groupJSON{g.Fingerprint, said.Group(g.Example.Error), g.Count, g.More, g.First, g.Last, g.Redriven, forPrograms(g.Example, false)})
		}
		a.bound(groups.Seen, 0, 0) // which the list has no place for
		return cmp.Or(a.json(out), noneOf(len(out), "group of letters", groups.Bound))
	}
	headings := []string{"GROUP", "LETTERS", "FIRST", "LAST", "SENT BACK", "QUEUE", "CAUSE", "ERROR"}
	if a.format == "wide" {
		headings = append(headings, "FOR EXAMPLE")
	}
	var rows [][]string
	for _, g := range groups.Groups {
		back := strconv.Itoa(g.Redriven)
		if g.Redriven < 0 {
			back = "?"
		}
		row := []string{orDash(g.Fingerprint), some(g.Count, g.More), ago(g.First), ago(g.Last), back, orDash(g.Example.Queue),
			orDash(string(g.Example.Cause)), orDash(a.short(said.Group(g.Example.Error), 60))}
		if a.format == "wide" {
			row = append(row, orDash(g.Example.Error))
		}
		rows = append(rows, row)
	}
	table(a.out, headings, rows)
	a.bound(groups.Seen, 0, 0)
	return noneOf(len(rows), "group of letters", groups.Bound)
}

func (a *app) showCommand() *cobra.Command {
	var p place
	var body bool
	c := &cobra.Command{
		Use:   "show [QUEUE] ID",
		Short: "Show one letter: its life, headers, stack and body",
		Long: `Show prints one letter. ID is the one that list shows, or the message id of the logs if
only one letter has it. With --body it prints the body alone, as it is; a terminal gets
no control characters of it.`,
		Example: `  rehop dlq show orders.dlq 8d71590e81c72837a5
  rehop dlq show orders.dlq 8d71590e81c72837a5 --body > body.json
  rehop dlq show orders.dlq order-4711
  rehop dlq show --store letters.db 4711 --output json`,
		Args: args(cobra.RangeArgs(1, 2)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			if body && a.format == "json" {
				return usage(errors.New("--body prints the body alone, and --output json has it among all else: give one of them"))
			}
			source, rest, err := a.open(c.Context(), p, rest, false)
			if err != nil {
				return err
			}
			if len(rest) != 1 {
				return usage(errors.New("which letter? Give its id"))
			}
			l, err := letterOf(c, source, rest[0])
			switch {
			case err != nil:
				return err
			case !body:
				return a.show(l)
			case a.outTTY:
				fmt.Fprintln(a.out, wholeBody(l.Publishing.Body))
				return nil
			}
			_, err = a.out.Write(l.Publishing.Body)
			return err
		},
	}
	p.flags(c)
	c.Flags().BoolVar(&body, "body", false, "print the body alone, as it is")
	return c
}

// letterOf returns the letter with an id, or the one letter with a message id.
func letterOf(c *cobra.Command, source desk.Source, id string) (desk.Letter, error) {
	l, err := source.Letter(c.Context(), id)
	if errors.Is(err, desk.ErrNoLetter) {
		return byMessageID(c, source, id, err)
	}
	return l, err
}

// byMessageID returns the one letter with a message id. noLetter is the error of the
// source, which has no letter with this id.
func byMessageID(c *cobra.Command, source desk.Source, id string, noLetter error) (desk.Letter, error) {
	list, err := source.List(c.Context(), desk.Filter{MessageIDs: []string{id}}, desk.Page{Limit: 1})
	if err != nil {
		return desk.Letter{}, err
	}
	if list.Matched == 1 {
		return source.Letter(c.Context(), list.Letters[0].ID) // which the audit has
	}
	search := listLine(c, source, 0) + " --message-id " + ctl.Quote(id)
	if list.Matched > 1 {
		return desk.Letter{}, fmt.Errorf("%s letters have the message id %s; name one by its id: %s", some(list.Matched, list.More), ctl.Quote(id), search)
	}
	none, form := "no letter", "has 18 hexadecimal digits, such as 8d71590e81c72837a5"
	switch {
	case !source.About().Live:
		none, form = "no held or parked letter", "is a number, such as 4711"
	case list.Bound != "":
		none = "no letter that was looked at"
	}
	return desk.Letter{}, fmt.Errorf("%w, and %s has this message id; an id %s; to search for a message id: %s", noLetter, none, form, search)
}
