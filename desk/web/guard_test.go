package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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
	for host, status := range map[string]int{"127.0.0.1:8017": 200, "localhost:8017": 200, "localhost": 200, "[::1]:8017": 200, "evil.example": 403, "evil.example:8017": 403, "127.0.0.1.evil.example": 403, "": 403} {
		if w := answer(h, func(r *http.Request) { r.Host = host }); w.Code != status {
			t.Errorf("host %q: %d", host, w.Code)
		}
	}
}

func TestATokenOpensTheDesk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guarded(t, Access{Token: token})
		w := answer(h, nil)
		if w.Code != 401 || !strings.Contains(w.Body.String(), `name="token"`) || strings.Contains(w.Body.String(), token) {
			t.Errorf("without: %d", w.Code)
		}
		if w := answer(h, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }); w.Body.String() != "inside " {
			t.Errorf("with the header: %d", w.Code)
		}
		began := time.Now()
		if w := answer(h, func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") }); w.Code != 401 || time.Since(began) < afterWrong {
			t.Errorf("with a wrong one: %d after %v", w.Code, time.Since(began))
		}
		login := func(token string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(url.Values{"token": {token}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		if w := login("wrong"); w.Code != 401 || len(w.Result().Cookies()) > 0 {
			t.Errorf("a wrong token in the form: %d", w.Code)
		}
		cookies := login(token).Result().Cookies()
		if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || strings.Contains(cookies[0].Value, token) {
			t.Fatalf("cookies: %v", cookies)
		}
		with := func(value string) int {
			return answer(h, func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName, Value: value}) }).Code
		}
		if got := with(cookies[0].Value); got != 200 {
			t.Errorf("with the cookie: %d", got)
		}
		if got := with("9" + cookies[0].Value); got != 401 {
			t.Errorf("with a cookie that was changed: %d", got)
		}
		time.Sleep(sessionFor + time.Second)
		if got := with(cookies[0].Value); got != 401 {
			t.Errorf("with an old cookie: %d", got)
		}
	})
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
