package web

import (
	"context"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const token = "correct-horse-battery"

func guarded(t *testing.T, a Access) http.Handler {
	t.Helper()
	g, err := Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("inside " + User(r))) }), a)
	must(t, err)
	return g
}

func answer(h http.Handler, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8017/", nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestOnlyThisMachineIsServedWithoutAPassword(t *testing.T) {
	for address, fine := range map[string]bool{
		"127.0.0.1:80": true, "localhost:80": true, "[::1]:80": true, "0.0.0.0:80": false, ":80": false, "[::]:80": false, "10.1.2.3:80": false, "desk.example:80": false, "": false,
	} {
		if err := (Access{}).CheckAddress(address); (err == nil) != fine {
			t.Errorf("%q: %v", address, err)
		}
		if err := (Access{Token: token}).CheckAddress(address); err != nil {
			t.Errorf("%q with a token: %v", address, err)
		}
	}
	for _, a := range []Access{{Token: "short"}, {User: "ada"}, {Password: "long enough"}, {User: "ada", Password: "short"}} {
		if err := a.CheckAddress("127.0.0.1:80"); err == nil {
			t.Errorf("%+v is accepted", a)
		}
	}
}

// A stranger's name that is made to point at this machine gets nothing.
func TestANameOfOthersIsNotServed(t *testing.T) {
	h := guarded(t, Access{})
	for host, status := range map[string]int{"127.0.0.1:8017": 200, "localhost:8017": 200, "localhost": 200, "[::1]:8017": 200, "10.1.2.3:8017": 200, "evil.example": 403, "evil.example:8017": 403, "127.0.0.1.evil.example": 403, "": 403} {
		if w := answer(h, func(r *http.Request) { r.Host = host }); w.Code != status {
			t.Errorf("host %q: %d", host, w.Code)
		}
	}
}

// browser keeps cookies as browsers do, and follows no redirect.
type browser struct {
	*testing.T
	h       http.Handler
	cookies map[string]string
}

func (b *browser) do(method, path string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	b.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:8017"+path, strings.NewReader(form.Encode()))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if b.cookies == nil {
			b.cookies = map[string]string{}
		}
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || strings.Contains(c.Value, token) {
			b.Errorf("a cookie: %v", c)
		}
	}
	return w
}

func TestATokenOpensTheDesk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guarded(t, Access{Token: token})
		b := &browser{T: t, h: h}
		if w := b.do("GET", "/", nil); w.Code != 401 || !strings.Contains(w.Body.String(), `name="token"`) || strings.Contains(w.Body.String(), token) {
			t.Errorf("without: %d", w.Code)
		}
		if w := b.do("GET", "/", nil, "Authorization", "Bearer "+token); w.Body.String() != "inside token from 192.0.2.1" {
			t.Errorf("with the header: %d %s", w.Code, w.Body)
		}
		for _, path := range []string{"/", "/events", "/letters"} {
			if w := b.do("GET", path, nil, "Authorization", "Bearer wrong"); w.Code != 401 {
				t.Errorf("%s with a wrong header: %d", path, w.Code)
			}
		}
		if w := b.do("POST", "/login", url.Values{"token": {"wrong"}}); w.Code != 401 || len(b.cookies) > 0 {
			t.Errorf("a wrong token in the form: %d", w.Code)
		}
		if w := b.do("POST", "/login", url.Values{"token": {" " + token + " "}, "name": {"ada"}}); w.Code != 303 || w.Header().Get("Location") != "./" || len(b.cookies) != 1 {
			t.Fatalf("the token in the form: %d, cookies %v", w.Code, b.cookies)
		}
		if w := b.do("GET", "/", nil); w.Body.String() != "inside ada, token from 192.0.2.1" {
			t.Errorf("with the cookie: %d %s", w.Code, w.Body)
		}
		other := &browser{T: t, h: guarded(t, Access{Token: token}), cookies: b.cookies}
		if w := other.do("GET", "/", nil); w.Code != 401 {
			t.Errorf("at another desk: %d", w.Code)
		}
		time.Sleep(sessionFor + time.Second)
		if w := b.do("GET", "/", nil); w.Code != 401 {
			t.Errorf("with an old cookie: %d", w.Code)
		}
		for name, value := range map[string]string{cookieName + "_8017": "", cookieName: "x"} {
			b.cookies = map[string]string{name: value}
			if w := b.do("GET", "/", nil); w.Code != 401 {
				t.Errorf("with the cookie %s=%q: %d", name, value, w.Code)
			}
		}
	})
}

