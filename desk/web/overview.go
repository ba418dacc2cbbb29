package web

import (
	"github.com/rehop/rehop/desk"
)

// overviewData is what the overview shows.
type overviewData struct {
	Now      snapshot
	Full     []depth // places with letters
	Empty    []depth
	Redrives []desk.Progress
	ErrOf    string // of the journal
}

func (h *Handler) overviewData() overviewData {
	o := overviewData{Now: h.snapshot()}
	for _, d := range o.Now.Letters {
		if d.Letters > 0 || d.Err != nil {
			o.Full = append(o.Full, d)
		} else {
			o.Empty = append(o.Empty, d)
		}
	}
	var err error
	if o.Redrives, err = h.latestRedrives(5); err != nil {
		o.ErrOf = err.Error()
	}
	return o
}

func (h *Handler) overview(r *request) error {
	return r.show("overview", view{Title: "Overview", Nav: "overview", Events: "events?view=overview", Data: h.overviewData()})
}
