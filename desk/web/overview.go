package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/desk"
)

// maxRows is how many rows a table of the overview has: more are not read by a person, and not
// made every two seconds for each open page.
const maxRows = 200

// few is how many places are seen at a glance, without a filter.
const few = 8

// overviewData is what the overview shows.
type overviewData struct {
	Now       snapshot
	Sort      string // by which the rows are sorted
	WorkSort  string // by which the work queues are sorted
	Name      string // that the names contain
	Rows      []row  // places with letters or with a fault, up to maxRows
	Full      int    // how many there are
	Empty     []depth
	EmptyAll  int
	Work      []desk.Queue
	WorkAll   int
	Drawn     map[string]bool // those of Work that have a drawing
	Unlooked  bool            // a look would tell more of one of Rows
	Unwatched int             // of Full: their growth is not known
	Scale     scale           // of all plots
	Columns   []column[row]
	Works     []column[desk.Queue]
	Redrives  []desk.Progress
	ErrOf     string // of the journal
	HasFilter bool   // there are more places than a few
}

// row is a place with letters.
type row struct {
	depth
	Look lastLook
}

// Oldest is the earliest failure that is known: in a kept look, or of the first letter of a store.
func (r row) Oldest() time.Time {
	if r.Place.Queue == "" {
		return r.depth.Oldest
	}
	return r.Look.Oldest
}

// Grew is how many letters more there are than at the beginning of the plot.
func (r row) Grew() int {
	if len(r.Plot) == 0 {
		return 0
	}
	return r.Plot[len(r.Plot)-1].N - r.Plot[0].N
}

// Unlooked reports whether a look would tell more of the letters of the place.
func (r row) Unlooked() bool {
	return r.Place.Queue != "" && r.Err == nil && r.Refusal == "" && r.Look.Seen.At.IsZero()
}

// ReasonPage is the address of the letters that failed for the top reason.
func (r row) ReasonPage() string { return address("letters", r.Place, nil, "group", r.Look.Group) }

// needs says how much a place needs a person, less for more: it cannot be counted, its letters
// wait for a person, or a collector takes them.
func (r row) needs() int {
	switch {
	case r.Err != nil:
		return 0
	case r.Consumers == 0:
		return 1
	}
	return 2
}

// byNeed sorts the place first that needs a person most.
func byNeed(a, b row) int {
	return cmp.Or(a.needs()-b.needs(), b.Grew()-a.Grew(), b.Letters-a.Letters, byName(a, b))
}

func byName(a, b row) int { return cmp.Compare(a.Place.String(), b.Place.String()) }

// column is a heading of a table or a list, by which its rows can be sorted.
type column[T any] struct {
	Sort, Title string
	Falling     bool // the largest value comes first
	less        func(a, b T) int
}

// columns are in the order of the table. Of equal rows the one comes first that needs a person more.
var columns = []column[row]{
	{"name", "Queue or store", false, byName},
	{"letters", "Letters", true, func(a, b row) int { return b.Letters - a.Letters }},
	{"growth", "Growth", true, func(a, b row) int { return b.Grew() - a.Grew() }},
	{"oldest", "Oldest failure", false, func(a, b row) int {
		return cmp.Or(unknownLast(a.Oldest().IsZero(), b.Oldest().IsZero()), a.Oldest().Compare(b.Oldest()))
	}},
	{"reason", "Top reason", false, func(a, b row) int {
		return cmp.Or(unknownLast(a.Look.Reason == "", b.Look.Reason == ""), cmp.Compare(a.Look.Reason, b.Look.Reason))
	}},
	{"look", "Last look", false, func(a, b row) int { return a.Look.Seen.At.Compare(b.Look.Seen.At) }},
	{"collector", "Collector", false, func(a, b row) int {
		return cmp.Or(unknownLast(a.Place.Queue == "", b.Place.Queue == ""), a.Consumers-b.Consumers)
	}},
}

