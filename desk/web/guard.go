package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/webguard"
)

// Access says who may see the page. The zero Access is for a page that listens on this
// machine alone: it lets in every request that names localhost, an IP address, or the host
// in the pattern of the [http.ServeMux] that passes it on. So it lets in every user of the
// machine.
type Access struct {
	// Token lets in everybody who has it: through a form that asks for it, through the
	// link "/?token=TOKEN", or through the header "Authorization: Bearer TOKEN". At least
	// 16 bytes.
	Token string

	// User and Password are for basic authentication. At least 8 bytes of Password.
	User, Password string
}

const (
	minToken    = 16
	minPassword = 8
)

// IsZero reports whether nobody is asked for anything.
func (a Access) IsZero() bool { return a == Access{} }

func (a Access) check() error {
	var errs []error
	if a.Token != "" && len(a.Token) < minToken {
		errs = append(errs, fmt.Errorf("web: Access.Token has %s, want %d or more", size(len(a.Token)), minToken))
	}
	if (a.User != "") != (a.Password != "") {
		errs = append(errs, errors.New("web: Access has one of User and Password, want both or none"))
	}
	if a.Password != "" && len(a.Password) < minPassword {
		errs = append(errs, fmt.Errorf("web: Access.Password has %s, want %d or more", size(len(a.Password)), minPassword))
	}
	return rehop.WithClass(errors.Join(errs...), rehop.ClassConfiguration)
}

// CheckAddress returns an error if a page with this Access must not listen on an
// address: other machines can reach the address, and the page would ask nobody for a
// token or a password.
func (a Access) CheckAddress(address string) error {
	if err := a.check(); err != nil || !a.IsZero() {
		return err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return rehop.WithClass(fmt.Errorf("web: address %q: %w", address, err), rehop.ClassConfiguration)
	}
	if !webguard.IsLoopback(host) {
		return rehop.WithClass(fmt.Errorf("web: %q can be reached from other machines: letters may hold secrets, so a token, or a user and a password, is needed", address), rehop.ClassConfiguration)
	}
	return nil
}

// login is how a request came in.
type login struct {
	Who     string
	Session bool // a logout ends it
}

type loginKey struct{}

func loginOf(r *http.Request) login {
	l, _ := r.Context().Value(loginKey{}).(login)
	return l
}

// User names the login of a request that [Guard] has let in, for Config.Who: the user of
// basic authentication, or "token from 10.1.2.3", after the name that was given with the
// token, if there was one. Nobody checks this name. User is empty without a login.
func User(r *http.Request) string { return loginOf(r).Who }

// Guard passes to next only requests that Access allows. Of pages of other sites it passes on
// visits alone: links that somebody follows. A login with the token ends after 12 hours, by
// "POST /logout", and with the process.
//
// Guard bounds guesses. An address gets ten answers to a wrong token or password, and then
// one every ten seconds. All addresses together get a hundred, and then one a second; an
// address that was right within 12 hours does not wait for the others. Until then Guard
// answers 429 with a Retry-After, also to what is right. It still serves browsers that
// have logged in with the token. Guesses by links on other sites are counted by themselves, so that
// no such site uses up the guesses of a browser that visits it. Of IPv6 a network of 64 bits counts as one address. Behind
// a proxy all clients have the address of the proxy, so one client can keep the others from
// logging in: let the proxy bound guesses.
//
// Guard returns an error if a is faulty.
func Guard(next http.Handler, a Access) (http.Handler, error) {
	if next == nil {
		return nil, rehop.WithClass(errors.New("web: Guard: the Handler is nil"), rehop.ClassBug)
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	guarded := webguard.Hosts(next, "This desk answers to localhost only. To reach it by another name, start it with a token.")
	if !a.IsZero() {
		p, err := readPages(Config{}.named)
		if err != nil {
			return nil, err
		}
		guarded = &guard{next: next, access: a, pages: p}
	}
	// The Handler behind it knows which of its pages may be visited.
	return headers(webguard.Sites(guarded, func(*http.Request) bool { return true })), nil
}

type guard struct {
	next   http.Handler
	access Access
	pages  *pages

	mu       sync.Mutex
	guesses  guesses
	visits   guesses // by links on other sites: such a site keeps nobody from a login
	sessions sessions
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := g.access.Token != ""
	switch {
	case token && r.Method == http.MethodGet && len(r.URL.RawQuery) <= maxQuery && r.URL.Query().Has("token"):
		g.link(w, r)
	case token && r.URL.Path == "/login":
		g.login(w, r)
	case token && r.URL.Path == "/logout":
		g.logout(w, r)
	case token && strings.HasPrefix(r.URL.Path, "/static/"):
		g.next.ServeHTTP(w, r) // the form that asks for the token is to look like the page
	default:
		g.decide(w, r)
	}
}

func (g *guard) decide(w http.ResponseWriter, r *http.Request) {
	if s, ok := g.session(r); ok {
		g.serve(w, r, s)
		return
	}
	user, password, basic := r.BasicAuth()
	bearer, hasBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if basic || hasBearer {
		var as login
		right := false
		switch {
		case hasBearer && g.access.Token != "":
			as, right = login{Who: byToken("", r)}, same(bearer, g.access.Token)
		case basic && g.access.Password != "":
			as, right = login{Who: user}, same(user, g.access.User) && same(password, g.access.Password)
		}
		if !g.try(w, r, right) {
			return
		}
		if right {
			g.serve(w, r, as)
			return
		}
	}
	if g.access.Password != "" {
		w.Header().Set("WWW-Authenticate", `Basic realm="rehop desk", charset="UTF-8"`)
	}
	if g.access.Token == "" || r.Method != http.MethodGet || strings.HasSuffix(r.URL.Path, "/events") {
		http.Error(w, "This desk asks for a user and a password, or for its token.", http.StatusUnauthorized)
		return
	}
	g.ask(w, http.StatusUnauthorized, asked{Next: pageIn(strings.TrimPrefix(r.URL.Path, "/") + "?" + r.URL.RawQuery)})
}

func (g *guard) serve(w http.ResponseWriter, r *http.Request, as login) {
	g.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), loginKey{}, as)))
}

// try notes an answer. It returns false if it has told the client to wait.
func (g *guard) try(w http.ResponseWriter, r *http.Request, right bool) bool {
	of := &g.guesses
	if webguard.IsOfOtherSite(r) {
		of = &g.visits
	}
	g.mu.Lock()
	wait := of.try(guesserOf(r.RemoteAddr), right, time.Now())
	g.mu.Unlock()
	if wait == 0 {
		return true
	}
	seconds := int((wait + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	http.Error(w, fmt.Sprintf("Too many wrong tokens or passwords. Try again in %d s.", seconds), http.StatusTooManyRequests)
	return false
}

// same compares without telling by its time how much is right.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
