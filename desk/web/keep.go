package web

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rehop/rehop/desk"
)

// keeping is what a keeper does with letters.
type keeping struct {
	Do, Title, Verb, Text string
	do                    func(desk.Keeper, context.Context, desk.Filter, desk.By) (int, error)
}

var keepings = []keeping{
	{"park", "Park", "parked", "Parked letters stay, marked as set aside, until somebody sends or releases them.", desk.Keeper.Park},
	{"archive", "Archive", "archived", "Archived letters are kept for the record. Lists leave them out unless their state is asked for.", desk.Keeper.Archive},
	{"release", "Release", "released", "The forwarder of a service publishes released letters, each to where it was published first. To send letters from here, go back and send them.", desk.Keeper.Release},
}

type keepData struct {
	placeView
	List desk.List
	Keep keeping
	IDs  string // of the letters that the button is about; empty: it is about all that match, or the conditions name each
	N    int    // letters that it is about; 0: nobody knows
}

// maxNamed is how many letters a form names one by one. Their numbers fit into maxForm.
const maxNamed = 4000

func (r *request) keeping() (keeping, error) {
	for _, k := range keepings {
		if k.Do == r.form.Get("do") {
			return k, nil
		}
	}
	return keeping{}, errNoPage
}

func (h *Handler) askKeep(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	k, err := r.keeping()
	if err == nil {
		err = r.picked()
	}
	if err != nil {
		return err
	}
	source, p, f, list, err := r.some(10)
	if err != nil {
		return err
	}
	d := keepData{placeView: placeViewOf(h, "keep", source, p, r.form), List: list, Keep: k}
	d.endSpans(f)
	d.nameGroup(r, source, f, list.Letters)
	if err := d.name(r, source, f); err != nil {
		return err
	}
	return r.show("keep", view{Title: k.Title, Nav: "place", Events: p.events(), Data: d})
}

// name names the letters that the button is about, so that none that comes later is among them.
func (d *keepData) name(r *request, source desk.Source, f desk.Filter) error {
	if len(f.IDs) > 0 {
		d.N = d.List.Matched
		return nil
	}
	if d.List.More || d.List.Matched > maxNamed {
		return nil
	}
	var ids []string
	_, behind, err := r.firstOf(source, f, maxNamed, func(l desk.Letter) { ids = append(ids, l.ID) })
	if err != nil || behind > 0 || len(ids) > maxNamed {
		return err
	}
	d.IDs, d.N = strings.Join(ids, ","), len(ids)
	return nil
}

func (h *Handler) keep(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	k, err := r.keeping()
	if err != nil {
		return err
	}
	p := placeOf(r.form)
	source, release, err := h.source(p)
	if err != nil {
		return err
	}
	defer release()
	keeper, ok := source.(desk.Keeper)
	if !ok {
		return fmt.Errorf("%w: %s keeps no letters for later", errForm, p)
	}
	f, err := filterOf(r.form, time.Now())
	if err != nil {
		return err
	}
	if ids := r.form.Get("ids"); ids != "" {
		if f.IDs != nil {
			return fmt.Errorf("%w: ids and id are given, want one of them", errForm)
		}
		f.IDs = strings.Split(ids, ",")
	}
	if f.IsZero() {
		return fmt.Errorf("%w: choose letters first", errForm)
	}
	by, n := r.by(), 0
	ended, err := h.redrives.do(func(ctx context.Context) (err error) {
		n, err = k.do(keeper, ctx, f, by)
		return err
	})
	switch {
	case err != nil:
		return err
	case !ended:
		return r.redirect("audit", nil, "They are many: the audit will say how many were "+k.Verb+".")
	}
	return r.redirect("groups", p.values(), letters(n)+" "+k.Verb+".")
}
