package web

import (
	"bytes"
	"crypto/rand"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	sessionFor  = 12 * time.Hour
	maxSessions = 1000
	cookieName  = "rehop_desk"
	maxLogin    = 32 << 10 // bytes of the form
	maxName     = 60       // bytes of the name that somebody gives
)

// sessions are the logins of browsers. The methods take the time, so that tests need no clock.
type sessions map[string]session

type session struct {
	who   string
	until time.Time
}

// begin begins a session. If there are too many, the one that would end first ends.
func (s *sessions) begin(who string, now time.Time) (id string) {
	if *s == nil {
		*s = sessions{}
	}
	first := ""
	for id, one := range *s {
		if !now.Before(one.until) {
			delete(*s, id)
		} else if first == "" || one.until.Before((*s)[first].until) {
			first = id
		}
	}
	if len(*s) >= maxSessions {
		delete(*s, first)
	}
	id = rand.Text()
	(*s)[id] = session{who, now.Add(sessionFor)}
	return id
}

func (s sessions) of(id string, now time.Time) (session, bool) {
	one, ok := s[id]
	return one, ok && now.Before(one.until)
}

// session returns the login that a browser's cookie stands for.
func (g *guard) session(r *http.Request) (login, bool) {
	cookie, err := r.Cookie(cookieFor(r))
	if err != nil {
		return login{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.sessions.of(cookie.Value, time.Now())
	return login{Who: s.who, Session: true}, ok
}

// cookieFor is the name of the cookie. Browsers send cookies to every port of a host, so
// desks on several ports would end each other's sessions.
func cookieFor(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if n, bad := strconv.ParseUint(port, 10, 16); err == nil && bad == nil {
		return cookieName + "_" + strconv.FormatUint(n, 10)
	}
	return cookieName
}

// begin logs a browser in. A link on another site is to find the browser logged in, so the
// cookie is lax: browsers send it with visits, and with no form and no image of that site.
func (g *guard) begin(w http.ResponseWriter, r *http.Request, name string) {
	g.mu.Lock()
	id := g.sessions.begin(byToken(name, r), time.Now())
	g.mu.Unlock()
	http.SetCookie(w, &http.Cookie{
		Name: cookieFor(r), Value: id, MaxAge: int(sessionFor.Seconds()), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil,
	})
}

// byToken names a login by the token, for the audit.
func byToken(name string, r *http.Request) string {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = "an unknown address"
	}
	if name = strings.TrimSpace(strings.ToValidUTF8(name, "")); name == "" {
		return "token from " + from
	}
	for len(name) > maxName {
		_, last := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-last]
	}
	return name + ", token from " + from
}

// link takes the token from an address, and leads on to the address without it: the
// history of the browser and the pages that are opened from there do not have it.
func (g *guard) link(w http.ResponseWriter, r *http.Request) {
	form := r.URL.Query()
	to := strings.TrimPrefix(r.URL.Path, "/") + "?" + r.URL.RawQuery
	right := same(form.Get("token"), g.access.Token)
	if !g.try(w, r, right) {
		return
	}
	if !right {
		goTo(w, "login", url.Values{"next": {pageIn(to)}, "wrong": {"1"}})
		return
	}
	g.begin(w, r, "")
	w.Header().Set("Location", "./"+pageIn(to))
	w.WriteHeader(http.StatusSeeOther)
}

// login takes the token from the form.
func (g *guard) login(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		form := r.URL.Query()
		a := asked{Next: pageIn(form.Get("next"))}
		if form.Has("wrong") {
			a.Wrong = "That is not the token of this desk. It changes when the desk is started without one."
		}
		g.ask(w, http.StatusOK, a)
		return
	}
	form, err := readForm(w, r, maxLogin, formTime)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	right := same(strings.TrimSpace(form.Get("token")), g.access.Token)
	if !g.try(w, r, right) {
		return
	}
	if !right {
		g.ask(w, http.StatusUnauthorized, asked{Next: pageIn(form.Get("next")), Wrong: "That is not the token of this desk."})
		return
	}
	g.begin(w, r, form.Get("name"))
	w.Header().Set("Location", "./"+pageIn(form.Get("next")))
	w.WriteHeader(http.StatusSeeOther)
}

// logout ends the session of a browser, for whoever has its cookie.
func (g *guard) logout(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "A logout is a POST.", http.StatusMethodNotAllowed)
		return
	}
	if cookie, err := r.Cookie(cookieFor(r)); err == nil {
		g.mu.Lock()
		delete(g.sessions, cookie.Value)
		g.mu.Unlock()
	}
	http.SetCookie(w, &http.Cookie{Name: cookieFor(r), MaxAge: -1, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil})
	goTo(w, "login", nil)
}

// goTo leads a browser to a page beside the one that it asked for.
func goTo(w http.ResponseWriter, page string, form url.Values) {
	if len(form) > 0 {
		page += "?" + form.Encode()
	}
	w.Header().Set("Location", page)
	w.WriteHeader(http.StatusSeeOther)
}

// pageIn returns the address of the page of this desk that a login leads to, relative and
// without a token. What names no page that can be opened is the overview, the empty address.
func pageIn(address string) string {
	if len(address) > maxQuery {
		return ""
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Opaque != "" || u.Host != "" || u.User != nil || !openPages["/"+u.Path] && !formPages["/"+u.Path] {
		return ""
	}
	form := u.Query()
	form.Del("token")
	form.Del("said")
	if len(form) == 0 {
		return u.Path
	}
	return u.Path + "?" + form.Encode()
}

// asked is what the form for the token shows.
type asked struct {
	Next  string // the page that a login leads to
	Wrong string // why the token is asked for again
}

func (g *guard) ask(w http.ResponseWriter, status int, a asked) {
	var b bytes.Buffer
	if err := g.pages.sets["login"].ExecuteTemplate(&b, "login", a); err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}
