package web

import (
	"net/url"
	"strings"

	"github.com/rehop/rehop/desk"
)

type ordersData struct{ Orders []desk.Progress }

func (h *Handler) listOrders(r *request) error {
	all, err := h.latestOrders(maxListed)
	if err != nil {
		return err
	}
	return r.show("orders", view{Title: "Orders", Nav: "orders", Events: "events?view=orders", Data: ordersData{all}})
}

type orderData struct {
	P       desk.Progress
	Place   place
	Here    bool // this desk can work on it
	Running bool
	Resume  bool // it can be resumed
	Stopped bool // somebody has asked it to stop
	Total   int
	Rate    float64 // letters per second so far
	Letters string  // address of the letters that are left
}

func (h *Handler) orderData(id string) (orderData, error) {
	p, err := h.progressOf(id)
	if err != nil {
		return orderData{}, err
	}
	d := orderData{P: p, Place: h.placeOfSource(p.Order.Source), Running: p.State == desk.Running}
	d.Here = d.Place != (place{})
	d.Resume = d.Here && !d.Running && (p.State != desk.Done || p.Failed > 0)
	d.Total = max(p.Matched, p.Done+p.Failed+p.Skipped)
	if took := p.Updated.Sub(p.Began).Seconds(); took > 0.5 {
		d.Rate = float64(p.Done) / took
	}
	return d, nil
}

// placeOfSource is the place that a source of an order is, if this desk has it.
func (h *Handler) placeOfSource(source string) place {
	for _, s := range h.cfg.Sources {
		if s.About().Name == source {
			return place{Store: source}
		}
	}
	if queue, ok := strings.CutPrefix(source, "queue "); ok && h.broker != nil {
		return place{Queue: queue}
	}
	return place{}
}

func (h *Handler) order(r *request) error {
	id := r.form.Get("id")
	d, err := h.orderData(id)
	if err != nil {
		return err
	}
	return r.show("order", view{Title: "Order " + id, Nav: "orders", Events: "events?" + url.Values{"view": {"order"}, "id": {id}}.Encode(), Data: d})
}

type auditData struct{ Records []desk.Record }

func (h *Handler) audit(r *request) error {
	records, err := h.cfg.Journal.Audit(maxListed)
	if err != nil {
		return err
	}
	return r.show("audit", view{Title: "Audit", Nav: "audit", Data: auditData{records}})
}

func (h *Handler) stop(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	id := r.form.Get("id")
	if err := h.cfg.Journal.Stop(id, r.by()); err != nil {
		return err
	}
	h.changed.notify()
	return r.redirect("order", url.Values{"id": {id}}, "The order is asked to stop.")
}

func (h *Handler) resume(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	id := r.form.Get("id")
	p, err := h.cfg.Journal.Order(id)
	if err != nil {
		return err
	}
	at := h.placeOfSource(p.Order.Source)
	if at == (place{}) {
		return errNoPlace
	}
	by := r.by()
	if err := h.execute(at, p.Order, &by); err != nil {
		return err
	}
	return r.redirect("order", url.Values{"id": {id}}, "")
}