// The token of a link is in no address that the browser stays at.
func TestALinkWithTheTokenLogsIn(t *testing.T) {
	for _, tt := range []struct{ path, to string }{
		{"/?token=" + token, "./"},
		{"/letters?queue=a.dlq&token=" + token + "&text=x", "./letters?queue=a.dlq&text=x"},
		{"/nonsense?token=" + token, "./"},
		{"//evil.example/?token=" + token, "./"},
	} {
		b := &browser{T: t, h: guarded(t, Access{Token: token})}
		w := b.do("GET", tt.path, nil)
		if w.Code != 303 || w.Header().Get("Location") != tt.to || strings.Contains(w.Body.String(), token) {
			t.Errorf("%s: %d to %q, want %q", tt.path, w.Code, w.Header().Get("Location"), tt.to)
		}
		if w := b.do("GET", "/", nil); w.Body.String() != "inside token from 192.0.2.1" {
			t.Errorf("behind %s: %d %s", tt.path, w.Code, w.Body)
		}
		again := b.do("GET", tt.path, nil) // whoever is logged in
		if again.Header().Get("Location") != tt.to {
			t.Errorf("%s again: %d to %q", tt.path, again.Code, again.Header().Get("Location"))
		}
	}
	b := &browser{T: t, h: guarded(t, Access{Token: token})}
	w := b.do("GET", "/letters?queue=a.dlq&token=an-old-token", nil)
	if to := w.Header().Get("Location"); w.Code != 303 || to != "login?next=letters%3Fqueue%3Da.dlq&wrong=1" || len(b.cookies) > 0 {
		t.Errorf("with a wrong token: %d to %q", w.Code, to)
	}
	if w := b.do("GET", "/login?next=letters%3Fqueue%3Da.dlq&wrong=1", nil); !strings.Contains(w.Body.String(), "not the token of this desk") || !strings.Contains(w.Body.String(), `value="letters?queue=a.dlq"`) {
		t.Errorf("the form: %d %s", w.Code, w.Body)
	}
}

// A login leads to the page that was asked for, and nowhere else.
func TestALoginLeadsToThePageThatWasAskedFor(t *testing.T) {
	for address, to := range map[string]string{
		"": "", "?": "", "letters?queue=a.dlq&text=%26+b": "letters?queue=a.dlq&text=%26+b", "redrive?id=o-1": "redrive?id=o-1", "send?queue=a&group=f1": "send?group=f1&queue=a",
		"?token=" + token: "", "letters?token=x&said=y&queue=a": "letters?queue=a",
		"https://evil.example/letters": "", "//evil.example/letters": "", "///evil.example/letters": "", `/\evil.example/letters`: "", `\\evil.example`: "", "/letters": "", "../letters": "", "./letters": "",
		"javascript:alert(1)": "", "letters:x": "", "http:letters": "", "user@letters": "", "letters%2f..": "", "%6cetters": "letters", "letters\r\nSet-Cookie: a=b": "", "letters?a=\r\nb": "",
		"login": "", "logout": "", "events": "", "body?queue=a&id=1": "", "look": "", "export": "", "static/desk.js": "", "letters;queue=a": "", "letters#x": "letters", strings.Repeat("letters?", 2000): "",
	} {
		if got := pageIn(address); got != to {
			t.Errorf("%q leads to %q, want %q", address, got, to)
		}
		b := &browser{T: t, h: guarded(t, Access{Token: token})}
		if got := b.do("POST", "/login", url.Values{"token": {token}, "next": {address}}).Header().Get("Location"); got != "./"+to {
			t.Errorf("the form with %q leads to %q, want %q", address, got, "./"+to)
		}
		if w := b.do("POST", "/login", url.Values{"token": {"wrong"}, "next": {address}}); to != "" && !strings.Contains(w.Body.String(), `name="next" value="`+html.EscapeString(strings.ReplaceAll(to, "+", "&#43;"))[:3]) {
			t.Errorf("after a wrong token %q is forgotten: %s", address, w.Body)
		}
	}
	b := &browser{T: t, h: guarded(t, Access{Token: token})}
	if w := b.do("GET", "/letters?queue=a.dlq&text=x", nil); !strings.Contains(w.Body.String(), `name="next" value="letters?queue=a.dlq&amp;text=x"`) {
		t.Errorf("the form does not have the page: %s", w.Body)
	}
}

func TestALogoutEndsTheSession(t *testing.T) {
	h := guarded(t, Access{Token: token})
	b, other := &browser{T: t, h: h}, &browser{T: t, h: h}
	b.do("GET", "/?token="+token, nil)
	other.do("GET", "/?token="+token, nil)
	stolen := &browser{T: t, h: h, cookies: maps.Clone(b.cookies)}
	if w := b.do("GET", "/logout", nil); w.Code != 405 || b.do("GET", "/", nil).Code != 200 {
		t.Errorf("a GET: %d", w.Code)
	}
	if w := b.do("POST", "/logout", nil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"); w.Code != 403 || b.do("GET", "/", nil).Code != 200 {
		t.Errorf("another site: %d", w.Code)
	}
	if w := b.do("POST", "/logout", nil); w.Code != 303 || w.Header().Get("Location") != "login" || len(b.cookies) > 0 {
		t.Errorf("%d to %q, cookies %v", w.Code, w.Header().Get("Location"), b.cookies)
	}
	for who, want := range map[*browser]int{b: 401, stolen: 401, other: 200} {
		if w := who.do("GET", "/", nil); w.Code != want {
			t.Errorf("%d, want %d", w.Code, want)
		}
	}
}

