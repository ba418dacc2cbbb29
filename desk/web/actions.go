package web

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/topology"
)

// look looks into a queue.
func (h *Handler) look(r *request) error {
	source, p, err := r.source()
	if err != nil {
		return err
	}
	list, err := source.List(r.ctx, desk.Filter{}, desk.Page{Limit: 1, Look: true})
	if err != nil {
		return err
	}
	h.changed.notify()
	to, values := backTo(r.form.Get("back"), p)
	return r.redirect(to, values, "Looked at "+letters(list.Seen.Seen)+".")
}

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
	if err := h.execute(p, o, false); err != nil {
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
		exchange, key, found := strings.Cut(to, "/")
		if !found {
			exchange, key = "", to
		}
		o.To = &topology.Address{Exchange: exchange, RoutingKey: key}
	}
	return o, nil
}

type editData struct {
	placeView
	Letter  desk.Letter
	Body    string
	Why     string // the body is not in the form
	Keeper  bool
	Order   string
	Headers []shownHeader
}

func (h *Handler) askEdit(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	source, p, l, err := r.letter()
	if err != nil {
		return err
	}
	d := editData{placeView: placeViewOf(h, "edit", source, p, url.Values{"id": {l.ID}}), Letter: l, Order: newOrderID()}
	_, d.Keeper = source.(desk.Keeper)
	d.Body, d.Why = editable(l.Publishing.Body)
	d.Headers, _, _ = showHeaders(l.Publishing.Headers)
	return r.show("edit", view{Title: "Edit", Nav: "place", Events: p.events(), Data: d})
}

// edit changes a letter, and sends it if that was asked for.
func (h *Handler) edit(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	source, p, l, err := r.letter()
	if err != nil {
		return err
	}
	id := r.form.Get("id")
	e, err := r.editOf(l)
	if err != nil {
		return err
	}
	o, err := r.order()
	if err != nil {
		return err
	}
	o.Filter = desk.Filter{IDs: []string{id}}
	keeper, keeps := source.(desk.Keeper)
	if keeps {
		if err := keeper.Edit(r.ctx, id, e, r.by()); err != nil {
			return err
		}
		if r.form.Get("do") != "send" {
			return r.redirect("letter", withID(p, id), "Saved. The journal keeps the original.")
		}
	} else {
		o.Edit = &e
	}
	if err := h.execute(p, o, false); err != nil {
		return err
	}
	return r.redirect("order", url.Values{"id": {o.ID}}, "")
}

func withID(p place, id string) url.Values {
	v := p.values()
	v.Set("id", id)
	return v
}

// editOf reads an edit from a form. Fields that are unchanged are left out.
func (r *request) editOf(l desk.Letter) (e desk.Edit, err error) {
	m := l.Publishing
	if _, ok := r.form["body"]; ok {
		body := fromForm(r.form.Get("body"), m.Body)
		if string(body) != string(m.Body) {
			e.Body = &body
		}
	}
	if ct, ok := r.form["content_type"]; ok && ct[0] != m.ContentType {
		e.ContentType = &ct[0]
	}
	for line := range strings.Lines(r.form.Get("set")) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !found || name == "" {
			return e, fmt.Errorf("%w: header %.60q, want name=value", errForm, line)
		}
		if e.Set == nil {
			e.Set = map[string]string{}
		}
		e.Set[name] = value
	}
	e.Remove = filled(r.form["remove"])
	if e.Body == nil && e.ContentType == nil && e.Set == nil && e.Remove == nil && r.form.Get("do") != "send" {
		return e, fmt.Errorf("%w: nothing was changed", errForm)
	}
	return e, nil
}

// keeping is what a keeper does with letters.
type keeping struct {
	Do, Title, Verb, Text string
}

var keepings = []keeping{
	{"park", "Park", "parked", "Parked letters stay, marked as set aside, until somebody sends or releases them."},
	{"archive", "Archive", "archived", "Archived letters are kept for the record. Lists leave them out unless their state is asked for."},
}

type keepData struct {
	placeView
	List desk.List
	Keep keeping
}

