package web

import (
	"cmp"
	"context"
	"time"

	"github.com/rehop/rehop/desk"
)

type groupsData struct {
	placeView
	Seen   desk.Seen
	Groups []shownGroup
	Span   string
	Sum    int
	More   bool // there are more than Sum
	Large  int  // letters of the largest group
	Orders []column[desk.Group]
	Order  string // that they are in
}

type shownGroup struct {
	desk.Group
	Trend []int
	// TrendMore is set if letters were not counted.
	TrendMore bool

	Letters string // addresses
	Send    string
	Keep    string
	Export  []hiddenField
}

// groupOrders are the orders of groups. Of groups that are equal the one with more letters comes
// first, as in the answer of a source.
var groupOrders = []column[desk.Group]{
	{"letters", "letters", true, func(a, b desk.Group) int { return b.Count - a.Count }},
	{"last", "last failure", true, func(a, b desk.Group) int { return b.Last.Compare(a.Last) }},
	{"first", "first failure", true, func(a, b desk.Group) int { return b.First.Compare(a.First) }},
}

// trendParts is how many parts of a time a trend has.
const trendParts = 24

// maxTrends is how many groups have a trend: each is a question of its own.
const maxTrends = 12

func (h *Handler) groups(r *request) error {
	source, p, err := r.source()
	if err != nil {
		return err
	}
	now := time.Now()
	f, err := filterOf(r.form, now)
	if err != nil {
		return err
	}
	found, err := source.Groups(r.ctx, f)
	if err != nil {
		return err
	}
	d := groupsData{placeView: placeViewOf(h, "groups", source, p, r.form), Seen: found.Seen}
	var shown []desk.Letter
	for _, g := range found.Groups {
		shown = append(shown, g.Example)
	}
	d.nameGroup(r, source, f, shown)
	first := now
	for i, g := range found.Groups {
		if g.Last.Before(g.First) { // a store tells those that were stored first and last
			g.First, g.Last = g.Last, g.First
			found.Groups[i] = g
		}
		if !g.First.IsZero() && g.First.Before(first) {
			first = g.First
		}
		d.Sum += g.Count
		d.More = d.More || g.More || found.Bound != "" && !d.About.Live
		d.Large = max(d.Large, g.Count)
	}
	d.Orders, d.Order = groupOrders, cmp.Or(d.Sort, "letters")
	if err := sortRows(found.Groups, groupOrders, "sort", d.Order); err != nil {
		return err
	}
	var length time.Duration
	length, d.Span = spanOf(first, now)
	trends, cancel := context.WithTimeout(r.ctx, trendTime)
	defer cancel()
	for i, g := range found.Groups {
		one := shownGroup{Group: g}
		if g.Fingerprint != "" {
			one.Letters = address("letters", p, d.Values, "group", g.Fingerprint)
			one.Send = address("send", p, d.Values, "group", g.Fingerprint)
			one.Keep = address("keep", p, d.Values, "group", g.Fingerprint)
			if i < maxTrends && trends.Err() == nil {
				of := f
				of.Fingerprint = g.Fingerprint
				if counts, more, err := source.Trend(trends, of, now.Add(-length), now.Add(time.Second), trendParts); err == nil {
					one.Trend, one.TrendMore = counts, more // without it the page says the rest
				}
			}
		}
		d.Groups = append(d.Groups, one)
	}
	return r.show("groups", view{Title: "Groups of " + h.cfg.named(p.String()), Nav: "place", Events: p.events(), Data: d})
}

// trendTime bounds the questions for trends of a page. What takes longer is left out.
const trendTime = 150 * time.Millisecond
