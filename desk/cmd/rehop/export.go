package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rehop/rehop/desk"
)

func (a *app) exportCommand() *cobra.Command {
	var p place
	var f filter
	var file string
	var limit int
	c := &cobra.Command{
		Use:   "export [QUEUE]",
		Short: "Write letters as lines of JSON; they stay where they are",
		Long: `Export writes all letters that the flags select, or the first of them with --limit. If
they are in a queue and one look does not reach them all, it writes none and ends with
code 3: collect them into a store and export that, or give --limit. The file has its
name when it is whole. Until then, and if the export fails, .part is behind the name.
Letters of a store that are archived, or ready to be published, are written if --state
selects them. Export says how many it has left out.`,
		Example: `  rehop dlq export orders.dlq --file letters.jsonl
  rehop dlq export --store letters.db --cause exhausted | jq .error`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.queueNames,
		RunE: func(c *cobra.Command, rest []string) (err error) {
			source, err := a.openFor(c.Context(), p, &f, rest, false)
			if err != nil {
				return err
			}
			out, keep := a.out, func(error) error { return nil }
			if file != "" && file != "-" {
				opened, err := newFile(file)
				if err != nil {
					return ofFlag("--file", err)
				}
				out, keep = opened, opened.keep
			}
			which := f.read()
			n, err := source.Export(c.Context(), which, limit, out, a.by())
			fmt.Fprintf(a.err, "%s written\n", letterCount(n))
			err = errors.Join(err, keep(err))
			if err == nil && !source.About().Live && limit == 0 {
				list, unknown := source.List(c.Context(), which, desk.Page{Limit: 1})
				if unknown != nil { // the file is whole all the same
					fmt.Fprintf(a.err, "nobody knows how many letters of other states were left out: %v\n", unknown)
				}
				a.aside(list.Seen)
			}
			if errors.Is(err, desk.ErrNotWhole) {
				return &exit{exitPartly, err}
			}
			return cmp.Or(err, noneOf(n, "letter", ""))
		},
	}
	p.flags(c)
	f.flags(c)
	c.Flags().IntVar(&limit, "limit", 0, "letters to write, at most; all if not given")
	c.Flags().StringVar(&file, "file", "", "a new file; the standard output if not given")
	return c
}

// wholeFile is a file that has its name when it is whole.
type wholeFile struct {
	*os.File
	name string
}

// newFile makes a file that does not exist.
func newFile(name string) (*wholeFile, error) {
	if _, err := os.Lstat(name); err == nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrExist}
	}
	f, err := os.OpenFile(name+".part", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return &wholeFile{f, name}, err
}

// keep closes the file. If failed is nil it gets its name, and if nothing was written it is
// removed. An error says where the part is that was written.
func (f *wholeFile) keep(failed error) error {
	size, err := f.Seek(0, io.SeekCurrent)
	err = errors.Join(err, f.Close())
	switch {
	case failed == nil && err == nil:
		return os.Rename(f.Name(), f.name)
	case err == nil && size == 0:
		return os.Remove(f.Name())
	}
	return errors.Join(err, fmt.Errorf("%s is not whole", f.Name()))
}
