package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Form is a queue without its numbers: as it was declared, and the policies that apply.
type Form struct {
	Name string
	Queue
	Durable, AutoDelete, Exclusive bool

	// Leader is the node that leads a quorum queue, and Online are the nodes with a copy of it
	// that are up. They are empty where the answer does not say.
	Leader string
	Online []string
}

// Exchange is what the API says of an exchange.
type Exchange struct {
	Name, Type                    string
	Durable, AutoDelete, Internal bool
	Arguments                     map[string]any
}

// Binding is what the API says of a binding. A destination is a queue or an exchange.
type Binding struct {
	Source, Destination string
	ToExchange          bool
	RoutingKey          string
	Arguments           map[string]any
}

const (
	formColumns     = "columns=name,type,arguments,policy,operator_policy,effective_policy_definition,durable,auto_delete,exclusive,leader,online"
	exchangeColumns = "columns=name,type,durable,auto_delete,internal,arguments"
)

// maxFilter bounds the text of a filter: 4.3 takes a regular expression of 1,024 bytes
// (measured on 4.3.6). Escaped it is three times as long at most, and the broker takes a
// request line of 8,000 bytes.
const maxFilter = 1024

// Forms asks for the queues whose names match one of the regular expressions, and says
// how many queues the virtual host has. The broker filters: other queues cost the wire
// nothing. It takes a request for each 300 of them, of up to 5 s.
func (a *API) Forms(ctx context.Context, names []string) (all []Form, total int, err error) {
	total, err = a.filtered(ctx, "queues", formColumns, names, func(item []byte) (string, error) {
		f, err := parseForm(item)
		if err == nil {
			all = append(all, f)
		}
		return f.Name, err
	}, func() { all = all[:len(all)-1] })
	if err != nil {
		return nil, 0, fmt.Errorf("management API at %s: queues of virtual host %q: %w", a, a.vhost, err)
	}
	return all, total, nil
}

// Form asks for a queue. Unlike Forms it is never behind the broker by a moment.
func (a *API) Form(ctx context.Context, name string) (Form, error) {
	body, err := a.get(ctx, formColumns, "queues", a.vhost, name)
	if err == nil {
		var f Form
		if f, err = parseForm(body); err == nil {
			return f, nil
		}
	}
	return Form{}, fmt.Errorf("management API at %s: queue %q of virtual host %q: %w", a, name, a.vhost, err)
}

// Exchanges asks for the exchanges whose names match one of the regular expressions, as
// Forms does for queues.
func (a *API) Exchanges(ctx context.Context, names []string) (all []Exchange, err error) {
	_, err = a.filtered(ctx, "exchanges", exchangeColumns, names, func(item []byte) (string, error) {
		x, err := parseExchange(item)
		if err == nil {
			all = append(all, x)
		}
		return x.Name, err
	}, func() { all = all[:len(all)-1] })
	if err != nil {
		return nil, fmt.Errorf("management API at %s: exchanges of virtual host %q: %w", a, a.vhost, err)
	}
	return all, nil
}

// Exchange asks for an exchange. Unlike Exchanges it is never behind the broker by a moment.
func (a *API) Exchange(ctx context.Context, name string) (Exchange, error) {
	body, err := a.get(ctx, exchangeColumns, "exchanges", a.vhost, name)
	if err == nil {
		var x Exchange
		if x, err = parseExchange(body); err == nil {
			return x, nil
		}
	}
	return Exchange{}, fmt.Errorf("management API at %s: exchange %q of virtual host %q: %w", a, name, a.vhost, err)
}

// filtered asks for the items of a list whose names match. The broker ignores case, so an
// item is undone whose name does not match in the end.
func (a *API) filtered(ctx context.Context, list, columns string, names []string, each func(item []byte) (name string, err error), undo func()) (total int, err error) {
	seen := map[string]bool{} // by more than one filter
	for len(names) > 0 {
		n, length := 0, len("^(?:)$")
		for n < len(names) && (n == 0 || length+len(names[n]) <= maxFilter) {
			length += len(names[n]) + len("|")
			n++
		}
		pattern := "^(?:" + strings.Join(names[:n], "|") + ")$"
		names = names[n:]
		exact, err := regexp.Compile(pattern)
		if err != nil {
			return 0, err
		}
		total, err = a.pages(ctx, columns, url.Values{"name": {pattern}, "use_regex": {"true"}}, list, func(item []byte) error {
			name, err := each(item)
			switch {
			case err != nil:
				return err
			case seen[name] || !exact.MatchString(name):
				undo()
			}
			seen[name] = true
			return nil
		})
		switch {
		case errors.Is(err, ErrNoQueue):
			return 0, errors.New("it knows no such virtual host; or the user has no permission in it, which 4.3 answers in the same way")
		case err != nil:
			return 0, err
		}
	}
	return total, nil
}

// To asks for the bindings whose destination is a queue, or an exchange. Unlike a list it is
// never behind the broker: its error wraps ErrNoQueue if there is no such part.
func (a *API) To(ctx context.Context, destination string, isExchange bool) ([]Binding, error) {
	if isExchange {
		return a.bindings(ctx, "exchange", destination, "exchanges", a.vhost, destination, "bindings", "destination")
	}
	return a.bindings(ctx, "queue", destination, "queues", a.vhost, destination, "bindings")
}

// From asks for the bindings whose source is an exchange.
func (a *API) From(ctx context.Context, exchange string) ([]Binding, error) {
	return a.bindings(ctx, "exchange", exchange, "exchanges", a.vhost, exchange, "bindings", "source")
}

