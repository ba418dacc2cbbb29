package web

import (
	"cmp"
	"net/url"
	"slices"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
	"github.com/rehop/rehop/internal/ctl"
)

// depthOf is what is known of the depth of a place.
func (h *Handler) depthOf(p place) depth {
	for _, d := range h.snapshot().Letters {
		if d.Place == p {
			return d
		}
	}
	return depth{Place: p}
}

// placeView is what pages about the letters of a place share.
type placeView struct {
	Place  place
	About  desk.About
	Depth  depth
	Values url.Values // the conditions
	Chips  []chip
	Page   string // the page itself
	Sort   string // that its address names
	Hidden []hiddenField
	Drawn  drawn
}

type hiddenField struct{ Name, Value string }

func placeViewOf(h *Handler, page string, source desk.Source, p place, form url.Values) placeView {
	v := placeView{Place: p, About: source.About(), Depth: h.depthOf(p), Values: onlyFilter(form), Page: page, Sort: form.Get("sort")}
	v.Chips = chipsOf(page, p, form)
	_, v.Drawn = h.drawing(p)
	all := p.values()
	for name, values := range v.Values {
		all[name] = values
	}
	for name, values := range all {
		for _, value := range values {
			v.Hidden = append(v.Hidden, hiddenField{name, value})
		}
	}
	return v
}

// nameGroup makes the condition of a group show what its letters have in common. shown are those of the page.
func (v *placeView) nameGroup(r *request, source desk.Source, f desk.Filter, shown []desk.Letter) {
	at := slices.IndexFunc(v.Chips, func(c chip) bool { return c.Label == "group" })
	if at < 0 {
		return
	}
	if len(shown) == 0 { // other conditions may leave them out
		list, _ := source.List(r.ctx, desk.Filter{Fingerprint: f.Fingerprint, States: f.States}, desk.Page{Limit: 1})
		shown = list.Letters
	}
	v.Chips[at].Value = "none here"
	if len(shown) > 0 {
		v.Chips[at].Value = cmp.Or(said.Group(shown[0].Error), "no error text")
	}
}

// endSpans ends the spans of a form when its page is shown, and not when the form is sent: else it is
// about other letters.
func (v placeView) endSpans(f desk.Filter) {
	for i, field := range v.Hidden {
		switch field.Name {
		case "newer":
			v.Hidden[i].Value = exactly(f.From)
		case "older":
			v.Hidden[i].Value = exactly(f.Before)
		}
	}
}

// View is what the parts of a page share.
func (v placeView) View() placeView { return v }

// Behind is the command after which the letters that a look has not reached can be seen, too; empty: the
// look has reached all.
func (v placeView) Behind(s desk.Seen) string {
	if !v.About.Live || s.Seen >= s.Total {
		return ""
	}
	return "rehop dlq collect " + ctl.Quote(v.Place.Queue) + " --store letters.db"
}

// Link is the address of a page for the same letters.
func (v placeView) Link(page string, more ...string) string {
	return address(page, v.Place, v.Values, more...)
}

// Self is the address of the page itself.
func (v placeView) Self() string { return v.By(v.Sort) }

// By is the address of the page in another order; empty: its own.
func (v placeView) By(sort string) string { return v.Link(v.Page, "sort", sort) }

// First is the first value of a condition.
func (v placeView) First(name string) string { return v.Values.Get(name) }

func (p place) events() string {
	v := p.values()
	v.Set("view", "place")
	return "events?" + v.Encode()
}
