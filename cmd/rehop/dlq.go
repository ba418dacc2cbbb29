package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
)

// dlq are the commands for dead letters.
func (a *app) dlq() *cobra.Command {
	c := &cobra.Command{
		Use:     "dlq",
		Aliases: []string{"letters"},
		Short:   "Dead letters: what failed, why, and how to send it again",
		Long: `Dead letters are in a queue of the broker, or in a store, which rehop dlq
collect has taken out of queues.

RabbitMQ has no way to look at a queue without taking messages. rehop takes them,
hands them back in their order, and leaves each marked as redelivered. It refuses to
look where a look could cost a letter, and says why. Collected letters can be looked
at freely.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.listCommand(), a.peekCommand(), a.groupsCommand(), a.showCommand(),
		a.sendCommand(), a.editCommand(), a.moveCommand(), a.dropCommand(), a.exportCommand(), a.importCommand(), a.collectCommand(),
		a.ordersCommand(), a.stopCommand(), a.resumeCommand(), a.auditCommand())
	return c
}

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
			source, _, err := a.open(c.Context(), p, rest, false)
			if err != nil {
				return err
			}
			list, err := source.List(c.Context(), f.read(), page)
			if err != nil {
				return err
			}
			return a.printLetters(list)
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
		return a.json(queues)
	}
	var rows [][]string
	for _, q := range queues {
		rows = append(rows, []string{q.Name, strconv.Itoa(q.Ready), strconv.Itoa(q.Unacked), strconv.Itoa(q.Consumers), q.Type, orDash(q.Refusal)})
	}
	table(a.out, []string{"QUEUE", "LETTERS", "IN HAND", "CONSUMERS", "TYPE", "NOT LOOKED INTO"}, rows)
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
			return a.printLetters(list)
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
			source, _, err := a.open(c.Context(), p, rest, false)
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
			Count    int        `json:"count"`
			More     bool       `json:"more,omitzero"`
			First    time.Time  `json:"first,omitzero"`
			Last     time.Time  `json:"last,omitzero"`
			Redriven int        `json:"redriven"`
			Example  letterJSON `json:"example"`
		}
		out := []groupJSON{}
		for _, g := range groups.Groups {
			out = append(out, groupJSON{g.Fingerprint, g.Count, g.More, g.First, g.Last, g.Redriven, forPrograms(g.Example, false)})
		}
		return a.json(out)
	}
	var rows [][]string
	for _, g := range groups.Groups {
		back := strconv.Itoa(g.Redriven)
		if g.Redriven < 0 {
			back = "?"
		}
		rows = append(rows, []string{orDash(g.Fingerprint), some(g.Count, g.More), ago(g.First), ago(g.Last), back, orDash(g.Example.Queue),
			orDash(string(g.Example.Cause)), orDash(a.short(g.Example.Error, 60))})
	}
	table(a.out, []string{"GROUP", "LETTERS", "FIRST", "LAST", "SENT BACK", "QUEUE", "CAUSE", "ERROR OF ONE"}, rows)
	a.bound(groups.Seen, 0, 0)
	return nil
}

func (a *app) showCommand() *cobra.Command {
	var p place
	c := &cobra.Command{
		Use:   "show [QUEUE] ID",
		Short: "Show one letter: its life, headers, stack and body",
		Example: `  rehop dlq show orders.dlq 5f0c2b71d0a9
  rehop dlq show --store letters.db 4711 --output json`,
		Args: args(cobra.RangeArgs(1, 2)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			source, rest, err := a.open(c.Context(), p, rest, false)
			if err != nil {
				return err
			}
			if len(rest) != 1 {
				return usage(errors.New("which letter? Give its id"))
			}
			l, err := source.Letter(c.Context(), rest[0])
			if err != nil {
				return err
			}
			return a.show(l)
		},
	}
	p.flags(c)
	return c
}

// order are the flags of an order.
type order struct {
	place  place
	filter filter
	desk.Order
	to     string
	dryRun bool
}

func (o *order) flags(a *app, c *cobra.Command) {
	o.place.flags(c)
	o.filter.flags(c)
	o.filter.allFlag(c)
	c.Flags().IntVar(&o.Rate, "rate", 0, "letters per second; 0: no bound")
	c.Flags().IntVarP(&o.Limit, "limit", "n", 0, "letters to try; 0: no bound")
	c.Flags().StringVar(&o.ID, "order", "", "id of the order; a new one if not given")
	c.Flags().StringVar(&a.why, "why", "", "reason, for the audit")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say which letters are meant")
}

// carryOut asks, and carries out an order.
func (a *app) carryOut(c *cobra.Command, o *order, rest []string, action desk.Action, verb string, ask bool) error {
	source, _, err := a.open(c.Context(), o.place, rest, action != desk.Drop)
	if err != nil {
		return err
	}
	o.Action, o.Filter, o.All, o.By, o.To = action, o.filter.read(), o.filter.all, a.by(), address(o.to)
	if o.Filter.IsZero() && !o.All {
		return usage(errors.New("which letters? Give a filter, such as --error or --id, or --all"))
	}
	expected := 0
	if o.dryRun || ask && !a.yes && a.inTTY || a.errTTY {
		list, err := source.List(c.Context(), o.Filter, desk.Page{Limit: 10, CountAll: true})
		if err != nil {
			return err
		}
		expected = list.Matched
		if o.dryRun {
			return a.printLetters(list)
		}
	}
	if ask {
		if err := a.confirmed("%s %s of %s (%s)", verb, letterCount(expected), source.About().Name, o.Filter); err != nil {
			return err
		}
	}
	tell, end := a.watch(expected)
	p, err := source.Execute(c.Context(), o.Order, tell)
	end()
	return a.result(p, err)
}

func letterCount(n int) string {
	switch n {
	case 0:
		return "letters"
	case 1:
		return "1 letter"
	}
	return strconv.Itoa(n) + " letters"
}

func (a *app) sendCommand() *cobra.Command {
	var o order
	c := &cobra.Command{
		Use:   "send [QUEUE]",
		Short: "Send letters back to the queue that failed on them",
		Long: `Send publishes each message as it was published first, straight to the queue that
failed on it, where it starts at attempt 1. A letter leaves its place when the broker
has confirmed the message. Each order sends a letter once, also one that fails again
meanwhile.

The order is written into the journal before it begins: rehop dlq stop stops it from
anywhere, and rehop dlq resume goes on with it after a stop, an error or a crash.`,
		Example: `  rehop dlq send orders.dlq --error "no stock" --rate 100
  rehop dlq send orders.dlq --group 6c1d7e0b41a2f9d3 --canary 2m
  rehop dlq send orders.dlq --all --dry-run
  rehop dlq send orders.dlq --id 5f0c2b71d0a9
  rehop dlq send legacy_error --all --to orders`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			return a.carryOut(c, &o, rest, desk.Send, "send", o.filter.all)
		},
	}
	o.flags(a, c)
	c.Flags().StringVar(&o.to, "to", "", "send there instead: a queue, or exchange/key")
	c.Flags().DurationVar(&o.Canary, "canary", 0, "send one letter first, and no more if it is back within this time")
	return c
}

func (a *app) moveCommand() *cobra.Command {
	var o order
	c := &cobra.Command{
		Use:     "move [QUEUE] --to QUEUE",
		Short:   "Move letters as they are, with all headers, to another queue",
		Example: `  rehop dlq move orders.dlq --older 720h --to orders.parked`,
		Args:    args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			return a.carryOut(c, &o, rest, desk.Move, "move to "+o.to, true)
		},
	}
	o.flags(a, c)
	c.Flags().StringVar(&o.to, "to", "", "a queue, or exchange/key")
	_ = c.MarkFlagRequired("to") // fails for unknown flags only
	return c
}

func (a *app) dropCommand() *cobra.Command {
	var o order
	c := &cobra.Command{
		Use:   "drop [QUEUE] --copy FILE",
		Short: "Delete letters, after writing them to a file",
		Long: `Drop appends each letter to the file, and deletes it when the file is on the disk.
rehop dlq import brings the letters back.`,
		Example: `  rehop dlq drop orders.dlq --error "no such customer" --copy dropped.jsonl`,
		Args:    args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			return a.carryOut(c, &o, rest, desk.Drop, "drop", true)
		},
	}
	o.flags(a, c)
	c.Flags().StringVar(&o.CopyTo, "copy", "", "file that the letters are appended to first")
	_ = c.MarkFlagRequired("copy") // fails for unknown flags only
	return c
}

func (a *app) editCommand() *cobra.Command {
	var p place
	var body, contentType, key, to string
	var set, remove []string
	var sendToo bool
	c := &cobra.Command{
		Use:   "edit [QUEUE] ID",
		Short: "Change one letter and send it",
		Long: `Edit changes the body or headers of one message and sends it back. A collected letter
is changed where it is, and the original is kept in the journal; --send sends it too.`,
		Example: `  rehop dlq edit orders.dlq 5f0c2b71d0a9 --body fixed.json
  rehop dlq edit --store letters.db 4711 --header tenant=acme --remove-header debug --send`,
		Args: args(cobra.RangeArgs(1, 2)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			e := desk.Edit{Remove: remove}
			if body != "" {
				text, err := readAll(a.in, body)
				if err != nil {
					return usage(err)
				}
				e.Body = &text
			}
			if c.Flags().Changed("content-type") {
				e.ContentType = &contentType
			}
			if c.Flags().Changed("key") {
				e.RoutingKey = &key
			}
			for _, h := range set {
				name, value, found := strings.Cut(h, "=")
				if !found {
					return usage(fmt.Errorf("--header %s: want name=value", h))
				}
				if e.Set == nil {
					e.Set = map[string]string{}
				}
				e.Set[name] = value
			}
			if e.Body == nil && e.ContentType == nil && e.RoutingKey == nil && e.Set == nil && e.Remove == nil {
				return usage(errors.New("what is to be changed? Give --body, --header, --remove-header, --content-type or --key"))
			}
			source, rest, err := a.open(c.Context(), p, rest, sendToo)
			if err != nil {
				return err
			}
			if len(rest) != 1 {
				return usage(errors.New("which letter? Give its id"))
			}
			o := desk.Order{Action: desk.Send, Filter: desk.Filter{IDs: rest}, By: a.by(), To: address(to)}
			if keeper, ok := source.(desk.Keeper); ok {
				if err := keeper.Edit(c.Context(), rest[0], e, a.by()); err != nil || !sendToo {
					return err
				}
			} else {
				o.Edit = &e
			}
			progress, err := source.Execute(c.Context(), o, nil)
			return a.result(progress, err)
		},
	}
	p.flags(c)
	c.Flags().StringVar(&body, "body", "", "file with the new body; - for the standard input")
	c.Flags().StringArrayVar(&set, "header", nil, "name=value of a header to set; may be given several times")
	c.Flags().StringArrayVar(&remove, "remove-header", nil, "name of a header to remove; may be given several times")
	c.Flags().StringVar(&contentType, "content-type", "", "new content type")
	c.Flags().StringVar(&key, "key", "", "new routing key, as the handler sees it")
	c.Flags().StringVar(&to, "to", "", "send there instead: a queue, or exchange/key")
	c.Flags().BoolVar(&sendToo, "send", false, "of a collected letter: send it too")
	c.Flags().StringVar(&a.why, "why", "", "reason, for the audit")
	return c
}

func readAll(in io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(name)
}

func (a *app) exportCommand() *cobra.Command {
	var p place
	var f filter
	var file string
	c := &cobra.Command{
		Use:   "export [QUEUE]",
		Short: "Write letters as lines of JSON; they stay where they are",
		Example: `  rehop dlq export orders.dlq --file letters.jsonl
  rehop dlq export --store letters.db --cause exhausted | jq .error`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) (err error) {
			source, _, err := a.open(c.Context(), p, rest, false)
			if err != nil {
				return err
			}
			out := a.out
			if file != "" && file != "-" {
				opened, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, opened.Close()) }()
				out = opened
			}
			n, err := source.Export(c.Context(), f.read(), out)
			fmt.Fprintf(a.err, "%s written\n", letterCount(n))
			return err
		},
	}
	p.flags(c)
	f.flags(c)
	c.Flags().StringVar(&file, "file", "", "a new file; the standard output if not given")
	return c
}

func (a *app) importCommand() *cobra.Command {
	var o desk.ImportOptions
	c := &cobra.Command{
		Use:   "import QUEUE FILE",
		Short: "Publish letters of a file to a queue, with every property and header they had",
		Example: `  rehop dlq import orders.dlq letters.jsonl
  rehop dlq import orders.dlq letters.jsonl --from 1201`,
		Args: args(cobra.ExactArgs(2)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			journal, err := a.journal()
			if err != nil {
				return err
			}
			in := a.in
			if rest[1] != "-" {
				f, err := os.Open(rest[1])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			conn, err := a.connect(c.Context())
			if err != nil {
				return err
			}
			o.Queue, o.By = rest[0], a.by()
			n, err := desk.Import(c.Context(), conn, in, journal, o, nil)
			fmt.Fprintf(a.err, "%s imported\n", letterCount(n))
			var line *desk.ImportError
			if errors.As(err, &line) {
				return fmt.Errorf("%w; go on with --from %d", err, line.Line)
			}
			return err
		},
	}
	c.Flags().IntVar(&o.From, "from", 1, "line to begin with")
	return c
}

func (a *app) ordersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "orders", Short: "List the orders of the journal", Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			journal, err := a.journal()
			if err != nil {
				return err
			}
			orders, err := journal.Orders()
			if err != nil {
				return err
			}
			if a.format == "json" {
				type orderJSON struct {
					Order desk.Order `json:"order"`
					desk.Progress
				}
				out := []orderJSON{}
				for _, p := range orders {
					out = append(out, orderJSON{p.Order, p})
				}
				return a.json(out)
			}
			var rows [][]string
			for _, p := range orders {
				rows = append(rows, []string{p.Order.ID, string(p.State), string(p.Order.Action), strconv.Itoa(p.Done), strconv.Itoa(p.Failed), ago(p.Order.Created),
					p.Order.By.Who, p.Order.Source, a.short(p.Order.Filter.String(), 40), orDash(a.short(p.Error, 40))})
			}
			table(a.out, []string{"ORDER", "STATE", "ACTION", "DONE", "FAILED", "AGE", "BY", "SOURCE", "LETTERS", "ERROR"}, rows)
			return nil
		},
	}
}

func (a *app) stopCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "stop ORDER", Short: "Stop an order, in whichever process it runs", Args: args(cobra.ExactArgs(1)), ValidArgsFunction: a.orderIDs,
		RunE: func(_ *cobra.Command, rest []string) error {
			journal, err := a.journal()
			if err != nil {
				return err
			}
			return journal.Stop(rest[0], a.by())
		},
	}
	c.Flags().StringVar(&a.why, "why", "", "reason, for the audit")
	return c
}

func (a *app) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "resume ORDER", Short: "Go on with an order that was stopped or cut off", Args: args(cobra.ExactArgs(1)), ValidArgsFunction: a.orderIDs,
		RunE: func(c *cobra.Command, rest []string) error {
			journal, err := a.journal()
			if err != nil {
				return err
			}
			p, err := journal.Order(rest[0])
			if err != nil {
				return err
			}
			var at place
			var queue []string
			if name, isStore := strings.CutPrefix(p.Order.Source, "store "); isStore {
				at.store = name
			} else {
				queue = []string{strings.TrimPrefix(p.Order.Source, "queue ")}
			}
			source, _, err := a.open(c.Context(), at, queue, p.Order.Action != desk.Drop)
			if err != nil {
				return err
			}
			tell, end := a.watch(p.Matched)
			p, err = source.Resume(c.Context(), rest[0], tell)
			end()
			return a.result(p, err)
		},
	}
}

// orderIDs completes the id of an order.
func (a *app) orderIDs(_ *cobra.Command, rest []string, _ string) ([]string, cobra.ShellCompDirective) {
	journal, err := a.journal()
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	orders, err := journal.Orders()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, p := range orders {
		if p.State != desk.Done {
			ids = append(ids, fmt.Sprintf("%s\t%s, %s", p.Order.ID, p.State, p.Order.Source))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) auditCommand() *cobra.Command {
	var n int
	c := &cobra.Command{
		Use: "audit", Short: "Show who did what to letters", Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			journal, err := a.journal()
			if err != nil {
				return err
			}
			records, err := journal.Audit(n)
			if err != nil {
				return err
			}
			if a.format == "json" {
				return a.json(records)
			}
			var rows [][]string
			for _, r := range records {
				rows = append(rows, []string{r.At.Format(time.DateTime), r.By.Who, r.Action, strconv.Itoa(r.Count), r.Source, orDash(a.short(r.Which, 40)), orDash(r.Order),
					a.short(r.Result, 60), orDash(a.short(r.By.Why, 40))})
			}
			table(a.out, []string{"WHEN", "WHO", "ACTION", "LETTERS", "SOURCE", "WHICH", "ORDER", "RESULT", "WHY"}, rows)
			return nil
		},
	}
	c.Flags().IntVarP(&n, "limit", "n", 50, "actions to show")
	return c
}
