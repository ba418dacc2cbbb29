package management

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The queues that are asked for are got once each, in requests that a broker takes, and
// none that differs by its case.
func TestForms(t *testing.T) {
	var patterns, want []string
	there := map[string]bool{"ORDERS.0001": true} // the broker ignores case
	for i := range 900 {
		name := fmt.Sprintf("orders.%04d", i)
		patterns = append(patterns, regexp.QuoteMeta(name), regexp.QuoteMeta(name)+`(?:\.dlq)?`)
		want, there[name] = append(want, name), true
	}
	requests := 0
	a := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		if n := len(r.RequestURI); n > 8000 {
			t.Errorf("a request line of %d bytes", n)
		}
		q := r.URL.Query()
		if n := len(q.Get("name")); n > 1024 {
			t.Errorf("a filter of %d bytes, which 4.3 refuses", n)
		}
		if q.Get("use_regex") != "true" || !strings.HasSuffix(r.URL.Path, "/api/queues//") {
			t.Errorf("asked for %s", r.RequestURI)
		}
		match := regexp.MustCompile("(?i)" + q.Get("name"))
		var items []map[string]any
		for name := range there {
			if match.MatchString(name) {
				items = append(items, map[string]any{"name": name, "durable": true, "arguments": []any{}})
			}
		}
		slices.SortFunc(items, func(a, b map[string]any) int { return strings.Compare(a["name"].(string), b["name"].(string)) })
		answer := map[string]any{"total_count": 12345, "page_count": 1 + len(items)/7, "items": items[:min(7, len(items))]}
		if q.Get("page") != "1" {
			var page int
			_, _ = fmt.Sscan(q.Get("page"), &page)
			answer["items"] = items[min((page-1)*7, len(items)):min(page*7, len(items))]
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
	forms, total, err := a.Forms(t.Context(), patterns)
	var got []string
	for _, f := range forms {
		got = append(got, f.Name)
	}
	slices.Sort(got)
	if err != nil || total != 12345 || !slices.Equal(got, want) {
		t.Errorf("got %d queues %v, of %d, %v; want %d", len(got), got[:min(5, len(got))], total, err, len(want))
	}
	t.Logf("%d requests", requests)
}

func TestLooks(t *testing.T) {
	for _, tt := range []struct {
		rule, answer string
		status       int
		ask          func(a *API) (any, error)
		want         string // of the answer, or in the error
	}{
		{"an exchange", `{"name":"x","type":"topic","durable":true,"arguments":{"alternate-exchange":"y"}}`, 200, func(a *API) (any, error) { return a.Exchange(t.Context(), "x") }, "{x topic true false false map[alternate-exchange:y]}"},
		{"something else than an exchange", `[]`, 200, func(a *API) (any, error) { return a.Exchange(t.Context(), "x") }, "something else than an exchange"},
		{"a queue without a name", `{}`, 200, func(a *API) (any, error) { return a.Form(t.Context(), "q") }, "something else than a queue: it has no name"},
		{"bindings", `[{"source":"s","destination":"q","destination_type":"queue","routing_key":"k","arguments":{"a":1}}]`, 200, func(a *API) (any, error) { return a.To(t.Context(), "q", false) }, "[{s q false k map[a:1]}]"},
		{"bindings of a queue that is gone", `{}`, 404, func(a *API) (any, error) { return a.To(t.Context(), "q", false) }, "no such queue"},
		{"a list that is refused as 4.3 does", `{}`, 404, func(a *API) (any, error) { _, _, err := a.Forms(t.Context(), []string{"q"}); return nil, err }, "the user has no permission in it"},
		{"no limit", `[]`, 200, func(a *API) (any, error) { return a.MaxQueues(t.Context()) }, "-1"},
		{"a limit of connections", `[{"value":{"max-connections":3}}]`, 200, func(a *API) (any, error) { return a.MaxQueues(t.Context()) }, "-1"},
		{"a limit of no queue", `[{"value":{"max-queues":0}}]`, 200, func(a *API) (any, error) { return a.MaxQueues(t.Context()) }, "0"},
	} {
		a := newAPI(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.answer))
		})
		got, err := tt.ask(a)
		if text := fmt.Sprint(got, err); !strings.Contains(text, tt.want) || strings.Contains(text, secret) {
			t.Errorf("%s: %s, want %s", tt.rule, text, tt.want)
		}
		if tt.rule == "bindings of a queue that is gone" != errors.Is(err, ErrNoQueue) {
			t.Errorf("%s: %v is ErrNoQueue: %t", tt.rule, err, errors.Is(err, ErrNoQueue))
		}
	}
}

