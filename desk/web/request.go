package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
)

// request is one request with what answers it.
type request struct {
	h    *Handler
	w    http.ResponseWriter
	r    *http.Request
	ctx  context.Context
	form url.Values // of the URL, and of the body of a POST

	release func() // the place for a page that is being made
}

// view is what a template shows.
type view struct {
	Title    string
	Nav      string // the entry of the navigation that is marked
	Events   string // the URL of changes of this page
	Snapshot snapshot
	ReadOnly bool
	Login    login
	Said     string // what the request before has done
	Data     any
}

var (
	errNoPage    = errors.New("there is no such page")
	errNoPlace   = errors.New("there is no such queue or store here")
	errNoVersion = errors.New("this desk has not connected to the broker yet, whose version decides what is planned")
	errReadOnly  = errors.New("this desk is read-only")
	errForm      = errors.New("the form is not valid")
	errVisit     = errors.New("a link on another site leads to a letter")
	errEdited    = errors.New("nothing was done: since the form was opened this letter was edited")
)

// page makes an http.HandlerFunc of what answers a request.
func (h *Handler) page(answer func(*request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req := &request{h: h, w: w, r: r, ctx: r.Context(), release: func() {}}
		err := req.read()
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		req.ctx = ctx
		if err == nil {
			select {
			case h.requests <- struct{}{}:
				req.release = sync.OnceFunc(func() { <-h.requests })
				defer req.release()
				req.ctx = desk.WithBy(ctx, req.by())
				err = answer(req)
			case <-ctx.Done():
				err = errBusy
			}
		}
		if err != nil {
			req.fail(err)
		}
	}
}

// source returns the source that the request names, until the request has ended. A GET
// keeps none that is not kept already: it takes nobody's look away.
func (r *request) source() (desk.Source, place, error) {
	p := placeOf(r.form)
	if r.r.Method != http.MethodPost && p.Queue != "" && r.h.broker != nil && !r.h.isOpen(p.Queue) {
		s, err := r.h.broker.open(p.Queue)
		return s, p, err
	}
	s, release, err := r.h.source(p)
	if err != nil {
		return nil, p, err
	}
	context.AfterFunc(r.ctx, release)
	return s, p, nil
}

// letter returns the letter whose id is in the form, and its source.
func (r *request) letter() (desk.Source, place, desk.Letter, error) {
	source, p, err := r.source()
	if err != nil {
		return nil, p, desk.Letter{}, err
	}
	l, err := source.Letter(r.ctx, r.form.Get("id"))
	return source, p, l, err
}

// some returns the source, and the first letters of those that the request is about, all of
// which are counted.
func (r *request) some(n int) (desk.Source, place, desk.Filter, desk.List, error) {
	source, p, err := r.source()
	if err != nil {
		return nil, p, desk.Filter{}, desk.List{}, err
	}
	f, err := filterOf(r.form, time.Now())
	if err != nil {
		return nil, p, f, desk.List{}, err
	}
	list, err := source.List(r.ctx, f, desk.Page{Limit: n, CountAll: true})
	return source, p, f, list, err
}

// show answers with a page.
func (r *request) show(name string, v view) error { return r.showStatus(http.StatusOK, name, v) }

func (r *request) showStatus(status int, name string, v view) error {
	v.Snapshot, v.ReadOnly, v.Login = r.h.snapshot(), r.h.cfg.ReadOnly, loginOf(r.r)
	if v.Events == "" {
		v.Events = "events?view=status"
	}
	v.Said = r.h.messages.take(r.form.Get("said"))
	var b bytes.Buffer
	if err := r.h.pages.execute(&b, name, v); err != nil {
		return err
	}
	r.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	r.w.WriteHeader(status)
	r.release() // a slow browser keeps no other from its page
	_, _ = r.w.Write(b.Bytes())
	return nil
}

// redirect sends the browser to another page, which says what was done. The address is
// relative, because only the browser knows where the page is mounted.
func (r *request) redirect(to string, values url.Values, said string) error {
	if said != "" {
		if values == nil {
			values = url.Values{}
		}
		values.Set("said", r.h.messages.put(said))
	}
	if len(values) > 0 {
		to += "?" + values.Encode()
	}
	r.w.Header().Set("Location", to)
	r.w.WriteHeader(http.StatusSeeOther)
	return nil
}

// by is who acts, and why.
func (r *request) by() desk.By {
	return desk.By{Who: r.h.cfg.Who(r.r), Why: strings.TrimSpace(r.form.Get("why"))}
}

