package web

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop/desk"
)

type searchData struct {
	Text  string
	Found []foundIn
}

// foundIn is what a search has found in a place.
type foundIn struct {
	Place place
	List  desk.List
	Rows  []shownRow
	Err   string
	All   string // address
}

// search looks for a text, or a message id, in all stores and in the last looks of
// this desk.
func (h *Handler) search(r *request) error {
	d := searchData{Text: strings.TrimSpace(r.form.Get("text"))}
	if d.Text != "" {
		for _, depth := range h.snapshot().Letters {
			p := depth.Place
			if p.Queue != "" && !h.isOpen(p.Queue) {
				continue
			}
			d.Found = append(d.Found, h.searchIn(r.ctx, p, d.Text))
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

func (h *Handler) searchIn(ctx context.Context, p place, text string) foundIn {
	found := foundIn{Place: p, All: address("letters", p, nil, "text", text)}
	source, release, err := h.source(p)
	if err != nil {
		found.Err = err.Error()
		return found
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	// By message id first: a store has an index of them.
	list, err := source.List(ctx, desk.Filter{MessageIDs: []string{text}}, desk.Page{Limit: 10})
	if err == nil && len(list.Letters) == 0 {
		list, err = source.List(ctx, desk.Filter{Text: text}, desk.Page{Limit: 10})
	} else if err == nil {
		found.All = address("letters", p, nil, "mid", text)
	}
	if err != nil {
		found.Err = problemOf(err).Head + ": " + err.Error()
		return found
	}
	if found.List = list; len(list.Letters) == 0 && list.Next > 0 {
		found.All = address("letters", p, nil, "text", text, "after", strconv.FormatInt(list.Next, 10))
	}
	for _, l := range list.Letters {
		found.Rows = append(found.Rows, shownRow{l, address("letter", p, nil, "id", l.ID)})
	}
	return found
}
