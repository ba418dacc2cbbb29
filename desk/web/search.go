package web

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop/desk"
)

type searchData struct {
	Text     string
	Found    []foundIn
	Unlooked []depth // queues with letters that nobody has looked into
}

// foundIn is what a search has found in a place.
type foundIn struct {
	Place place
	List  desk.List
	Rows  []shownRow
	Err   string
	All   string // address

	Aside     string // letters that fit and do not wait for a person
	AsidePage string // address
}

// search looks for a text, or a message id, in all stores and in the last looks of
// this desk. It names the queues that it did not search.
func (h *Handler) search(r *request) error {
	d := searchData{Text: strings.TrimSpace(r.form.Get("text"))}
	if d.Text != "" {
		for _, depth := range h.snapshot().Letters {
			if p := depth.Place; p.Queue == "" || h.isOpen(p.Queue) {
				found, err := h.searchIn(r.ctx, p, d.Text)
				if !errors.Is(err, desk.ErrNotLooked) {
					d.Found = append(d.Found, found)
					continue
				}
			}
			if depth.Letters > 0 || depth.Err != nil {
				d.Unlooked = append(d.Unlooked, depth)
			}
		}
	}
	return r.show("search", view{Title: "Search", Nav: "search", Data: d})
}

func (h *Handler) isOpen(queue string) bool {
	h.places.mu.Lock()
	defer h.places.mu.Unlock()
	for _, o := range h.places.open {
		if o.queue == queue {
			return true
		}
	}
	return false
}

// searchTime bounds the search in one place.
const searchTime = 8 * time.Second

func (h *Handler) searchIn(ctx context.Context, p place, text string) (foundIn, error) {
	found := foundIn{Place: p, All: address("letters", p, nil, "text", text)}
	source, release, err := h.source(p)
	if err != nil {
		found.Err = err.Error()
		return found, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	// By message id first: a store has an index of them.
	list, err := source.List(ctx, desk.Filter{MessageIDs: []string{text}}, desk.Page{Limit: 10})
	by := "mid"
	if err == nil && len(list.Letters) == 0 {
		aside := list.Aside
		if list, err = source.List(ctx, desk.Filter{Text: text}, desk.Page{Limit: 10}); len(list.Letters) > 0 || aside == "" {
			by = "text"
		} else {
			list.Aside = aside // the text may be in none of these
		}
	}
	if by == "mid" && len(list.Letters) > 0 {
		found.All = address("letters", p, nil, by, text)
	}
	if err != nil {
		found.Err = problemOf(err).Head + ": " + err.Error()
		return found, err
	}
	if found.List = list; len(list.Letters) == 0 && list.Next > 0 {
		found.All = address("letters", p, nil, "text", text, "after", strconv.FormatInt(list.Next, 10))
	}
	if list.Aside != "" {
		found.Aside, found.AsidePage = list.Aside, address("letters", p, url.Values{"state": {"archived", "ready"}}, by, text)
		found.List.Aside = "" // is said here
	}
	for _, l := range list.Letters {
		found.Rows = append(found.Rows, shownRow{l, address("letter", p, nil, "id", l.ID)})
	}
	return found, nil
}
