package management

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"encoding/json"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "s3cr3t"

// newAPI returns the API that a server stands for.
func newAPI(t *testing.T, answer http.HandlerFunc) *API {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	a := apiAt(t, "http://mon:"+secret+"@"+strings.TrimPrefix(server.URL, "http://")+"/broker/")
	t.Cleanup(a.Close)
	return a
}

func apiAt(t *testing.T, raw string) *API {
	t.Helper()
	base, login, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return New(base, "/", func(context.Context) (string, string, error) {
		password, _ := login.Password()
		return login.Username(), password, nil
	}, nil)
}

func TestQueue(t *testing.T) {
	a := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "mon" || password != secret || r.URL.EscapedPath() != "/broker/api/queues/%2F/orders%2Feu%20%23" {
			t.Errorf("asked for %s by %q", r.URL.EscapedPath(), user)
		}
		_, _ = w.Write([]byte(`{"type":"quorum","arguments":{"x-message-ttl":60000},"policy":"ttl","operator_policy":null,"effective_policy_definition":{"message-ttl":700}}`))
	})
	got, err := a.Queue(t.Context(), "orders/eu #")
	want := Queue{Type: "quorum", Arguments: map[string]any{"x-message-ttl": json.Number("60000")}, Policy: "ttl", Definition: map[string]any{"message-ttl": json.Number("700")}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestConsumers(t *testing.T) {
	a := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"consumer_details":[{"consumer_tag":"a","channel_details":{"connection_name":"one"}},{"consumer_tag":"b","channel_details":[]}]}`))
	})
	got, err := a.Consumers(t.Context(), "orders")
	if want := []Consumer{{"a", "one"}, {"b", ""}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestNoPolicyIsWrittenInManyWays(t *testing.T) {
	for _, text := range []string{`{}`, `[]`, `""`, `null`} {
		q, err := parse([]byte(`{"type":"classic","arguments":` + text + `,"policy":` + text + `,"effective_policy_definition":` + text + `}`))
		if err != nil || q.Policy != "" || len(q.Definition) != 0 || len(q.Arguments) != 0 || q.Unsure != "" {
			t.Errorf("%s: %+v, %v", text, q, err)
		}
	}
}

// A queue without statistics is not one without policies.
func TestPoliciesThatTheAPIDoesNotKnowYet(t *testing.T) {
	q, err := parse([]byte(`{"type":"quorum","arguments":{"x-queue-type":"quorum"}}`))
	if err != nil || q.Type != "quorum" || !strings.Contains(q.Unsure, "no statistics") {
		t.Errorf("%+v, %v", q, err)
	}
}

func TestAProxyIsNotQuoted(t *testing.T) {
	proxy := unquoted(func(*http.Request) (*url.URL, error) {
		return nil, errors.New("invalid proxy address http://bob:" + secret + "@host")
	})
	if _, err := proxy(nil); err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "HTTP_PROXY") {
		t.Errorf("the error is %v", err)
	}
}

func TestRefusalsSayWhatToDoAndNoPassword(t *testing.T) {
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	defer elsewhere.Close()
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"no such queue":    {http.NotFound, `queue "orders" of virtual host "/": no such queue`},
		"wrong password":   {status(http.StatusUnauthorized), `user "mon" is refused (401 Unauthorized): it needs its password, the tag management`},
		"no permission":    {status(http.StatusForbidden), "refused (403"},
		"out of order":     {status(http.StatusServiceUnavailable), "it answers 503 Service Unavailable"},
		"another host":     {http.RedirectHandler(elsewhere.URL+"?"+secret, http.StatusFound).ServeHTTP, "it answers 302 Found"},
		"something else":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "something else than JSON"},
		"closed in answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "management API at http://127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newAPI(t, test.answer).Queue(t.Context(), "orders")
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("%v; want %q and no password", err, test.want)
			}
			if name == "no such queue" != errors.Is(err, ErrNoQueue) {
				t.Errorf("%v is ErrNoQueue: %v", err, errors.Is(err, ErrNoQueue))
			}
		})
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestAQuestionEndsWithItsContext(t *testing.T) {
	asked := make(chan struct{})
	a := newAPI(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := a.Queue(ctx, "orders"); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), secret) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

func TestNobodyThere(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	address := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	a := apiAt(t, "http://mon:"+secret+"@"+address)
	if _, err := a.Queue(t.Context(), "orders"); err == nil || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "mon") {
		t.Errorf("%v; want that it is refused, without the login", err)
	}
}

func TestParse(t *testing.T) {
	for raw, want := range map[string]string{
		"https://u:p@host/x/":      "https://host/x",
		"http://host:15672":        "http://host:15672",
		"amqp://u:s3cr3t@host":     "error",
		"http://u:s3cr3t@":         "error",
		"http://u:s3cr3t@host?x=1": "error",
		"http://u:s3cr3t#@host":    "error",
		"http://u:s3cr3t/4@host":   "error",
		"http://u:s3cr3t%zz@host":  "error",
	} {
		base, _, err := Parse(raw)
		switch {
		case want == "error":
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v, want an error without the password", raw, err)
			}
		case err != nil || base.String() != want:
			t.Errorf("%s: %v, %v; want %s", raw, base, err, want)
		}
	}
}
