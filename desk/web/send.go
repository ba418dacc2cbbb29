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
	Order   string
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
	d := sendData{placeView: placeViewOf(h, "send", source, p, r.form), List: list, Order: newOrderID()}
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

// newOrderID is chosen before an order is asked for, so that a form that is sent twice
// is one order.
func newOrderID() string {
	return time.Now().UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:6])
}

// send carries out an order.
func (h *Handler) send(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	p := placeOf(r.form)
	o, err := r.order()
	if err != nil {
		return err
	}
	if _, err := h.progressOf(o.ID); err == nil { // the form was sent twice
		return r.redirect("order", url.Values{"id": {o.ID}}, "")
	}
	if err := h.execute(p, o, nil); err != nil {
		return err
	}
	return r.redirect("order", url.Values{"id": {o.ID}}, "")
}

// order reads an order from a form.
func (r *request) order() (o desk.Order, err error) {
	o = desk.Order{ID: r.form.Get("order"), Action: desk.Send, All: r.form.Get("all") != "", By: r.by()}
	if o.Filter, err = filterOf(r.form, time.Now()); err != nil {
		return o, err
	}
	for name, n := range map[string]*int{"rate": &o.Rate, "limit": &o.Limit} {
		text := strings.TrimSpace(r.form.Get(name))
		if text == "" {
			continue
		}
		if *n, err = strconv.Atoi(text); err != nil {
			return o, fmt.Errorf("%w: %s is %.40q, want a number", errForm, name, text)
		}
	}
	if text := strings.TrimSpace(r.form.Get("canary")); text != "" {
		if o.Canary, err = parseSpan(text); err != nil {
			return o, fmt.Errorf("%w: the canary is %.40q, want a span such as 2m", errForm, text)
		}
	}
	if to := strings.TrimSpace(r.form.Get("to")); to != "" {
		exchange, key, found := strings.Cut(to, "/") // "/queue" is a queue with a slash in its name
		if !found {
			exchange, key = "", to
		}
		o.To = &topology.Address{Exchange: exchange, RoutingKey: key}
	}
	return o, nil
}
