package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
)

// part is a part of a page, which the script of an open page puts in its place.
type part struct {
	ID   string `json:"id"`
	HTML string `json:"html"`
}

// events tells an open page what has changed: the parts of the page, or 304 if they are as
// they were. A page asks every few seconds, while somebody sees it. An answer that stays
// open would be newer, and take one of the six connections that a browser opens to a host.
func (h *Handler) events(r *request) error {
	parts, err := h.parts(r)
	if err != nil {
		return err
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	r.w.Header().Set("ETag", tag)
	if r.r.Header.Get("If-None-Match") == tag {
		r.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	r.w.Header().Set("Content-Type", "application/json")
	r.release()
	_, _ = r.w.Write(text)
	return nil
}

// parts makes the parts of a page that change. What cannot be read stays as the page has it.
func (h *Handler) parts(r *request) (parts []part, err error) {
	v := view{Snapshot: h.snapshot(), ReadOnly: h.cfg.ReadOnly}
	names := []string{"status"}
	switch r.form.Get("view") {
	case "overview":
		if v.Data, err = h.overviewData(r.form); err != nil {
			return nil, err
		}
		names = append(names, "taken", "overview")
	case "place":
		v.Data = placeView{Depth: h.depthOf(placeOf(r.form))}
		names = append(names, "depth")
	case "redrives":
		if all, err := h.latestRedrives(maxListed); err == nil {
			v.Data = redrivesData{all}
			names = append(names, "redrives")
		}
	case "redrive":
		if d, err := h.redriveData(r.form.Get("id")); err == nil {
			v.Data = d
			names = append(names, "redrive")
		}
	}
	for _, name := range names {
		var b bytes.Buffer
		if err := h.pages.live.ExecuteTemplate(bounded{&b}, "live-"+name, v); err != nil {
			return nil, err
		}
		parts = append(parts, part{"live-" + name, b.String()})
	}
	return parts, nil
}
