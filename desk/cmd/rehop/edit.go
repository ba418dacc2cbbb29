package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
	reads "github.com/rehop/rehop/desk/internal/typed"
	"github.com/rehop/rehop/desk/internal/whereto"
)

func (a *app) editCommand() *cobra.Command {
	var p place
	var body, contentType, key, to string
	var set, remove []string
	var sendToo bool
	c := &cobra.Command{
		Use:   "edit [QUEUE] ID",
		Short: "Change one letter and send it",
		Long: `Edit changes the body or headers of one message and sends it back. The original is
written to a file of the journal first, and the command that puts it back is printed. A
collected letter is changed where it is, and the original is kept in the journal;
--send sends it too. Edit shows what changes, and asks if there is a terminal.
ID is the one that list shows, or the message id of the logs if only one letter has it.`,
		Example: `  rehop dlq edit orders.dlq 8d71590e81c72837a5 --body fixed.json
  rehop dlq edit --store letters.db 4711 --header tenant=acme --remove-header debug --send`,
		Args: args(cobra.RangeArgs(1, 2)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) error {
			e := desk.Edit{Remove: remove}
			if body != "" {
				text, err := readAll(a.in, body)
				if err != nil {
					return usage(ofFlag("--body", err))
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
				if err := reads.Name(name); err != nil { // before a letter is looked for
					return usage(ofFlag("--header", err))
				}
				if e.Set == nil {
					e.Set = map[string]string{}
				}
				e.Set[name] = value
			}
			for _, name := range remove {
				if err := reads.Name(name); err != nil {
					return usage(ofFlag("--remove-header", err))
				}
			}
			if e.Body == nil && e.ContentType == nil && e.RoutingKey == nil && e.Set == nil && e.Remove == nil {
				return usage(errors.New("what is to be changed? Give --body, --header, --remove-header, --content-type or --key"))
			}
			if p.store != "" && to != "" && !sendToo {
				return usage(errors.New("--to is for --send: without it a collected letter is changed and not sent"))
			}
			p.use = changes
			source, rest, err := a.open(c.Context(), p, rest, sendToo)
			if err != nil {
				return err
			}
			if len(rest) != 1 {
				return usage(errors.New("which letter? Give its id"))
			}
			r := desk.Redrive{Action: desk.Send, Limit: 1, By: a.by()}
			if r.To, err = whereto.Read(to); err != nil {
				return usage(fmt.Errorf("--to %w", err))
			}
			l, err := letterOf(c, source, rest[0])
			if err != nil {
				return err
			}
			r.Filter.IDs = []string{l.ID}
			if e.Body != nil {
				if err := reads.Body(l.Publishing.Body, *e.Body, *cmp.Or(e.ContentType, &l.Publishing.ContentType)); err != nil {
					return usage(ofFlag("--body", err))
				}
			}
			a.changes(l, e)
			keeper, keeps := source.(desk.Keeper)
			if a.inTTY {
				what := "Send the changed message of"
				if keeps {
					what = "Change"
				}
				if err := a.confirmed("%s 1 letter of %s (%s)", what, source.About().Name, r.Filter); err != nil {
					return err
				}
			}
			if keeps {
				if err := keeper.Edit(c.Context(), l.ID, e, a.by()); err != nil || !sendToo {
					return err
				}
			} else {
				r.Edit = &e
			}
			progress, err := source.Execute(c.Context(), r, nil)
			return a.result(progress, err)
		},
	}
	p.flags(c)
	c.Flags().StringVar(&body, "body", "", "file with the new body; - for the standard input")
	c.Flags().StringArrayVar(&set, "header", nil, "name=value of a header to set; may be given several times")
	c.Flags().StringArrayVar(&remove, "remove-header", nil, "name of a header to remove; may be given several times")
	c.Flags().StringVar(&contentType, "content-type", "", "new content type")
	c.Flags().StringVar(&key, "key", "", "new routing key, as the handler sees it")
	c.Flags().StringVar(&to, "to", "", "send there instead: a queue, exchange/key, or /queue if its name has a slash")
	c.Flags().BoolVar(&sendToo, "send", false, "of a collected letter: send it too")
	c.Flags().StringVar(&a.why, "why", "", "reason, for the audit")
	return c
}

// changes shows what an edit changes.
func (a *app) changes(l desk.Letter, e desk.Edit) {
	if e.Body != nil && !bytes.Equal(*e.Body, l.Publishing.Body) {
		for _, line := range said.Lines(wholeBody(l.Publishing.Body), wholeBody(*e.Body), "the body differs in white space") {
			fmt.Fprintf(a.err, "%s %s\n", line.Mark, strings.TrimPrefix(line.Text, "  "))
		}
	}
	change := func(name, was, is string) {
		if was != is {
			fmt.Fprintf(a.err, "%s: %s -> %s\n", plain(name), plain(cmp.Or(was, "none")), plain(cmp.Or(is, "none")))
		}
	}
	if e.ContentType != nil {
		change("content type", l.Publishing.ContentType, *e.ContentType)
	}
	if e.RoutingKey != nil {
		change("routing key", l.RoutingKey, *e.RoutingKey)
	}
	header := func(name string) string {
		if v, is := l.Publishing.Headers[name]; is {
			return headerText(v)
		}
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(e.Set)) {
		change("header "+name, header(name), e.Set[name])
	}
	for _, name := range e.Remove {
		if _, set := e.Set[name]; !set {
			change("header "+name, header(name), "")
		}
	}
}

func readAll(in io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(name)
}
