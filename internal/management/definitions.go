package management

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Definitions is a file of definitions, as rabbitmqctl export_definitions and the API write it.
// It answers the questions that an [API] does.
//
// A file has no queue or exchange that is not durable, no exclusive queue and no internal exchange
// (measured on 3.10, 4.0 and 4.3).
type Definitions struct {
	// Version is the broker that wrote the file.
	Version string

	// Unsure names the policies whose effect the reader cannot tell. Each entry is a sentence.
	Unsure []string

	vhost     string
	queues    map[string]Form
	exchanges map[string]Exchange
	bindings  []Binding
	maxQueues int
	rules     Rules
	topics    []definedTopicPermission

	permissions map[string]definedPermission // by user; nil: the file has no such list
	users       []string
}

// ParseDefinitions reads a file of all virtual hosts, or of one.
func ParseDefinitions(file []byte, vhost string) (*Definitions, error) {
	var all struct {
		Version    string                   `json:"rabbitmq_version"`
		Older      string                   `json:"rabbit_version"`
		Vhosts     []definedVhost           `json:"vhosts"`
		Queues     []definedQueue           `json:"queues"`
		Exchanges  []definedPart            `json:"exchanges"`
		Bindings   []definedBinding         `json:"bindings"`
		Policies   []definedPolicy          `json:"policies"`
		Users      []definedVhost           `json:"users"` // the names are all that is read
		Rights     []definedPermission      `json:"permissions"`
		Topics     []definedTopicPermission `json:"topic_permissions"`
		Parameters []struct {
			Vhost     *string         `json:"vhost"`
			Component string          `json:"component"`
			Name      string          `json:"name"`
			Value     json.RawMessage `json:"value"`
		} `json:"parameters"`
	}
	if err := json.Unmarshal(file, &all); err != nil {
		return nil, fmt.Errorf("it is no file of definitions: %w", err)
	}
	d := &Definitions{Version: cmp.Or(all.Version, all.Older), vhost: vhost, queues: map[string]Form{}, exchanges: map[string]Exchange{}, maxQueues: -1}
	if all.Queues == nil || all.Exchanges == nil || all.Bindings == nil {
		return nil, errors.New("it is no file of definitions: want the lists queues, exchanges and bindings")
	}
	here := func(name *string) bool { return name == nil || *name == vhost } // a file of one virtual host names none
	if all.Vhosts != nil && !slices.ContainsFunc(all.Vhosts, func(v definedVhost) bool { return v.Name == vhost }) {
		return nil, fmt.Errorf("it has no virtual host %q", vhost)
	}
	for _, u := range all.Users {
		d.users = append(d.users, u.Name)
	}
	if all.Rights != nil {
		d.permissions = map[string]definedPermission{}
	}
	for _, p := range all.Rights {
		if here(p.Vhost) {
			d.permissions[p.User] = p
		}
	}
	policies, operators := rules{}, rules{}
	for _, p := range all.Policies {
		if here(p.Vhost) {
			policies = append(policies, p.rule())
		}
	}
	for _, p := range all.Parameters {
		if !here(p.Vhost) {
			continue
		}
		switch p.Component {
		case "operator_policy":
			one := definedPolicy{Name: p.Name}
			if err := json.Unmarshal(p.Value, &one); err != nil {
				return nil, fmt.Errorf("operator policy %q: %w", p.Name, err)
			}
			operators = append(operators, one.rule())
		case "vhost-limits":
			var limits struct {
				Queues *int `json:"max-queues"`
			}
			if err := json.Unmarshal(p.Value, &limits); err != nil {
				return nil, fmt.Errorf("limits of virtual host %q: %w", vhost, err)
			}
			if limits.Queues != nil {
				d.maxQueues = *limits.Queues
			}
		}
	}
	d.rules, d.topics = Rules{policies, operators}, all.Topics
	for _, q := range all.Queues {
		if !here(q.Vhost) {
			continue
		}
		f := Form{Name: q.Name, Durable: q.Durable, AutoDelete: q.AutoDelete}
		f.Type, f.Arguments = q.typeOf(), q.Arguments
		user, unsure := policies.of(d, f)
		operator, unsureToo := operators.of(d, f)
		f.Unsure = cmp.Or(unsure, unsureToo)
		f.Policy, f.OperatorPolicy, f.Definition = user.name, operator.name, together(user.definition, operator.definition)
		d.queues[f.Name] = f
	}
	for _, x := range all.Exchanges {
		if here(x.Vhost) {
			d.exchanges[x.Name] = Exchange{x.Name, x.Type, x.Durable, x.AutoDelete, x.Internal, x.Arguments}
		}
	}
	for _, b := range all.Bindings {
		if here(b.Vhost) {
			d.bindings = append(d.bindings, Binding{b.Source, b.Destination, b.DestinationType == "exchange", b.RoutingKey, b.Arguments})
		}
	}
	return d, nil
}