// A client that hangs up has guessed all the same, and no guess is worth more for being made
// beside others.
func TestGuessesAreAnsweredTenTimes(t *testing.T) {
	for kind, guess := range map[string]func(*http.Request){
		"bearer": func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") },
		"basic":  func(r *http.Request) { r.SetBasicAuth("ada", "wrong") },
		"link":   func(r *http.Request) { r.URL.RawQuery = "token=wrong" },
		"form": func(r *http.Request) {
			*r = *httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8017/login", strings.NewReader("token=wrong"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := guarded(t, Access{Token: token, User: "ada", Password: "lovelace-1815"})
			in := &browser{T: t, h: h}
			in.do("GET", "/?token="+token, nil)
			began := time.Now()
			counts := make(chan int, 200)
			var all sync.WaitGroup
			for range cap(counts) {
				all.Go(func() {
					counts <- answer(h, func(r *http.Request) {
						gone, hangUp := context.WithCancel(r.Context())
						hangUp()
						guess(r)
						*r = *r.WithContext(gone)
					}).Code
				})
			}
			all.Wait()
			close(counts)
			of := map[int]int{}
			for code := range counts {
				of[code]++
			}
			if of[429] != 190 || of[401]+of[303] != 10 {
				t.Errorf("%s: answers %v, want ten", kind, of)
			}
			if time.Since(began) != 0 {
				t.Errorf("%s: a guess waited for %v", kind, time.Since(began))
			}
			right := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
			if w := answer(h, right); w.Code != 429 || w.Header().Get("Retry-After") != "10" {
				t.Errorf("%s: a right answer, too early: %d, Retry-After %q", kind, w.Code, w.Header().Get("Retry-After"))
			}
			if w := answer(h, func(r *http.Request) { right(r); r.RemoteAddr = "192.0.2.2:1" }); w.Code != 200 {
				t.Errorf("%s: a right answer of somebody else: %d", kind, w.Code)
			}
			if w := in.do("GET", "/", nil); w.Code != 200 {
				t.Errorf("%s: somebody who is logged in: %d", kind, w.Code)
			}
			time.Sleep(guessEvery)
			if w := answer(h, right); w.Code != 200 {
				t.Errorf("%s: a right answer, later: %d", kind, w.Code)
			}
		})
	}
}

// A page that sends a browser here with wrong tokens keeps nobody from a login, and guesses no more often than others.
func TestAnotherSiteUsesUpNoGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guarded(t, Access{Token: token, User: "ada", Password: "lovelace-1815"})
		visit := func(change func(*http.Request)) int {
			return answer(h, func(r *http.Request) {
				r.Header.Set("Sec-Fetch-Site", "cross-site")
				r.Header.Set("Sec-Fetch-Mode", "navigate")
				r.Header.Set("Sec-Fetch-Dest", "document")
				change(r)
			}).Code
		}
		if code := visit(func(r *http.Request) { r.URL.RawQuery = "token=" + token }); code != 303 {
			t.Errorf("a link with the token: %d", code)
		}
		for range guessBurst / 2 {
			visit(func(r *http.Request) { r.URL.RawQuery = "token=wrong" })
			visit(func(r *http.Request) { r.SetBasicAuth("ada", "wrong") })
		}
		if code := visit(func(r *http.Request) { r.URL.RawQuery = "token=" + token }); code != 429 {
			t.Errorf("the eleventh link: %d", code)
		}
		if w := answer(h, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }); w.Code != 200 {
			t.Errorf("a login: %d", w.Code)
		}
	})
}

func TestTheSessionsAreBounded(t *testing.T) {
	var s sessions
	now := time.Now()
	first := s.begin("first", now)
	last := ""
	for i := range 2 * maxSessions {
		now = now.Add(time.Second)
		if last = s.begin("x", now); len(s) > maxSessions {
			t.Fatalf("%d sessions after %d", len(s), i)
		}
	}
	if _, ok := s.of(first, now); ok {
		t.Error("the first session is still there")
	}
	if _, ok := s.of(last, now); !ok {
		t.Error("the last session is not there")
	}
}

func TestAPasswordOpensTheDeskAndNamesTheUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guarded(t, Access{User: "ada", Password: "lovelace-1815"})
		if w := answer(h, nil); w.Code != 401 || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Basic") {
			t.Errorf("without: %d", w.Code)
		}
		if w := answer(h, func(r *http.Request) { r.SetBasicAuth("ada", "lovelace-1815") }); w.Body.String() != "inside ada" {
			t.Errorf("with: %d %s", w.Code, w.Body)
		}
		for _, wrong := range [][2]string{{"ada", "wrong"}, {"eve", "lovelace-1815"}, {"", ""}} {
			if w := answer(h, func(r *http.Request) { r.SetBasicAuth(wrong[0], wrong[1]) }); w.Code != 401 {
				t.Errorf("%q: %d", wrong, w.Code)
			}
		}
	})
}
