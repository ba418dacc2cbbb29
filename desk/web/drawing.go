package web

import (
	"fmt"
	"sync"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/topology"
)

// plans has the plan of the specifications for the version of the broker.
type plans struct {
	mu      sync.Mutex
	version string
	plan    topology.Plan
	has     map[string]bool // whether a queue that was asked for is drawn
}

// drawn is what a page says of a picture. The zero drawn is none.
type drawn struct {
	Version       string // of the broker that the picture is for
	Width, Height int    // in pixels: a page that knows them does not jump when the picture comes
}

// checkSpecs returns an error if no broker can have the specifications.
func checkSpecs(specs []topology.Spec) (err error) {
	if len(specs) == 0 {
		return nil
	}
	for _, v := range []connection.Version{{Major: 4, Minor: 3}, {Major: 3, Minor: 10}} { // not each has all engines
		if _, err = topology.NewPlan(v, specs...); err == nil {
			return nil
		}
	}
	return err
}

// drawing returns the picture of what is planned around a queue; empty where that is not known.
func (h *Handler) drawing(p place) (svg string, d drawn) {
	version := h.snapshot().Version
	if p.Queue == "" || version == "" || len(h.cfg.Specs) == 0 {
		return "", drawn{}
	}
	h.plans.mu.Lock()
	defer h.plans.mu.Unlock()
	svg = h.plansFor(version).SVG(p.Queue)
	if _, err := fmt.Sscanf(svg, svgSize, &d.Width, &d.Height); err != nil {
		return "", drawn{}
	}
	d.Version = version
	return svg, d
}

// svgSize begins the pictures of package topology.
const svgSize = `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"`

// areDrawn returns those of some queues that are drawn.
func (h *Handler) areDrawn(queues []desk.Queue) map[string]bool {
	version := h.snapshot().Version
	if version == "" || len(h.cfg.Specs) == 0 {
		return nil
	}
	h.plans.mu.Lock()
	defer h.plans.mu.Unlock()
	plan, are := h.plansFor(version), map[string]bool{}
	for _, q := range queues {
		has, known := h.plans.has[q.Name]
		if !known {
			has = plan.SVG(q.Name) != ""
			h.plans.has[q.Name] = has
		}
		if has {
			are[q.Name] = true
		}
	}
	return are
}

// plansFor returns the plan for a version. The caller has locked plans.
func (h *Handler) plansFor(version string) topology.Plan {
	if h.plans.version != version {
		v, err := connection.ParseVersion(version)
		if err == nil {
			h.plans.plan, err = topology.NewPlan(v, h.cfg.Specs...)
		}
		if err != nil {
			h.plans.plan = topology.Plan{}
			h.cfg.Logger.Warn("web: the specifications cannot be drawn", "version", version, "error", err)
		}
		h.plans.version, h.plans.has = version, map[string]bool{}
	}
	return h.plans.plan
}

// planData is the picture of a queue, and the queue of its dead letters.
type planData struct {
	Place   place
	Drawn   drawn
	Letters place // zero: nobody has counted one
}

// plan shows what the specifications plan around a queue, for a work queue, whose letters are elsewhere.
func (h *Handler) plan(r *request) error {
	d := planData{Place: placeOf(r.form)}
	if h.broker != nil && d.Place.Queue != "" && len(h.cfg.Specs) > 0 && h.snapshot().Version == "" {
		return errNoVersion
	}
	if _, d.Drawn = h.drawing(d.Place); d.Drawn == (drawn{}) {
		return errNoPlace
	}
	for _, q := range h.snapshot().Work {
		if q.Name == d.Place.Queue {
			d.Letters.Queue = q.DeadLetters
		}
	}
	return r.show("plan", view{Title: "Plan of " + d.Place.Queue, Nav: "place", Data: d})
}

// draw answers with the picture. A page shows it as an image: the styles of one that is a part of the
// page would be the page's, and its policy forbids them.
func (h *Handler) draw(r *request) error {
	svg, _ := h.drawing(placeOf(r.form))
	if svg == "" {
		return errNoPlace
	}
	r.w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'")
	r.w.Header().Set("Content-Type", "image/svg+xml")
	r.release()
	_, _ = r.w.Write([]byte(svg))
	return nil
}