type definedVhost struct {
	Name string `json:"name"`
}

type definedPart struct {
	Vhost      *string `json:"vhost"`
	Name       string  `json:"name"`
	Type       string  `json:"type"`
	Durable    bool    `json:"durable"`
	AutoDelete bool    `json:"auto_delete"`
	Internal   bool    `json:"internal"`
	Arguments  table   `json:"arguments"`
}

type definedQueue struct{ definedPart }

// typeOf returns the type of a queue: not each version writes it beside the arguments.
func (q definedQueue) typeOf() string {
	if t, _ := q.Arguments["x-queue-type"].(string); t != "" {
		return t
	}
	if q.Type != "" {
		return q.Type
	}
	return "classic"
}

type definedBinding struct {
	Vhost           *string `json:"vhost"`
	Source          string  `json:"source"`
	Destination     string  `json:"destination"`
	DestinationType string  `json:"destination_type"`
	RoutingKey      string  `json:"routing_key"`
	Arguments       table   `json:"arguments"`
}

type definedPolicy struct {
	Vhost      *string `json:"vhost"`
	Name       string  `json:"name"`
	Pattern    string  `json:"pattern"`
	ApplyTo    string  `json:"apply-to"`
	Definition table   `json:"definition"`
	Priority   int     `json:"priority"`
}

type definedPermission struct {
	Vhost     *string `json:"vhost"`
	User      string  `json:"user"`
	Configure string  `json:"configure"`
	Write     string  `json:"write"`
	Read      string  `json:"read"`
}

// ErrNoUser is wrapped by the error of [Definitions.Permissions] for a user whom the file does not have.
var ErrNoUser = errors.New("is not in the file")

// Permissions answers as [API.Permissions] does. A user of the file who has none in the virtual host may do nothing
// there.
func (d *Definitions) Permissions(user string) (configure, write, read string, err error) {
	p, has := d.permissions[user]
	switch {
	case d.permissions == nil:
		return "", "", "", errors.New("the file has no permissions: only one that an administrator has exported, of all virtual hosts, has them")
	case !has && !slices.Contains(d.users, user):
		return "", "", "", fmt.Errorf("user %q %w", user, ErrNoUser)
	}
	return p.Configure, p.Write, p.Read, nil
}

// rule is a policy whose pattern was read.
type rule struct {
	name       string
	text       string         // of the pattern
	pattern    *regexp.Regexp // nil: this package cannot read it
	applyTo    string
	definition map[string]any
	priority   int
}

type rules []rule

