// Package management asks the HTTP API of the broker's management plugin for what
// AMQP does not show.
package management

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/rawurl"
)

// timeout bounds one question.
const timeout = 5 * time.Second

// idleTimeout is how long a connection is kept for the next question.
const idleTimeout = 10 * time.Second

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// ErrNoQueue is wrapped by the error of [API.Queue] for a queue that the API does
// not know.
var ErrNoQueue = errors.New("no such queue")

// ErrRefused is wrapped by the error of a question that the API does not answer this user.
var ErrRefused = errors.New("refused")

// ErrFailed is wrapped by the error of a question that the API fails at, and that says nothing about others.
var ErrFailed = errors.New("it answers 500 Internal Server Error")

// API is the management API of one cluster. It is safe for concurrent use.
type API struct {
	base   *url.URL // without a login
	vhost  string
	login  func(ctx context.Context) (user, password string, err error)
	client *http.Client
}

// Parse returns the address in raw and the login that it names, nil for none. Its
// errors quote nothing of raw, any of which may be part of a password.
func Parse(raw string) (base *url.URL, login *url.Userinfo, err error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || rawurl.IsMisread(raw):
		return nil, nil, errors.New("is not a valid URL; percent-encode reserved characters in user and password")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, nil, errors.New("does not start with http:// or https://")
	case u.Hostname() == "":
		return nil, nil, errors.New("names no host, want such as http://user:password@host:15672")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, nil, errors.New("has a query, want none")
	}
	login = u.User
	u.User = nil
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, login, nil
}

// New returns the API at an address that Parse has returned. login is called for
// each question, cfg may be nil.
func New(base *url.URL, vhost string, login func(context.Context) (user, password string, err error), cfg *tls.Config) *API {
	transport := &http.Transport{
		Proxy:             unquoted(http.ProxyFromEnvironment),
		TLSClientConfig:   cfg,
		ForceAttemptHTTP2: true,
		IdleConnTimeout:   idleTimeout,
	}
	return &API{base: base, vhost: vhost, login: login, client: &http.Client{
		Transport: transport,
		// The login is for this host, and an answer of another one is none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// unquoted returns proxy with an error that does not quote the address of the proxy, which may
// have a password.
func unquoted(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		u, err := proxy(r)
		if err != nil {
			return nil, errors.New("HTTP_PROXY or HTTPS_PROXY is not a valid URL; percent-encode reserved characters in user and password")
		}
		return u, nil
	}
}

// String returns the address without its login.
func (a *API) String() string { return a.base.String() }

// Vhost returns the name of the virtual host.
func (a *API) Vhost() string { return a.vhost }

// Close closes idle connections. A question after it opens another one.
func (a *API) Close() { a.client.CloseIdleConnections() }

// Queue is what the API says of a queue.
type Queue struct {
	Type      string
	Arguments map[string]any

	// Policy and OperatorPolicy name the policies that apply to it, "" for none,
	// and Definition is what they say together.
	Policy, OperatorPolicy string
	Definition             map[string]any

	// Unsure says why Definition is not known, "" if it is.
	Unsure string
}

// noStatistics is why policies are not known: the API writes them with the statistics of a queue, which it
// gets every few seconds.
const noStatistics = "the management API has no statistics of the queue yet, which the policies come with; ask again after 10 s"

// Queue asks for a queue, for up to 5 s. Numbers in its tables are json.Number.
func (a *API) Queue(ctx context.Context, name string) (Queue, error) {
	q, err := a.queue(ctx, name)
	if err != nil {
		return Queue{}, fmt.Errorf("management API at %s: queue %q of virtual host %q: %w", a, name, a.vhost, err)
	}
	return q, nil
}

func (a *API) queue(ctx context.Context, name string) (Queue, error) {
	body, err := a.get(ctx, "columns=type,arguments,policy,operator_policy,effective_policy_definition", "queues", a.vhost, name)
	if err != nil {
		return Queue{}, err
	}
	return parse(body)
}

// get returns the answer to a question for a path of these parts.
func (a *API) get(ctx context.Context, query string, parts ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, pause.Own(fmt.Errorf("no answer within %v", timeout)))
	defer cancel()
	u := *a.base
	u.Path += "/api"
	u.RawPath = a.base.EscapedPath() + "/api"
	for _, part := range parts {
		u.Path += "/" + part
		u.RawPath += "/" + url.PathEscape(part)
	}
	u.RawQuery = query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	user, password, err := a.login(ctx)
	if err != nil {
		return nil, err
	}
	request.SetBasicAuth(user, password)
	response, err := a.client.Do(request)
	if err != nil {
		var about *url.Error // it repeats the address
		if errors.As(err, &about) {
			err = about.Err
		}
		if ctx.Err() != nil {
			err = pause.Ended(ctx)
		}
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case response.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%w: is it the API of this cluster, and its management plugin enabled?", ErrNoQueue)
	case response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("user %q is %w (%s): it needs its password, the tag management, and a permission in the virtual host", user, ErrRefused, response.Status)
	case response.StatusCode == http.StatusInternalServerError:
		return nil, ErrFailed
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answers %s", response.Status)
	case err != nil:
		return nil, err
	}
	return body, nil
}

// parse reads an answer. Brokers before 4.3 write an empty table in several ways.
func parse(body []byte) (Queue, error) {
	var answer struct {
		Type           string          `json:"type"`
		Arguments      table           `json:"arguments"`
		Policy         name            `json:"policy"`
		OperatorPolicy name            `json:"operator_policy"`
		Definition     json.RawMessage `json:"effective_policy_definition"` // nil: it has none yet
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Queue{}, fmt.Errorf("it answers something else than JSON: %w", err)
	}
	q := Queue{Type: answer.Type, Arguments: answer.Arguments, Policy: string(answer.Policy), OperatorPolicy: string(answer.OperatorPolicy)}
	if answer.Definition == nil {
		q.Unsure = noStatistics
		return q, nil
	}
	var definition table
	err := json.Unmarshal(answer.Definition, &definition)
	q.Definition = definition
	return q, err
}

// table is an object, or empty if it is anything else.
type table map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (t *table) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	var entries map[string]any
	if d.Decode(&entries) == nil {
		*t = entries
	}
	return nil
}

// name is a string, or empty if it is anything else.
type name string

// UnmarshalJSON implements json.Unmarshaler.
func (n *name) UnmarshalJSON(text []byte) error {
	var s string
	if json.Unmarshal(text, &s) == nil {
		*n = name(s)
	}
	return nil
}