// problem is an error with what to do about it.
type problem struct {
	Status int
	Head   string
	Text   string
	Advice string
	Place  place
	Look   string // where to go after a look, which is what to do
	Held   string // the redrive that another process has, or that a look would wait for
	Open   string // the page that a link on another site leads to
	Drawn  drawn
}

func (r *request) fail(err error) {
	p := problemOf(err)
	p.Text = said.Text(p.Text)
	p.Place = placeOf(r.form)
	switch over := errors.Is(err, desk.ErrNotLooked); {
	case over && r.r.Method == http.MethodGet:
		p.Look = strings.TrimPrefix(r.r.URL.Path, "/") + "?" + r.r.URL.RawQuery
		_, p.Drawn = r.h.drawing(p.Place)
	case over:
		p.Status, p.Text = http.StatusConflict, "Nothing was done: since this page was shown, somebody has looked again, or a redrive has ended, and other letters may be meant."
		p.Look = address(strings.TrimPrefix(r.r.URL.Path, "/"), p.Place, onlyFilter(r.form))
	}
	if errors.Is(err, errVisit) {
		p.Open = strings.TrimPrefix(r.r.URL.Path, "/") + "?" + r.r.URL.RawQuery
	}
	var held heldError
	if errors.As(err, &held) {
		p.Held = cmp.Or(r.form.Get("id"), r.form.Get("redrive"))
	}
	var busy *busyError
	if errors.As(err, &busy) {
		p.Held = busy.redrive
	}
	if p.Status >= 500 {
		r.h.cfg.Logger.Warn("web: a page could not be shown", "path", r.r.URL.Path, "error", err)
	}
	if err := r.showStatus(p.Status, "problem", view{Title: p.Head, Data: p}); err != nil {
		http.Error(r.w, "the page could not be made", http.StatusInternalServerError)
	}
}

// heldError is the error of package desk for a redrive that another process has.
type heldError interface {
	error
	Holder() string
}