func TestPermissions(t *testing.T) {
	for _, tt := range []struct {
		rule, answer string
		status       int
		want         string
		err          error
	}{
		{"permissions", `{"user":"a b","vhost":"/","configure":"^$","write":"","read":".*"}`, 200, "^$,,.*", nil},
		{"nobody but an administrator is told", `{}`, 401, "", ErrRefused},
		{"a user that the broker does not keep", `{}`, 404, "", ErrNoQueue},
		{"something else", `{"user":"a b"}`, 200, "", nil},
		{"no JSON", `<html>`, 200, "", nil},
	} {
		a := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.RequestURI, "/api/permissions/%2F/a%20b") {
				t.Errorf("%s: asked for %s", tt.rule, r.RequestURI)
			}
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.answer))
		})
		configure, write, read, err := a.Permissions(t.Context(), "a b")
		if tt.want != "" {
			if got := strings.Join([]string{configure, write, read}, ","); err != nil || got != tt.want {
				t.Errorf("%s: %s, %v, want %s", tt.rule, got, err, tt.want)
			}
		} else if err == nil || tt.err != nil && !errors.Is(err, tt.err) || !strings.Contains(err.Error(), `permissions of user "a b"`) {
			t.Errorf("%s: %v", tt.rule, err)
		}
	}
}

// Each node of a cluster without a name gives another name in the handshake.
func TestIsOf(t *testing.T) {
	const three, one = `[{"name":"rabbit@one"},{"name":"rabbit@two"},{"name":"hare@three.example"}]`, `[{"name":"rabbit@one"}]`
	for _, tt := range []struct {
		rule, name, nodes, cluster string
		want                       string // in the error
	}{
		{"a name", "shop", "", "shop", ""},
		{"another name", "shop", "", "bank", `is that of cluster "shop", and the connection leads to cluster "bank"`},
		{"the connection leads to a node without a name", "shop", three, "rabbit@one", `leads to cluster "rabbit@one"`},
		{"the API's node is without a name", "rabbit@one", three, "shop", `leads to cluster "shop"`},
		{"the node of the API", "rabbit@one", "", "rabbit@one", ""},
		{"another node", "rabbit@one", three, "rabbit@two", ""},
		{"another node with its domain", "rabbit@one.example", three, "rabbit@two.example", ""},
		{"another node of long names", "rabbit@one", three, "hare@three.example", ""},
		{"a longer host", "rabbit@one", three, "rabbit@twoandmore.example", `leads to cluster "rabbit@twoandmore.example"`},
		{"a node of another cluster", "rabbit@one", one, "rabbit@two", `leads to cluster "rabbit@two"`},
		{"another domain of a node of long names", "rabbit@one", three, "hare@three.example.org", `leads to cluster "hare@three.example.org"`},
		{"a user who may not see the nodes", "rabbit@one", "", "rabbit@two", "give the user the tag monitoring"},
		{"a node of the same name in another domain", "rabbit@one.staging", three, "rabbit@one.live", `leads to cluster "rabbit@one.live"`},
		{"a domain that the API's node does not have", "rabbit@two", three, "rabbit@one.live", `leads to cluster "rabbit@one.live"`},
		{"the API has no name, and the broker has one", "", "", "shop", ""},
		{"the API has no name, and has the node", "", three, "rabbit@two", ""},
		{"the API has no name, and does not have the node", "", one, "rabbit@two", `leads to cluster "rabbit@two"`},
		{"the API has neither a name nor nodes", "", "null", "rabbit@two", `leads to cluster "rabbit@two"`},
		{"the broker says none", "shop", "", "", ""},
		{"something else", "\"}<html>", "", "shop", "name of the cluster: invalid character"},
	} {
		a := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/cluster-name"):
				_, _ = fmt.Fprintf(w, `{"name":"%s"}`, tt.name)
			case tt.nodes == "" || !strings.HasSuffix(r.URL.Path, "/nodes"):
				w.WriteHeader(http.StatusUnauthorized)
			default:
				_, _ = w.Write([]byte(tt.nodes))
			}
		})
		err := a.IsOf(t.Context(), tt.cluster)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret)) {
			t.Errorf("%s: %v, want %q", tt.rule, err, tt.want)
		}
	}
}
