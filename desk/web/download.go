package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

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
	p := placeOf(r.form)
	source, release, err := h.source(p)
	if err != nil {
		return err
	}
	defer release()
	f, err := filterOf(r.form, time.Now())
	if err != nil {
		return err
	}
	end, err := r.long()
	if err != nil {
		return err
	}
	defer end()
	out := &lasting{w: r.w, c: http.NewResponseController(r.w), begin: func() {
		r.attach(fileName(h.cfg.named(p.String()))+".jsonl", "application/x-ndjson")
	}}
	export := func(ctx context.Context) error {
		_, err := source.Export(ctx, f, 0, out, r.by())
		return err
	}
	if source.About().Live { // the look comes first, and writing ends with the browser
		err = r.looking(source, export)
	} else {
		err = export(r.r.Context())
	}
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