// problemOf says what an error means to a person.
func problemOf(err error) problem {
	var refused *desk.RefusedError
	var held heldError
	var waits *busyError
	var large *http.MaxBytesError
	var broker *amqp.Error
	var blocked *connection.BlockedError
	var dial *net.OpError // of a connection that could not be made in time
	switch {
	case errors.Is(err, errNoPage):
		return problem{Status: 404, Head: "There is no such page", Advice: "Begin at the overview."}
	case errors.Is(err, errNoPlace):
		return problem{Status: 404, Head: "Not here", Text: err.Error(), Advice: "The overview lists the queues and stores of this desk."}
	case errors.Is(err, errNoVersion):
		return problem{Status: 503, Head: "The broker is not known yet", Text: err.Error(), Advice: "Try again when the state at the top has its version."}
	case errors.Is(err, desk.ErrNoLetter):
		return problem{Status: 404, Head: "This letter is not here any more", Text: err.Error(), Advice: "Somebody may have sent it back, or another consumer has it. Look again, or see the audit."}
	case errors.Is(err, errVisit):
		return problem{Status: 200, Head: "Open this letter?", Advice: "A link on another site leads here. The audit names whoever opens a letter."}
	case errors.Is(err, desk.ErrNoRedrive):
		return problem{Status: 404, Head: "There is no such redrive", Text: err.Error(), Advice: "The page of redrives lists those of this journal."}
	case errors.As(err, &held):
		who := cmp.Or(held.Holder(), "It has not said which one, and since when")
		return problem{Status: 409, Head: "Another process works on this redrive", Text: who + ".", Advice: "Nothing was done here. The other process may wait for the broker, for letters or for its turn. Watch it, or stop it, and resume it here when it has ended."}
	case errors.As(err, &waits):
		return problem{Status: 409, Head: "A redrive is at this queue", Text: err.Error(), Advice: "Nothing was looked at: a look takes all letters, so it would wait for the end of the redrive. Watch it, or stop it, and look again when it has ended."}
	case errors.Is(err, errEdited):
		return problem{Status: 409, Head: "This letter is another one now", Text: err.Error(), Advice: "Open it again, and edit what it is now."}
	case errors.Is(err, errReadOnly):
		return problem{Status: 403, Head: "This desk is read-only", Text: "It was started with --read-only.", Advice: "Use the command rehop, or a desk that may change letters."}
	case errors.As(err, &large) && large.Limit == maxEdit:
		return problem{Status: 413, Head: "Too large", Text: fmt.Sprintf("This form may have %d MiB.", maxEdit>>20), Advice: "Change such a letter with rehop dlq edit --body FILE."}
	case errors.As(err, &large):
		return problem{Status: 413, Head: "Too large", Text: fmt.Sprintf("This form may have %d KiB.", large.Limit>>10), Advice: "Go back, and write less."}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem{Status: 408, Head: "The form came too slowly", Text: fmt.Sprintf("A form has to be here within %v, and one with a body within %v.", formTime, editTime), Advice: "Send it again."}
	case errors.Is(err, errBusy):
		return problem{Status: 503, Head: "This desk is busy", Text: err.Error(), Advice: "Try again in a moment."}
	case errors.Is(err, errLarge):
		return problem{Status: 500, Head: "This page would be too large", Text: err.Error(), Advice: "Ask for less: by another condition, or with the command rehop."}
	case errors.Is(err, errForm):
		return problem{Status: 400, Head: "Something in the form is not right", Text: err.Error(), Advice: "Go back, mend it, and send the form again."}
	case errors.Is(err, desk.ErrNotLooked):
		return problem{Status: 200, Head: "Nobody has looked into this queue yet"}
	case errors.Is(err, desk.ErrNotWhole):
		return problem{Status: 409, Head: "The download would leave letters out", Text: err.Error(), Advice: "Nothing was downloaded. Collect the letters into a store, and download that: rehop dlq collect. Or write the first of them: rehop dlq export --limit."}
	case errors.As(err, &refused):
		return problem{Status: 409, Head: "A look could cost a letter", Text: refused.Reason + ".", Advice: sentence(refused.Advice)}
	case errors.As(err, &broker) && broker.Code == amqp.NotFound:
		advice := "It may have been deleted. The overview lists the queues that exist."
		var near interface{ Advice() string } // of package desk
		if errors.As(err, &near) && near.Advice() != "" {
			advice = "It may have been deleted, or " + near.Advice() + " The overview lists the queues that exist."
		}
		return problem{Status: 404, Head: "There is no such queue", Text: broker.Reason, Advice: advice}
	case errors.As(err, &broker) && broker.Code == amqp.AccessRefused:
		return problem{Status: 403, Head: "The broker does not allow it", Text: broker.Reason, Advice: "Give the user of this desk the permission, or use another user. rehop doctor says more."}
	case errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &dial):
		return problem{Status: 504, Head: "No answer in time", Text: err.Error(), Advice: "Try again, or ask for fewer letters."}
	case errors.As(err, &blocked):
		return problem{Status: 503, Head: "The broker takes no messages", Text: err.Error(), Advice: "It is there, and has an alarm. The letters are safe in their queues: try again when the alarm is over."}
	case rehop.ClassOf(err) == rehop.ClassTransient:
		return problem{Status: 503, Head: "The broker is away", Text: err.Error(), Advice: "The letters are safe in their queues. The desk connects again by itself: try again when the state at the top says so."}
	case rehop.ClassOf(err) == rehop.ClassBug:
		return problem{Status: 400, Head: "This cannot be done", Text: err.Error(), Advice: "Go back and change it."}
	}
	return problem{Status: 500, Head: "That did not work", Text: err.Error(), Advice: "Try again. rehop doctor looks for the reason."}
}

func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// backTo is the address of a page of this desk that a form has named, and a page that
// is always there if it names another.
func backTo(raw string, p place) (string, url.Values) {
	u, err := url.Parse(raw)
	known := []string{"groups", "letters", "letter", "send", "edit", "keep"}
	if err != nil || u.IsAbs() || u.Host != "" || !slices.Contains(known, u.Path) {
		return "groups", p.values()
	}
	v := u.Query()
	v.Del("said")
	return u.Path, v
}

// messages are what redirects say, each shown once.
type messages struct {
	mu    sync.Mutex
	texts map[string]message
}

type message struct {
	text string
	at   time.Time
}

const maxMessages = 100

func (m *messages) put(text string) (id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, old := range m.texts {
		if time.Since(old.at) > time.Minute || len(m.texts) >= maxMessages {
			delete(m.texts, id)
		}
	}
	if m.texts == nil {
		m.texts = map[string]message{}
	}
	id = rand.Text()
	m.texts[id] = message{text, time.Now()}
	return id
}

func (m *messages) take(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := m.texts[id].text
	delete(m.texts, id)
	return text
}
