package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
)

func (a *app) redrivesCommand() *cobra.Command {
	var n int
	c := &cobra.Command{
		Use:   "redrives",
		Short: "List what was sent back, moved or dropped, show, stop or resume it",
		Long: `Each send, move and drop is a redrive, and so is an edit of a letter of a queue. It is
written into the journal, with its id, before it begins. Without a command, redrives
lists those of the journal, the newest first.`,
		Example: `  rehop redrives
  rehop redrives show 20270115-093000-x7k2pq
  rehop redrives stop 20270115-093000-x7k2pq
  rehop redrives resume 20270115-093000-x7k2pq --why "the stock service is mended"`,
		Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			journal, err := a.journal()
			if err != nil {
				return err
			}
			redrives, err := journal.Redrives(n)
			if err != nil {
				return err
			}
			if a.format == "json" {
				out := []progressJSON{}
				for _, p := range redrives {
					out = append(out, progressFor(p))
				}
				return a.json(out)
			}
			var rows [][]string
			for _, p := range redrives {
				total, about := p.Total()
				of := strings.TrimSpace(about + " " + strconv.Itoa(total))
				rows = append(rows, []string{p.Redrive.ID, string(p.State), string(p.Redrive.Action), strconv.Itoa(p.Done), of, strconv.Itoa(p.Failed), ago(p.Redrive.Created),
					p.Redrive.By.Who, p.Redrive.Source, a.short(p.Redrive.Which(), 40), orDash(a.short(said.Text(cmp.Or(p.Reason(), p.Note)), 40))})
			}
			table(a.out, []string{"REDRIVE", "STATE", "ACTION", "DONE", "OF", "FAILED", "AGE", "BY", "SOURCE", "LETTERS", "NOTE"}, rows)
			return nil
		},
	}
	c.Flags().IntVarP(&n, "limit", "n", 50, "redrives to show")
	c.AddCommand(a.showRedriveCommand(), a.stopCommand(), a.resumeCommand())
	return c
}

func (a *app) showRedriveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show one redrive: what was asked for, and its counts", Args: args(cobra.ExactArgs(1)), ValidArgsFunction: a.redriveIDs(func(desk.Progress) bool { return true }),
		RunE: func(_ *cobra.Command, rest []string) error {
			p, err := a.redrive(rest[0])
			if err != nil {
				return err
			}
			if a.format == "json" {
				return a.json(progressFor(p))
			}
			total, about := p.Total()
			for _, row := range [][2]string{
				{"redrive", p.Redrive.ID}, {"state", said.Text(fields.Replace(p.String()))}, {"action", string(p.Redrive.Action)}, {"letters", p.Redrive.Which()},
				{"of", strings.TrimSpace(about + " " + strconv.Itoa(total))}, {"source", p.Redrive.Source}, {"by", p.Redrive.By.Who}, {"why", p.Redrive.By.Why}, {"began", p.Redrive.Created.UTC().Format(time.DateTime) + " UTC"},
			} {
				if row[1] != "" {
					fmt.Fprintf(a.out, "%-8s %s\n", row[0], plain(row[1]))
				}
			}
			a.copies(p)
			return nil
		},
	}
}

// redrive reads a redrive from the journal.
func (a *app) redrive(id string) (desk.Progress, error) {
	journal, err := a.journal()
	if err != nil {
		return desk.Progress{}, err
	}
	return journal.Redrive(id)
}

func (a *app) stopCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "stop ID", Short: "Stop a redrive, in whichever process it runs", Args: args(cobra.ExactArgs(1)), ValidArgsFunction: a.redriveIDs(func(p desk.Progress) bool { return !p.Ended() }),
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
	var maybeSent string
	c := &cobra.Command{
		Use: "resume ID", Short: "Go on with a redrive that was stopped, failed or cut off",
		Long: `Resume goes on with a redrive. A letter that nothing tells from one that the redrive has
sent stays in its queue: the redrive was cut off before the queue had let go of
that one. Ask the receiver, or compare the queues, and then choose:
  --maybe-sent delete    it is the letter that was sent: it leaves the queue
  --maybe-sent again     it is another letter: it is sent too, and counts as perhaps twice`,
		Args: args(cobra.ExactArgs(1)), ValidArgsFunction: a.redriveIDs(desk.Progress.Resumable),
		RunE: func(c *cobra.Command, rest []string) error {
			p, err := a.redrive(rest[0])
			if err != nil {
				return err
			}
			var at place
			var queue []string
			if name, isStore := strings.CutPrefix(p.Redrive.Source, "store "); isStore {
				at.store, at.use = name, changes
			} else {
				queue = []string{strings.TrimPrefix(p.Redrive.Source, "queue ")}
			}
			source, _, err := a.open(c.Context(), at, queue, p.Redrive.Action != desk.Drop)
			if err != nil {
				return err
			}
			tell, end := a.watch()
			by := a.by()
			if maybeSent != "" && maybeSent != string(desk.Delete) && maybeSent != string(desk.Again) {
				return usage(fmt.Errorf("--maybe-sent is %.40q, want %s or %s", maybeSent, desk.Delete, desk.Again))
			}
			by.MaybeSent = desk.Answer(maybeSent)
			p, err = source.Resume(c.Context(), rest[0], by, tell)
			end()
			return a.result(p, err)
		},
	}
	c.Flags().StringVar(&maybeSent, "maybe-sent", "", "letters that may have been sent: delete or again; they stay if it is not given")
	_ = c.RegisterFlagCompletionFunc("maybe-sent", cobra.FixedCompletions([]string{string(desk.Delete), string(desk.Again)}, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
	c.Flags().StringVar(&a.why, "why", "", "reason, for the audit")
	return c
}

// redriveIDs completes the id of a redrive that a command is for.
func (a *app) redriveIDs(isFor func(desk.Progress) bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, rest []string, _ string) ([]string, cobra.ShellCompDirective) {
		journal, err := a.journal()
		if err != nil || len(rest) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		redrives, err := journal.Redrives(1000)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []string
		for _, p := range redrives {
			if isFor(p) {
				ids = append(ids, fmt.Sprintf("%s\t%s, %s", p.Redrive.ID, p.State, p.Redrive.Source))
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
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
				rows = append(rows, []string{r.At.Format(time.DateTime), r.By.Who, r.Action, strconv.Itoa(r.Count), r.Source, orDash(a.short(r.Which, 40)), orDash(r.Redrive),
					a.short(said.Text(r.Result), 60), orDash(a.short(r.By.Why, 40))})
			}
			table(a.out, []string{"WHEN", "WHO", "ACTION", "LETTERS", "SOURCE", "WHICH", "REDRIVE", "RESULT", "WHY"}, rows)
			return nil
		},
	}
	c.Flags().IntVarP(&n, "limit", "n", 50, "actions to show")
	return c
}
