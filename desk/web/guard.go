package web

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop"
)

// Access says who may see the page. The zero Access is for a page that listens on this
// machine alone: it lets in every request that names localhost.
type Access struct {
	// Token lets in everybody who has it, through a form that asks for it or through
	// the header "Authorization: Bearer TOKEN". At least 16 bytes.
	Token string

	// User and Password are for basic authentication. At least 8 bytes of Password.
	User, Password string
}

const (
	minToken    = 16
	minPassword = 8
	sessionFor  = 12 * time.Hour
	cookieName  = "rehop_desk"
	// afterWrong is how long the answer to a wrong token or password takes.
	afterWrong = time.Second
)

// IsZero reports whether nobody is asked for anything.
func (a Access) IsZero() bool { return a == Access{} }

func (a Access) check() error {
	var errs []error
	if a.Token != "" && len(a.Token) < minToken {
		errs = append(errs, fmt.Errorf("web: Access.Token has %d bytes, want %d or more", len(a.Token), minToken))
	}
	if (a.User != "") != (a.Password != "") {
		errs = append(errs, errors.New("web: Access has one of User and Password, want both or none"))
	}
	if a.Password != "" && len(a.Password) < minPassword {
		errs = append(errs, fmt.Errorf("web: Access.Password has %d bytes, want %d or more", len(a.Password), minPassword))
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
	if !isLoopback(host) {
		return rehop.WithClass(fmt.Errorf("web: %q can be reached from other machines: letters may hold secrets, so a token, or a user and a password, is needed", address), rehop.ClassConfiguration)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

type whoKey struct{}

// User returns the user of [Guard]'s basic authentication, for Config.Who; empty if there
// is none.
func User(r *http.Request) string {
	who, _ := r.Context().Value(whoKey{}).(string)
	return who
}

// Guard passes to next only requests that Access allows. It returns an error if
// a is faulty.
func Guard(next http.Handler, a Access) (http.Handler, error) {
	if next == nil {
		return nil, rehop.WithClass(errors.New("web: Guard: the Handler is nil"), rehop.ClassBug)
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	g := &guard{next: next, access: a, wrong: make(chan struct{}, 8)}
	if _, err := rand.Read(g.key[:]); err != nil {
		return nil, err
	}
	var err error
	if g.pages, err = readPages(); err != nil {
		return nil, err
	}
	return headers(http.NewCrossOriginProtection().Handler(g)), nil
}

type guard struct {
	next   http.Handler
	access Access
	pages  *pages
	key    [32]byte      // of cookies
	wrong  chan struct{} // a place for each wrong answer that is being delayed
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case g.access.IsZero():
		// A name that a stranger's DNS points at this machine is not its own.
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !isLoopback(host) {
			http.Error(w, "This desk answers to localhost only. To reach it by another name, start it with a token.", http.StatusForbidden)
			return
		}
		g.next.ServeHTTP(w, r)
	case r.URL.Path == "/login" && g.access.Token != "":
		g.login(w, r)
	case strings.HasPrefix(r.URL.Path, "/static/") && g.access.Token != "":
		g.next.ServeHTTP(w, r) // the form that asks for the token is to look like the page
	default:
		g.decide(w, r)
	}
}

func (g *guard) decide(w http.ResponseWriter, r *http.Request) {
	user, password, basic := r.BasicAuth()
	bearer, hasBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	cookie, err := r.Cookie(cookieName)
	switch {
	case g.access.Token != "" && err == nil && g.valid(cookie.Value), g.access.Token != "" && hasBearer && same(bearer, g.access.Token):
		g.next.ServeHTTP(w, r)
		return
	case g.access.Password != "" && basic && same(user, g.access.User) && same(password, g.access.Password):
		g.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, user)))
		return
	case basic || hasBearer:
		g.delay(r.Context())
	}
	if g.access.Password != "" {
		w.Header().Set("WWW-Authenticate", `Basic realm="rehop desk", charset="UTF-8"`)
	}
	if g.access.Token == "" || r.Method != http.MethodGet || strings.HasSuffix(r.URL.Path, "/events") {
		http.Error(w, "This desk asks for a user and a password, or for its token.", http.StatusUnauthorized)
		return
	}
	g.ask(w, http.StatusUnauthorized, "")
}

// same compares without telling by its time how much is right.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// delay makes guessing slow.
func (g *guard) delay(ctx context.Context) {
	select {
	case g.wrong <- struct{}{}:
		defer func() { <-g.wrong }()
	case <-ctx.Done():
		return
	}
	timer := time.NewTimer(afterWrong)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// login takes the token from the form.
func (g *guard) login(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		g.ask(w, http.StatusOK, "")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	if !same(strings.TrimSpace(r.PostFormValue("token")), g.access.Token) {
		g.delay(r.Context())
		g.ask(w, http.StatusUnauthorized, "That is not the token of this desk.")
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: g.session(time.Now().Add(sessionFor)), MaxAge: int(sessionFor.Seconds()), Path: "/",
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

func (g *guard) ask(w http.ResponseWriter, status int, wrong string) {
	var b bytes.Buffer
	if err := g.pages.sets["login"].ExecuteTemplate(&b, "login", wrong); err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// session is a cookie that is good until a time, and for this process alone.
func (g *guard) session(until time.Time) string {
	end := strconv.FormatInt(until.Unix(), 10)
	return end + "." + g.sign(end)
}

func (g *guard) sign(text string) string {
	mac := hmac.New(sha256.New, g.key[:])
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

func (g *guard) valid(cookie string) bool {
	end, signature, _ := strings.Cut(cookie, ".")
	if !hmac.Equal([]byte(signature), []byte(g.sign(end))) {
		return false
	}
	unix, err := strconv.ParseInt(end, 10, 64)
	return err == nil && time.Now().Before(time.Unix(unix, 0))
}