func (r *request) keeping() (keeping, error) {
	for _, k := range keepings {
		if k.Do == r.form.Get("do") {
			return k, nil
		}
	}
	return keeping{}, errNoPage
}

func (h *Handler) askKeep(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	k, err := r.keeping()
	if err != nil {
		return err
	}
	source, p, list, err := r.some(10)
	if err != nil {
		return err
	}
	return r.show("keep", view{Title: k.Title, Nav: "place", Events: p.events(), Data: keepData{placeViewOf(h, "keep", source, p, r.form), list, k}})
}

func (h *Handler) keep(r *request) error {
	if h.cfg.ReadOnly {
		return errReadOnly
	}
	k, err := r.keeping()
	if err != nil {
		return err
	}
	p := placeOf(r.form)
	source, release, err := h.source(p)
	if err != nil {
		return err
	}
	defer release()
	keeper, ok := source.(desk.Keeper)
	if !ok {
		return fmt.Errorf("%w: %s keeps no letters for later", errForm, p)
	}
	f, err := filterOf(r.form, time.Now())
	if err != nil {
		return err
	}
	if f.IsZero() {
		return fmt.Errorf("%w: choose letters first", errForm)
	}
	do := map[string]func(context.Context, desk.Filter, desk.By) (int, error){"park": keeper.Park, "archive": keeper.Archive}[k.Do]
	by, n := r.by(), 0
	ended, err := h.orders.do(func(ctx context.Context) (err error) {
		changed, err := do(ctx, f, by)
		n = changed
		h.changed.notify()
		return err
	})
	switch {
	case err != nil:
		return err
	case !ended:
		return r.redirect("audit", nil, "They are many: the audit will say how many were "+k.Verb+".")
	}
	return r.redirect("groups", p.values(), letters(n)+" "+k.Verb+".")
}

// body sends a body as it is, as a file.
func (h *Handler) body(r *request) error {
	_, _, l, err := r.letter()
	if err != nil {
		return err
	}
	r.attach("letter-"+fileName(l.ID)+".body", "application/octet-stream")
	r.w.Header().Set("Content-Length", strconv.Itoa(len(l.Publishing.Body)))
	r.release()
	_, _ = r.w.Write(l.Publishing.Body)
	return nil
}

func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '-' || r == '_') {
			return r
		}
		return '_'
	}, s)
}

func (r *request) attach(name, contentType string) {
	set := r.w.Header().Set
	set("Content-Type", contentType)
	set("Content-Disposition", `attachment; filename="`+name+`"`)
	set("Content-Security-Policy", "default-src 'none'; sandbox")
}

// export sends letters as lines of JSON. A live source looks anew, so it is a POST.
func (h *Handler) export(r *request) error {
	source, p, err := r.source()
	if err != nil {
		return err
	}
	f, err := filterOf(r.form, time.Now())
	if err != nil {
		return err
	}
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		return errBusy
	}
	r.release()
	out := &lasting{w: r.w, c: http.NewResponseController(r.w), begin: func() {
		r.attach(fileName(p.String())+".jsonl", "application/x-ndjson")
	}}
	_, err = source.Export(r.r.Context(), f, out)
	if err != nil && out.began {
		panic(http.ErrAbortHandler) // so that the browser knows that the file is not whole
	}
	if err == nil {
		_, err = out.Write(nil)
	}
	return err
}

var errBusy = errors.New("too many browsers are served at the moment")

// lasting writes for as long as the reader takes something.
type lasting struct {
	w     io.Writer
	c     *http.ResponseController
	begin func()
	began bool
}

const writeTimeout = 30 * time.Second

func (l *lasting) Write(p []byte) (int, error) {
	if !l.began {
		l.began = true
		l.begin()
	}
	_ = l.c.SetWriteDeadline(time.Now().Add(writeTimeout)) // where there is none, none is needed
	return l.w.Write(p)
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
	if err := h.execute(at, p.Order, true); err != nil {
		return err
	}
	return r.redirect("order", url.Values{"id": {id}}, "")
}
