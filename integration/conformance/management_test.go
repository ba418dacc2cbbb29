package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// manage calls the management API of the broker, where rabbitmqctl would start an
// Erlang virtual machine for each call. It sends body if that is not nil, and reads
// the answer into another value if that is not nil.
func (e *env) manage(ctx context.Context, method, path string, body, into any) {
	e.Helper()
	var text strings.Builder
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			e.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, e.node.ManagementURL()+"/api/"+path, strings.NewReader(text.String()))
	if err != nil {
		e.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // or its goroutines outlive the test
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		e.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotFound {
		e.Fatalf("%s %s: %s", method, path, resp.Status)
	}
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			e.Fatal(err)
		}
	}
}

// vhost is "/" in a path of the API.
const vhost = "%2F"

// addUser makes a user with these permissions for the length of the test, and
// returns its URL.
func (e *env) addUser(what, configure, write, read string) string {
	e.Helper()
	user := e.name(what)
	e.manage(e.Context(), http.MethodPut, "users/"+user, map[string]any{"password": "secret", "tags": ""}, nil)
	e.Cleanup(func() { e.manage(context.Background(), http.MethodDelete, "users/"+user, nil, nil) })
	e.manage(e.Context(), http.MethodPut, "permissions/"+vhost+"/"+user, map[string]any{"configure": configure, "write": write, "read": read}, nil)
	u, err := url.Parse(e.node.AMQPURL())
	if err != nil {
		e.Fatal(err)
	}
	u.User = url.UserPassword(user, "secret")
	return u.String()
}

// setPolicy sets a policy, of kind "policies" or "operator-policies", for the queues
// whose names match, and returns what takes it away, which happens at the latest when
// the test ends.
func (e *env) setPolicy(kind, what, pattern string, definition map[string]any) (clear func()) {
	e.Helper()
	path := kind + "/" + vhost + "/" + e.name(what)
	e.manage(e.Context(), http.MethodPut, path, map[string]any{"pattern": pattern, "apply-to": "queues", "definition": definition}, nil)
	clear = func() { e.manage(context.Background(), http.MethodDelete, path, nil, nil) }
	e.Cleanup(clear)
	return clear
}