// Bytewise returns s with a character for each of its bytes. The broker matches bytes, and takes each byte of a pattern for a
// character: so does package regexp with both of them in this form.
func Bytewise(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

func (p definedPolicy) rule() rule {
	pattern, _ := regexp.Compile(Bytewise(p.Pattern)) // the broker's expressions have more than Go's
	return rule{p.Name, p.Pattern, pattern, p.ApplyTo, p.Definition, p.Priority}
}

// of returns the policy that applies to a queue: one of the highest priority. It also returns why that may be
// another one, "" if it is not. A policy that cannot be read may be that only if its priority is as high.
func (all rules) of(d *Definitions, q Form) (one rule, unsure string) {
	var able rules // by their kind of queue
	for _, r := range all {
		if slices.Contains([]string{"all", "queues", q.Type + "_queues"}, r.applyTo) || r.applyTo == "streams" && q.Type == "stream" {
			able = append(able, r)
		}
	}
	slices.SortStableFunc(able, func(a, b rule) int { return cmp.Compare(b.priority, a.priority) })
	for _, r := range able {
		why := ""
		switch {
		case one.name != "" && r.priority < one.priority:
			return one, unsure
		case r.pattern == nil:
			why = fmt.Sprintf("policy %q: its pattern has what Go's regular expressions do not", r.name)
		case !r.pattern.MatchString(Bytewise(q.Name)):
		case one.name != "":
			why = fmt.Sprintf("policies %q and %q: both match queue %q, with the same priority, and the broker takes either", one.name, r.name, q.Name)
		default:
			one = r
		}
		if why != "" {
			d.unsure(why)
			unsure = cmp.Or(unsure, why)
		}
	}
	return one, unsure
}

func (d *Definitions) unsure(why string) {
	if !slices.Contains(d.Unsure, why) {
		d.Unsure = append(d.Unsure, why)
	}
}

// together returns what a policy and an operator policy say together. Of two numbers the
// broker takes the lower one, and else what the operator says: TestPoliciesOfAFile measures it.
func together(user, operator map[string]any) map[string]any {
	all := maps.Clone(user)
	if all == nil {
		all = map[string]any{}
	}
	for key, value := range operator {
		a, isNumber := all[key].(json.Number)
		b, both := value.(json.Number)
		if isNumber && both {
			x, _ := a.Float64()
			if y, _ := b.Float64(); x < y {
				value = a
			}
		}
		all[key] = value
	}
	return all
}

// Vhost returns the virtual host that the file was read for.
func (d *Definitions) Vhost() string { return d.vhost }

// Forms answers as [API.Forms] does.
func (d *Definitions) Forms(_ context.Context, names []string) (all []Form, total int, err error) {
	all, err = matching(d.queues, names)
	return all, len(d.queues), err
}

// Exchanges answers as [API.Exchanges] does.
func (d *Definitions) Exchanges(_ context.Context, names []string) ([]Exchange, error) {
	return matching(d.exchanges, names)
}

func matching[T any](parts map[string]T, names []string) (all []T, err error) {
	exact, err := regexp.Compile("^(?:" + strings.Join(names, "|") + ")$")
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if exact.MatchString(name) {
			all = append(all, parts[name])
		}
	}
	return all, nil
}

// Form answers as [API.Form] does.
func (d *Definitions) Form(_ context.Context, name string) (Form, error) {
	f, ok := d.queues[name]
	if !ok {
		return Form{}, ErrNoQueue
	}
	return f, nil
}

// Exchange answers as [API.Exchange] does. A file leaves out the exchanges that each virtual host has.
func (d *Definitions) Exchange(_ context.Context, name string) (Exchange, error) {
	x, ok := d.exchanges[name]
	if kind := everywhere[name]; !ok && kind != "" {
		return Exchange{Name: name, Type: kind, Durable: true}, nil
	}
	if !ok {
		return Exchange{}, ErrNoQueue
	}
	return x, nil
}

// everywhere has the kinds of the exchanges that each virtual host has.
var everywhere = map[string]string{
	"amq.direct": "direct", "amq.fanout": "fanout", "amq.headers": "headers", "amq.match": "headers", "amq.topic": "topic", "amq.rabbitmq.trace": "topic",
}

// To answers as [API.To] does.
func (d *Definitions) To(_ context.Context, destination string, isExchange bool) (all []Binding, err error) {
	for _, b := range d.bindings {
		if b.Destination == destination && b.ToExchange == isExchange {
			all = append(all, b)
		}
	}
	return all, nil
}

// From answers as [API.From] does.
func (d *Definitions) From(_ context.Context, exchange string) (all []Binding, err error) {
	for _, b := range d.bindings {
		if b.Source == exchange {
			all = append(all, b)
		}
	}
	return all, nil
}

// MaxQueues answers as [API.MaxQueues] does.
func (d *Definitions) MaxQueues(context.Context) (int, error) { return d.maxQueues, nil }
