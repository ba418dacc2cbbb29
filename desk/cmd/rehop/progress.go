package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
	"github.com/rehop/rehop/store"
)

// watch returns what shows the progress of a redrive: a bar where somebody watches,
// else a line now and then.
func (a *app) watch() (tell func(desk.Progress), end func()) {
	last, note := time.Time{}, ""
	moved, done := time.Now(), 0
	every := 10 * time.Second
	if a.errTTY {
		every = 100 * time.Millisecond
	}
	wipe := ""
	if a.errTTY {
		wipe = "\r\x1b[K"
	}
	tell = func(p desk.Progress) {
		if !p.Ended() && p.Note != "" && p.Note != note {
			note = p.Note
			fmt.Fprintf(a.err, "%swarning: %s\n", wipe, plain(note))
			return
		}
		if !p.Ended() && time.Since(last) < every {
			return
		}
		last = time.Now()
		pace := ""                     // none while the redrive waits, such as for its canary
		done = max(done, p.DoneBefore) // an earlier process has done these
		if p.Done > done {
			pace = fmt.Sprintf(", %.1f per second", float64(p.Done-done)/max(last.Sub(moved).Seconds(), 0.001))
			moved, done = last, p.Done
		}
		if !a.errTTY {
			if !p.Ended() {
				fmt.Fprintf(a.err, "%s%s\n", p, pace)
			}
			return
		}
		total, about := p.Total()
		const width = 30
		full := min(width*(p.Done+p.Failed+p.Skipped)/max(total, 1), width)
		fmt.Fprintf(a.err, "\r[%s%s] %d of %s%s\x1b[K", strings.Repeat("#", full), strings.Repeat(".", width-full), p.Done, strings.TrimSpace(about+" "+strconv.Itoa(total)), pace)
	}
	end = func() {
		fmt.Fprint(a.err, wipe)
	}
	return tell, end
}

// copies says where the copies of a redrive are, and how they go back.
func (a *app) copies(p desk.Progress) {
	switch r := p.Redrive; {
	case p.Done == 0 || r.Action != desk.Drop && (r.Edit == nil || r.CopyTo == ""):
	case !p.Importable():
		fmt.Fprintf(a.err, "copies are in %s, and letters of the file may still be in their place\n", plain(r.CopyTo))
	case r.Edit != nil:
		fmt.Fprintf(a.err, "the original is in %s; it goes back as a letter with: %s\n", plain(r.CopyTo), plain(said.Import(r.Source, r.CopyTo)))
	case r.Action == desk.Drop:
		fmt.Fprintf(a.err, "copies are in %s; all letters of the file go back with: %s\n", plain(r.CopyTo), plain(said.Import(r.Source, r.CopyTo)))
	}
}

// result prints how a redrive ended, and returns its exit code as an error.
func (a *app) result(p desk.Progress, err error) error {
	if p.Redrive.ID == "" { // it has not begun
		if rehop.ClassOf(err) == rehop.ClassBug {
			return usage(err) // such as a rate that is out of bounds
		}
		return err
	}
	if a.format == "json" {
		if err := a.json(progressFor(p)); err != nil {
			return err
		}
	} else {
		shown := p
		if err != nil {
			shown.Error = "" // it is told as the error of the command
		}
		fmt.Fprintf(a.out, "redrive %s %s\n", p.Redrive.ID, plain(said.Text(fields.Replace(shown.String()))))
		a.copies(p)
	}
	switch {
	case errors.Is(err, store.ErrCanary):
		return &exit{exitStopped, err}
	case errors.Is(err, desk.ErrRedriveStopped):
		return &exit{exitStopped, fmt.Errorf("stopped; go on with: rehop redrives resume %s", p.Redrive.ID)}
	case err != nil && p.Matched == 0: // such as a queue that does not exist: there is nothing to go on with
		return &exit{exitFailed, err}
	case err != nil:
		return &exit{exitFailed, fmt.Errorf("%w; go on with: rehop redrives resume %s", err, p.Redrive.ID)}
	case p.Failed > 0:
		return &exit{exitPartly, fmt.Errorf("%s failed and stayed; try again with: rehop redrives resume %s", letterCount(p.Failed), p.Redrive.ID)}
	case p.MaybeSent > 0:
		again := "rehop redrives resume " + p.Redrive.ID
		done, has := "sent", "the receiver"
		if p.Redrive.Action == desk.Drop {
			done, has = "copied", p.Redrive.CopyTo
		}
		not := ": " + again + " --maybe-sent again"
		if limit := p.Redrive.Limit; limit > 0 && p.Done >= limit {
			not = fmt.Sprintf(", another redrive takes them: this one is about no more than %s", letterCount(limit))
		}
		return &exit{exitPartly, fmt.Errorf("%s stayed and may have been %s; if %s has them: %s --maybe-sent delete; if it has not%s", letterCount(p.MaybeSent), done, has, again, not)}
	case p.Skipped > 0:
		return &exit{code: exitPartly}
	case p.Matched == 0:
		return &exit{exitNothing, errors.New(p.Note)} // that no letter matched
	}
	return nil
}
