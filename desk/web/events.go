package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const (
	// beat is how often a browser hears something, so that both ends notice when the
	// other one is gone.
	beat = 15 * time.Second
	// calm is the time between two changes that a browser is told.
	calm = 300 * time.Millisecond
)

// events tells a browser of changes: fragments of its page, as server-sent events.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		http.Error(w, errBusy.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	c := http.NewResponseController(w)
	write := func(text string) bool {
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) // where there is none, none is needed
		if _, err := fmt.Fprint(w, text); err != nil {
			return false
		}
		return c.Flush() == nil
	}
	if !write("retry: 2000\n\n") {
		return
	}
	sent := map[string]string{}
	alive := time.NewTicker(beat)
	defer alive.Stop()
	for {
		changed, open := h.changed.next()
		if !open || !h.tell(r.URL.Query(), sent, write) {
			return
		}
		select {
		case <-time.After(calm):
		case <-r.Context().Done():
			return
		}
		select {
		case <-changed:
		case <-alive.C:
			if !write(": still here\n\n") {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// tell sends the fragments of a page that have changed.
func (h *Handler) tell(form url.Values, sent map[string]string, write func(string) bool) bool {
	v := view{Snapshot: h.snapshot(), ReadOnly: h.cfg.ReadOnly}
	names := []string{"status"}
	switch form.Get("view") {
	case "overview":
		v.Data = h.overviewData()
		names = append(names, "taken", "overview")
	case "place":
		v.Data = placeView{Depth: h.depthOf(placeOf(form))}
		names = append(names, "depth")
	case "redrives":
		if all, err := h.latestRedrives(maxListed); err == nil {
			v.Data = redrivesData{all}
			names = append(names, "redrives")
		}
	case "redrive":
		if d, err := h.redriveData(form.Get("id")); err == nil {
			v.Data = d
			names = append(names, "redrive")
		}
	}
	for _, name := range names {
		var b bytes.Buffer
		if err := h.pages.live.ExecuteTemplate(&b, "live-"+name, v); err != nil {
			h.cfg.Logger.Error("web: a fragment could not be made", "fragment", name, "error", err)
			continue
		}
		if sent[name] == b.String() {
			continue
		}
		sent[name] = b.String()
		line, err := json.Marshal(map[string]string{"id": "live-" + name, "html": b.String()})
		if err != nil || !write("data: "+string(line)+"\n\n") {
			return false
		}
	}
	return true
}
