package web

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/topology"
)

// sendData is what is asked before letters are sent.
type sendData struct {
	placeView
	List    desk.List
	Targets []string
	Unknown int // of List.Letters: those that do not say where to
	Redrive string
	One     *desk.Letter
}

// askSend shows which letters are meant and asks how to send them.
func (h *Handler) askSend(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	source, p, list, err := r.some(8)
	if err != nil {
		return err
	}
	d := sendData{placeView: placeViewOf(h, "send", source, p, r.form), List: list, Redrive: newRedriveID()}
	for _, l := range list.Letters {
		if to := target(l); to == "" {
			d.Unknown++
		} else if !slices.Contains(d.Targets, to) {
			d.Targets = append(d.Targets, to)
		}
	}
	if len(list.Letters) == 1 && list.Matched == 1 && !list.More {
		d.One = &list.Letters[0]
	}
	return r.show("send", view{Title: "Send back", Nav: "place", Events: p.events(), Data: d})
}

// newRedriveID is chosen before a redrive is asked for, so that a form that is sent twice
// is one redrive.
func newRedriveID() string {
	return time.Now().UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:6])
}

// send carries out a redrive.
func (h *Handler) send(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	p := placeOf(r.form)
	what, err := r.redrive()
	if err != nil {
		return err
	}
	if _, err := h.progressOf(what.ID); err == nil { // the form was sent twice
		return r.redirect("redrive", url.Values{"id": {what.ID}}, "")
	}
	if err := h.execute(p, what, nil); err != nil {
		return err
	}
	return r.redirect("redrive", url.Values{"id": {what.ID}}, "")
}

// redrive reads a redrive from a form.
func (r *request) redrive() (what desk.Redrive, err error) {
	what = desk.Redrive{ID: r.form.Get("redrive"), Action: desk.Send, All: r.form.Get("all") != "", By: r.by()}
	if what.Filter, err = filterOf(r.form, time.Now()); err != nil {
		return what, err
	}
	if text := strings.TrimSpace(r.form.Get("rate")); text != "" {
		if what.Rate, err = strconv.ParseFloat(text, 64); err != nil {
			return what, fmt.Errorf("%w: rate is %.40q, want a number such as 100 or 0.5", errForm, text)
		}
	}
	if text := strings.TrimSpace(r.form.Get("limit")); text != "" {
		if what.Limit, err = strconv.Atoi(text); err != nil {
			return what, fmt.Errorf("%w: limit is %.40q, want a whole number", errForm, text)
		}
	}
	if text := strings.TrimSpace(r.form.Get("canary")); text != "" {
		if what.Canary, err = parseSpan(text); err != nil {
			return what, fmt.Errorf("%w: the canary is %.40q, want a span such as 2m", errForm, text)
		}
	}
	if to := strings.TrimSpace(r.form.Get("to")); to != "" {
		exchange, key, found := strings.Cut(to, "/") // "/queue" is a queue with a slash in its name
		if !found {
			exchange, key = "", to
		}
		what.To = &topology.Address{Exchange: exchange, RoutingKey: key}
	}
	return what, nil
}
