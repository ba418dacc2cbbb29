package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
)

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
				out := []progressJSON{}
				for _, p := range orders {
					out = append(out, progressFor(p))
				}
				return a.json(out)
			}
			var rows [][]string
			for _, p := range orders {
				rows = append(rows, []string{p.Order.ID, string(p.State), string(p.Order.Action), strconv.Itoa(p.Done), strconv.Itoa(p.Failed), ago(p.Order.Created),
					p.Order.By.Who, p.Order.Source, a.short(p.Order.Filter.String(), 40), orDash(a.short(cmp.Or(p.Error, p.Note), 40))})
			}
			table(a.out, []string{"ORDER", "STATE", "ACTION", "DONE", "FAILED", "AGE", "BY", "SOURCE", "LETTERS", "NOTE"}, rows)
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
	c := &cobra.Command{
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
			p, err = source.Resume(c.Context(), rest[0], a.by(), tell)
			end()
			return a.result(p, err)
		},
	}
	c.Flags().StringVar(&a.why, "why", "", "reason, for the audit")
	return c
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
				return a.json(orEmpty(records))
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
