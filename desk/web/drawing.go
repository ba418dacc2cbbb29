package web

import (
	"sync"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

// plans has the plan of the specifications for the version of the broker.
type plans struct {
	mu      sync.Mutex
	version string
	plan    topology.Plan
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

// drawing returns the picture of what is planned around a queue, and the version of the broker that it
// is planned for. Both are empty where that is not known.
func (h *Handler) drawing(p place) (svg, version string) {
	version = h.snapshot().Version
	if p.Queue == "" || version == "" || len(h.cfg.Specs) == 0 {
		return "", ""
	}
	h.plans.mu.Lock()
	defer h.plans.mu.Unlock()
	if h.plans.version != version {
		v, err := connection.ParseVersion(version)
		if err == nil {
			h.plans.plan, err = topology.NewPlan(v, h.cfg.Specs...)
		}
		if err != nil {
			h.plans.plan = topology.Plan{}
			h.cfg.Logger.Warn("web: the specifications cannot be drawn", "version", version, "error", err)
		}
		h.plans.version = version
	}
	if svg = h.plans.plan.SVG(p.Queue); svg == "" {
		return "", ""
	}
	return svg, version
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