func (a *API) bindings(ctx context.Context, kind, name string, path ...string) (all []Binding, err error) {
	body, err := a.get(ctx, "", path...)
	var answer []struct {
		Source          string `json:"source"`
		Destination     string `json:"destination"`
		DestinationType string `json:"destination_type"`
		RoutingKey      string `json:"routing_key"`
		Arguments       table  `json:"arguments"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		return nil, fmt.Errorf("management API at %s: bindings of %s %q of virtual host %q: %w", a, kind, name, a.vhost, err)
	}
	for _, b := range answer {
		all = append(all, Binding{b.Source, b.Destination, b.DestinationType == "exchange", b.RoutingKey, b.Arguments})
	}
	return all, nil
}

// MaxQueues asks for the limit of queues of the virtual host, -1 for none.
func (a *API) MaxQueues(ctx context.Context) (int, error) {
	body, err := a.get(ctx, "", "vhost-limits", a.vhost)
	var answer []struct {
		Value struct {
			Queues *int `json:"max-queues"`
		} `json:"value"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		return 0, fmt.Errorf("management API at %s: limits of virtual host %q: %w", a, a.vhost, err)
	}
	for _, l := range answer {
		if l.Value.Queues != nil {
			return *l.Value.Queues, nil
		}
	}
	return -1, nil
}

// Permissions asks what a user may do in the virtual host. An administrator is told; for all others, also for
// that user, the error wraps ErrRefused (measured on 3.10, 4.0 and 4.3). It wraps ErrNoQueue for a user whose
// permissions the broker does not keep itself.
func (a *API) Permissions(ctx context.Context, user string) (configure, write, read string, err error) {
	body, err := a.get(ctx, "", "permissions", a.vhost, user)
	var answer struct {
		Configure *string `json:"configure"`
		Write     *string `json:"write"`
		Read      *string `json:"read"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err == nil && (answer.Configure == nil || answer.Write == nil || answer.Read == nil) {
		err = errors.New("it answers something else than permissions")
	}
	if err != nil {
		return "", "", "", fmt.Errorf("management API at %s: permissions of user %q in virtual host %q: %w", a, user, a.vhost, err)
	}
	return *answer.Configure, *answer.Write, *answer.Read, nil
}

// IsOf returns an error if the API is not that of a cluster, by the name that a node of the cluster gives in the handshake. An
// empty name fits each API.
//
// A cluster that was given no name has a name for each node, that of the node (a cluster of three on 3.10, 4.0 and 4.3:
// rabbit@one, rabbit@two, rabbit@three). Then the API's list of nodes decides, which a user needs the tag monitoring for.
func (a *API) IsOf(ctx context.Context, cluster string) error {
	var answer struct {
		Name string `json:"name"`
	}
	if err := a.ask(ctx, &answer, "", "cluster-name"); err != nil {
		return fmt.Errorf("management API at %s: name of the cluster: %w", a, err)
	}
	if cluster == "" || cluster == answer.Name || answer.Name == "" && !IsNode(cluster) {
		return nil
	}
	err := fmt.Errorf("management API at %s is that of cluster %q, and the connection leads to cluster %q", a, answer.Name, cluster)
	if answer.Name != "" && !IsNode(answer.Name) || !IsNode(cluster) {
		return err
	}
	var nodes []struct {
		Name string `json:"name"`
	}
	if err2 := a.ask(ctx, &nodes, "columns=name", "nodes"); err2 != nil {
		return fmt.Errorf("%w: a cluster without a name has the names of nodes, and the API does not list its nodes: %w; give the user the tag monitoring, or set a name with rabbitmqctl set_cluster_name", err, err2)
	}
	// A name of a cluster has the domain of its host, and that of a node may be without: then its host is in the domain of the API's.
	var domain string
	if at := strings.Index(answer.Name, "."); at >= 0 {
		domain = answer.Name[at:]
	}
	for _, n := range nodes {
		if cluster == n.Name || cluster == n.Name+domain {
			return nil
		}
	}
	return err
}

// ask decodes the answer to a question.
func (a *API) ask(ctx context.Context, answer any, query string, parts ...string) error {
	body, err := a.get(ctx, query, parts...)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, answer)
}

// IsNode reports whether the name of a cluster is that of a node.
func IsNode(cluster string) bool { return strings.Contains(cluster, "@") }

var errNoName = errors.New("it has no name")

func parseForm(body []byte) (Form, error) {
	q, err := parse(body)
	if err != nil {
		return Form{}, err
	}
	var answer struct {
		Name       string   `json:"name"`
		Durable    bool     `json:"durable"`
		AutoDelete bool     `json:"auto_delete"`
		Exclusive  bool     `json:"exclusive"`
		Leader     string   `json:"leader"`
		Online     []string `json:"online"`
	}
	err = json.Unmarshal(body, &answer)
	if err == nil && answer.Name == "" {
		err = errNoName
	}
	if err != nil {
		return Form{}, fmt.Errorf("it answers something else than a queue: %w", err)
	}
	return Form{answer.Name, q, answer.Durable, answer.AutoDelete, answer.Exclusive, answer.Leader, answer.Online}, nil
}

func parseExchange(body []byte) (Exchange, error) {
	var answer struct {
		Name       string `json:"name"`
		Type       string `json:"type"`
		Durable    bool   `json:"durable"`
		AutoDelete bool   `json:"auto_delete"`
		Internal   bool   `json:"internal"`
		Arguments  table  `json:"arguments"`
	}
	err := json.Unmarshal(body, &answer)
	if err == nil && answer.Name == "" {
		err = errNoName
	}
	if err != nil {
		return Exchange{}, fmt.Errorf("it answers something else than an exchange: %w", err)
	}
	return Exchange{answer.Name, answer.Type, answer.Durable, answer.AutoDelete, answer.Internal, answer.Arguments}, nil
}
