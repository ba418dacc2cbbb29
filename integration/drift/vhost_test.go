package drift

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

// vhost is a virtual host of a test, with a connection that has the management API.
type vhost struct {
	*testing.T
	node *nodes.Node
	name string
	conn *connection.Conn
}

// newVhost makes a virtual host for the length of a test. Its name needs escaping in a path.
func newVhost(t *testing.T, n *nodes.Node, name string) *vhost {
	t.Helper()
	v := &vhost{T: t, node: n, name: "drift/" + name}
	v.must(http.MethodPut, "vhosts/"+v.path(), nil)
	t.Cleanup(func() { _, _ = v.call(context.Background(), http.MethodDelete, "vhosts/"+v.path(), nil) })
	v.must(http.MethodPut, "permissions/"+v.path()+"/guest", map[string]any{"configure": ".*", "write": ".*", "read": ".*"})
	v.conn = v.connect(n.ManagementURL())
	return v
}

func (v *vhost) path() string { return url.PathEscape(v.name) }

func (v *vhost) connect(managementURL string) *connection.Conn {
	v.Helper()
	return v.connectAs(nil, managementURL)
}

// connectAs connects as a user, nil for the node's own.
func (v *vhost) connectAs(user *url.Userinfo, managementURL string) *connection.Conn {
	v.Helper()
	u, err := url.Parse(v.node.AMQPURL())
	if err != nil {
		v.Fatal(err)
	}
	u.Path, u.RawPath = "/"+v.name, "/"+v.path()
	if user != nil {
		u.User = user
	}
	conn, err := connection.Open(v.Context(), connection.Config{URLs: []string{u.String()}, ManagementURL: managementURL, OpenTimeout: time.Minute})
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(func() { _ = conn.Close() })
	return conn
}

// calls has the sockets of call, which TestMain closes.
var calls = &http.Client{Transport: &http.Transport{}}

// call calls the management API and returns the answer to a GET.
func (v *vhost) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, v.node.ManagementURL()+"/api/"+path, &text)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := calls.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return answer, err
}

func (v *vhost) must(method, path string, body any) []byte {
	v.Helper()
	answer, err := v.call(v.Context(), method, path, body)
	if err != nil {
		v.Fatal(err)
	}
	return answer
}

type queue struct {
	Name       string         `json:"name,omitempty"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Arguments  map[string]any `json:"arguments"`
}

type exchange struct {
	Name       string         `json:"name,omitempty"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Internal   bool           `json:"internal"`
	Arguments  map[string]any `json:"arguments"`
}

type binding struct {
	Source          string         `json:"source"`
	Destination     string         `json:"destination"`
	DestinationType string         `json:"destination_type"`
	RoutingKey      string         `json:"routing_key"`
	Arguments       map[string]any `json:"arguments"`
}

func (b binding) path(v *vhost) string {
	return fmt.Sprintf("bindings/%s/e/%s/%s/%s", v.path(), url.PathEscape(b.Source), b.DestinationType[:1], url.PathEscape(b.Destination))
}

// definitions are the parts of a virtual host that a declaration makes.
type definitions struct {
	Queues    []queue    `json:"queues"`
	Exchanges []exchange `json:"exchanges"`
	Bindings  []binding  `json:"bindings"`
	Policies  []any      `json:"policies"`
}

func (v *vhost) definitions() (d definitions) {
	v.Helper()
	if err := json.Unmarshal(v.must(http.MethodGet, "definitions/"+v.path(), nil), &d); err != nil {
		v.Fatal(err)
	}
	slices.SortFunc(d.Queues, func(a, b queue) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(d.Exchanges, func(a, b exchange) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(d.Bindings, func(a, b binding) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return d
}

// reset makes the virtual host what it was, and returns an error if it cannot.
func (v *vhost) reset(whole definitions, specs []topology.Spec) {
	v.Helper()
	now := v.definitions()
	has := func(list, item any) bool {
		l := reflect.ValueOf(list)
		for i := range l.Len() {
			if reflect.DeepEqual(l.Index(i).Interface(), item) {
				return true
			}
		}
		return false
	}
	for _, q := range now.Queues {
		if !has(whole.Queues, q) {
			v.must(http.MethodDelete, "queues/"+v.path()+"/"+url.PathEscape(q.Name), nil)
		}
	}
	for _, x := range slices.Concat(now.Exchanges, whole.Exchanges) { // definitions do not have internal ones
		if !has(now.Exchanges, x) || !has(whole.Exchanges, x) {
			_, _ = v.call(v.Context(), http.MethodDelete, "exchanges/"+v.path()+"/"+url.PathEscape(x.Name), nil)
		}
	}
	for _, b := range now.Bindings {
		if !has(whole.Bindings, b) {
			_ = v.unbind(b) // it has gone with its queue or its exchange
		}
	}
	for _, q := range whole.Queues { // of others
		if strings.HasPrefix(q.Name, others) {
			v.must(http.MethodPut, "queues/"+v.path()+"/"+url.PathEscape(q.Name), q)
		}
	}
	for _, x := range whole.Exchanges {
		if strings.HasPrefix(x.Name, others) {
			v.must(http.MethodPut, "exchanges/"+v.path()+"/"+url.PathEscape(x.Name), x)
		}
	}
	if err := topology.Declare(v.Context(), v.conn, specs...); err != nil {
		v.Fatal(err)
	}
	if now := v.definitions(); !reflect.DeepEqual(now, whole) {
		v.Fatalf("the virtual host is not what it was:\n%+v\n%+v", now, whole)
	}
}

// others begins the names of what others declare.
const others = "others"

// unbind deletes a binding.
func (v *vhost) unbind(b binding) error {
	answer, err := v.call(v.Context(), http.MethodGet, b.path(v), nil)
	if err != nil {
		return err
	}
	var list []struct {
		binding
		Key string `json:"properties_key"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return err
	}
	for _, have := range list {
		if reflect.DeepEqual(have.binding, b) {
			_, err := v.call(v.Context(), http.MethodDelete, b.path(v)+"/"+url.PathEscape(have.Key), nil)
			return err
		}
	}
	return fmt.Errorf("no such binding: %+v", b)
}

// verified asks Verify, checks that the virtual host stays as it is, and returns that too.
func (v *vhost) verified(conn *connection.Conn, specs ...topology.Spec) (topology.Drift, definitions) {
	v.Helper()
	before := v.definitions()
	drift, err := topology.Verify(v.Context(), conn, specs...)
	if err != nil {
		v.Fatal(err)
	}
	after := v.definitions()
	if !reflect.DeepEqual(before, after) {
		v.Fatalf("Verify has changed the virtual host:\n%+v\n%+v", before, after)
	}
	return drift, after
}

func (v *vhost) verify(conn *connection.Conn, specs ...topology.Spec) topology.Drift {
	v.Helper()
	drift, _ := v.verified(conn, specs...)
	return drift
}