// workColumns are those of the work queues. Of equal rows the one comes first whose name does.
var workColumns = []column[desk.Queue]{
	{"name", "Queue", false, func(a, b desk.Queue) int { return cmp.Compare(a.Name, b.Name) }},
	{"ready", "Ready", true, func(a, b desk.Queue) int { return b.Ready - a.Ready }},
	{"unacked", "In hand", true, func(a, b desk.Queue) int { return b.Unacked - a.Unacked }},
	{"waiting", "Waiting", true, func(a, b desk.Queue) int { return b.Waiting - a.Waiting }},
	{"letters", "Letters", true, func(a, b desk.Queue) int { return b.Letters - a.Letters }},
	{"consumers", "Consumers", true, func(a, b desk.Queue) int { return b.Consumers - a.Consumers }},
	{"state", "State", false, func(a, b desk.Queue) int {
		return cmp.Or(unknownLast(a.State == "", b.State == ""), cmp.Compare(a.State, b.State))
	}},
}

func unknownLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// sortRows sorts by the column that a field of an address names, and leaves equal rows in their
// order. The names of kept stand for the order that the rows have.
func sortRows[T any](rows []T, columns []column[T], field, by string, kept ...string) error {
	names := kept
	for _, c := range columns {
		if c.Sort == by {
			slices.SortStableFunc(rows, c.less)
			return nil
		}
		names = append(names, c.Sort)
	}
	if !slices.Contains(kept, by) {
		return fmt.Errorf("%w: %s is %.40q, want one of %s", errForm, field, by, strings.Join(names, ", "))
	}
	return nil
}

func (h *Handler) overviewData(form url.Values) (overviewData, error) {
	o := overviewData{Now: h.snapshot(), Sort: cmp.Or(form.Get("sort"), "need"), WorkSort: cmp.Or(form.Get("queues"), "name"), Name: strings.TrimSpace(form.Get("name")), Columns: columns, Works: workColumns}
	o.HasFilter = len(o.Now.Letters) > few || len(o.Now.Work) > few || o.Name != ""
	looks := h.places.lastLooks()
	for _, d := range o.Now.Letters {
		switch {
		case !o.chosen(h.cfg.named(d.Place.String())):
		case d.Letters > 0 || d.Err != nil:
			o.Rows = append(o.Rows, row{d, looks[d.Place.Queue]})
			if d.Err == nil && len(d.Plot) == 0 {
				o.Unwatched++
			}
		default:
			o.Empty = append(o.Empty, d)
		}
	}
	slices.SortFunc(o.Rows, byNeed)
	if err := sortRows(o.Rows, columns, "sort", o.Sort, "need"); err != nil {
		return o, err
	}
	for _, q := range o.Now.Work {
		if o.chosen(q.Name) {
			o.Work = append(o.Work, q)
		}
	}
	slices.SortFunc(o.Work, workColumns[0].less)
	if err := sortRows(o.Work, workColumns, "queues", o.WorkSort); err != nil {
		return o, err
	}
	o.Full, o.EmptyAll, o.WorkAll = len(o.Rows), len(o.Empty), len(o.Work)
	o.Rows, o.Empty, o.Work = o.Rows[:min(o.Full, maxRows)], o.Empty[:min(o.EmptyAll, maxRows)], o.Work[:min(o.WorkAll, maxRows)]
	o.Unlooked = slices.ContainsFunc(o.Rows, row.Unlooked)
	o.Scale, o.Drawn = scaleOf(o.Rows), h.areDrawn(o.Work)
	var err error
	if o.Redrives, err = h.latestRedrives(5); err != nil {
		o.ErrOf = err.Error()
	}
	return o, nil
}

// chosen reports whether the filter selects a name.
func (o overviewData) chosen(name string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(o.Name))
}

// values returns the query of the address of the overview as it is shown.
func (o overviewData) values() url.Values {
	v := url.Values{}
	if o.Name != "" {
		v.Set("name", o.Name)
	}
	if o.Sort != "need" {
		v.Set("sort", o.Sort)
	}
	if o.WorkSort != "name" {
		v.Set("queues", o.WorkSort)
	}
	return v
}

// By is the address of the same rows in another order.
func (o overviewData) By(sort string) string {
	o.Sort = sort
	return o.address()
}

// WorkBy is the address of the same work queues in another order.
func (o overviewData) WorkBy(sort string) string {
	o.WorkSort = sort
	return o.address()
}

func (o overviewData) address() string {
	if v := o.values(); len(v) > 0 {
		return "./?" + v.Encode()
	}
	return "./"
}

func (h *Handler) overview(r *request) error {
	o, err := h.overviewData(r.form)
	if err != nil {
		return err
	}
	events := o.values()
	events.Set("view", "overview")
	return r.show("overview", view{Title: "Overview", Nav: "overview", Events: "events?" + events.Encode(), Data: o})
}
