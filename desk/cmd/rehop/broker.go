package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
)

func (a *app) queuesCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "queues",
		Short: "List queues: depth, consumers, waits and dead letters",
		Long: `Queues lists the queues of the virtual host. The wait queues of a work queue of rehop
are folded into it: WAITING counts the messages in them, LETTERS those in its
dead-letter queue. The levels of delays are folded into their stranded queue. Lanes may share a dead-letter queue: LETTERS then names the queue, and
counts the letters of all these lanes. OLDEST is the age of the message at the head of a
classic queue; no quorum queue tells. It needs the management API, whose numbers lag by
up to 10 s. The last line says when they were taken; in JSON, "at" does.`,
		Example: `  rehop queues
  rehop queues --output json`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			conn, err := a.connect(c.Context())
			if err != nil {
				return err
			}
			queues, err := desk.Queues(c.Context(), conn)
			if err != nil {
				return err
			}
			if a.format == "json" {
				return a.json(orEmpty(queues))
			}
			var rows [][]string
			for _, q := range queues {
				if !all && q.Ready+q.Unacked+q.Waiting+q.Letters == 0 && q.IsDeadLetters {
					continue
				}
				letters := "-"
				if q.DeadLetters != "" {
					letters = strconv.Itoa(q.Letters)
					if q.DeadLetters != q.Name+".dlq" { // that of several lanes
						letters += " in " + q.DeadLetters
					}
				}
				row := []string{q.Name, strconv.Itoa(q.Ready), strconv.Itoa(q.Unacked), strconv.Itoa(q.Waiting), letters, strconv.Itoa(q.Consumers), ago(q.Oldest)}
				if a.format == "wide" {
					row = append(row, q.Type, orDash(q.State), fmt.Sprintf("%.1f", q.PublishRate), fmt.Sprintf("%.1f", q.DeliverRate))
				}
				rows = append(rows, row)
			}
			headings := []string{"QUEUE", "READY", "IN HAND", "WAITING", "LETTERS", "CONSUMERS", "OLDEST"}
			if a.format == "wide" {
				headings = append(headings, "TYPE", "STATE", "IN/S", "OUT/S")
			}
			table(a.out, headings, rows)
			a.taken(queues)
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "empty dead-letter queues too")
	return c
}

// taken says below a table of queues how old its numbers are.
func (a *app) taken(queues []desk.Queue) {
	if len(queues) > 0 {
		fmt.Fprintf(a.err, "taken at %s from the management API, whose numbers lag by up to 10 s\n", queues[0].At.Local().Format(time.TimeOnly))
	}
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Connect, and say in words what is wrong",
		Long: `Doctor connects as a program would, and looks at URL, TLS, login, permissions, version,
alarms, queues and policies. It changes nothing. Exit codes: 0 all is well, 1
something is wrong, 3 there are warnings.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := a.connectionConfig()
			if err != nil {
				return err
			}
			findings := desk.Examine(c.Context(), cfg)
			worst := desk.Good
			for i, f := range findings {
				findings[i].Says = a.rename(f.Says)
				if f.Level == desk.Wrong || f.Level == desk.Warning && worst != desk.Wrong {
					worst = f.Level
				}
			}
			if a.format == "json" {
				if err := a.json(findings); err != nil {
					return err
				}
			} else {
				for _, f := range findings {
					fmt.Fprintf(a.out, "%-8s %-12s %s\n", f.Level, f.About, plain(f.Says))
					if f.Advice != "" {
						fmt.Fprintf(a.out, "%-8s %-12s -> %s\n", "", "", plain(f.Advice))
					}
				}
			}
			switch worst {
			case desk.Wrong:
				return &exit{exitFailed, errors.New("something is wrong")}
			case desk.Warning:
				return &exit{code: exitPartly}
			}
			return nil
		},
	}
}
