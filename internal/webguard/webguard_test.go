package webguard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rehop/rehop/internal/webguard"
)

func TestHostsOfAStrangerAreRefused(t *testing.T) {
	for _, tt := range []struct {
		rule, pattern, host string
		fine                bool
	}{
		{"localhost", "/ops/", "localhost", true},
		{"localhost in capitals, with a port", "/ops/", "LocalHost:8080", true},
		{"an address of this machine", "/ops/", "127.0.0.1:8080", true},
		{"an address of version 6", "/ops/", "[::1]:8080", true},
		{"an address of version 6 without a port", "/ops/", "[2001:db8::7]", true},
		{"an address of another network", "/ops/", "10.1.2.3:8080", true},
		{"a name", "/ops/", "attacker.example", false},
		{"a name with a port", "/ops/", "attacker.example:8080", false},
		{"a name without a dot", "/ops/", "orders:8080", false},
		{"a name that begins as an address", "/ops/", "127.0.0.1.attacker.example", false},
		{"a name that ends as localhost", "/ops/", "attacker-localhost", false},
		{"no host", "/ops/", "", false},
		{"a pattern with the host", "shop.example/ops/", "shop.example:8080", true},
		{"a pattern with a method and the host", "GET shop.example/ops/", "shop.example", true},
		{"a pattern with a method", "GET /ops/", "shop.example", false},
	} {
		mux := http.NewServeMux()
		mux.Handle(tt.pattern, http.StripPrefix("/ops", webguard.Hosts(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "no")))
		r := httptest.NewRequest(http.MethodGet, "http://localhost/ops/", nil)
		r.Host = tt.host
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if got := w.Code == http.StatusOK; got != tt.fine {
			t.Errorf("%s: %q behind %q: %d, want it served: %v", tt.rule, tt.host, tt.pattern, w.Code, tt.fine)
		}
	}
}

func TestOtherSitesGetNothingButAVisit(t *testing.T) {
	visit := []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	from := func(site string, more ...string) []string { return append([]string{"Sec-Fetch-Site", site}, more...) }
	for _, tt := range []struct {
		rule, method, path string
		headers            []string
		fine               bool
	}{
		{"a program", "GET", "/open", nil, true},
		{"a program that changes", "POST", "/open", nil, true},
		{"an address that somebody types", "GET", "/open", from("none", visit...), true},
		{"the page's own script", "GET", "/shut", from("same-origin", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"), true},
		{"the page's own form", "POST", "/shut", from("same-origin", visit...), true},
		{"a link on another site", "GET", "/open", from("cross-site", visit...), true},
		{"a link on another port", "GET", "/open", from("same-site", visit...), true},
		{"a link to what has an effect", "GET", "/shut", from("cross-site", visit...), false},
		{"a form of another site", "POST", "/open", from("cross-site", visit...), false},
		{"a form of another port", "POST", "/open", from("same-site", visit...), false},
		{"an image", "GET", "/open", from("cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"), false},
		{"an image on another port", "GET", "/open", from("same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"), false},
		{"a frame", "GET", "/open", from("cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"), false},
		{"a script of another site", "GET", "/open", from("cross-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"), false},
		{"a question before a script's request", "OPTIONS", "/open", from("cross-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"), false},
		{"a HEAD", "HEAD", "/open", from("cross-site", visit...), false},
		{"a word of a later browser", "GET", "/open", from("other-planet"), false},
		{"an Origin alone, of a script", "GET", "/open", []string{"Origin", "https://evil.example"}, false},
		{"an Origin alone, of a sandbox", "GET", "/open", []string{"Origin", "null"}, false},
		{"an Origin alone, of a form", "POST", "/open", []string{"Origin", "https://evil.example"}, false},
		{"an Origin alone, of the page", "POST", "/open", []string{"Origin", "http://localhost:8017"}, true},
		{"an Origin alone, of another port", "POST", "/open", []string{"Origin", "http://localhost:3000"}, false},
	} {
		h := webguard.Sites(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(r *http.Request) bool { return r.URL.Path == "/open" })
		r := httptest.NewRequest(tt.method, "http://localhost:8017"+tt.path, nil)
		for i := 0; i+1 < len(tt.headers); i += 2 {
			r.Header.Set(tt.headers[i], tt.headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Code == http.StatusOK; got != tt.fine {
			t.Errorf("%s: %s %s %q: %d, want it served: %v", tt.rule, tt.method, tt.path, tt.headers, w.Code, tt.fine)
		}
	}
}
