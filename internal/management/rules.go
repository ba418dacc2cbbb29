package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Rules are the policies and the operator policies of a virtual host.
type Rules struct{ user, operator rules }

// Policy is one that applies to a queue. It has no name if none does.
type Policy struct {
	Name       string
	Definition map[string]any

	Pattern, ApplyTo string
	Priority         int
}

// Of returns the policies that apply to a queue of this name and type, or that would if it existed. It also returns why
// they may be other ones, "" if they are not.
func (r Rules) Of(q Form) (user, operator Policy, unsure string) {
	var sure Definitions // notes it
	u, why := r.user.of(&sure, q)
	o, whyToo := r.operator.of(&sure, q)
	if why == "" {
		why = whyToo
	}
	return u.policy(), o.policy(), why
}

func (r rule) policy() Policy { return Policy{r.name, r.definition, r.text, r.applyTo, r.priority} }

// Named returns the policy, or operator policy, of a name, without a name if there is none.
func (r Rules) Named(name string, ofOperator bool) Policy {
	list := r.user
	if ofOperator {
		list = r.operator
	}
	for _, one := range list {
		if one.name == name {
			return one.policy()
		}
	}
	return Policy{}
}

// Together returns what two policies say together.
func Together(user, operator Policy) map[string]any {
	return together(user.Definition, operator.Definition)
}

// Rules asks for the policies of the virtual host. The tag management is enough (measured on 3.10, 4.0 and 4.3).
func (a *API) Rules(ctx context.Context) (all Rules, err error) {
	if all.user, err = a.rules(ctx, "policies"); err == nil {
		all.operator, err = a.rules(ctx, "operator-policies")
	}
	if err != nil {
		return Rules{}, fmt.Errorf("management API at %s: policies of virtual host %q: %w", a, a.vhost, err)
	}
	return all, nil
}

func (a *API) rules(ctx context.Context, kind string) (all rules, err error) {
	body, err := a.get(ctx, "", kind, a.vhost)
	var answer []definedPolicy
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	for _, p := range answer {
		all = append(all, p.rule())
	}
	return all, err
}

// Rules answers as [API.Rules] does.
func (d *Definitions) Rules(context.Context) (Rules, error) { return d.rules, nil }

// TopicPermission is what a user may do on a topic exchange, by the routing key.
type TopicPermission struct{ Exchange, Write, Read string }

type definedTopicPermission struct {
	Vhost    *string `json:"vhost"`
	User     string  `json:"user"`
	Exchange string  `json:"exchange"`
	Write    string  `json:"write"`
	Read     string  `json:"read"`
}

// TopicPermissions asks for the topic permissions of a user in the virtual host. An administrator is told; others get 401, and 404
// says that there are none (measured on 3.10, 4.0 and 4.3).
func (a *API) TopicPermissions(ctx context.Context, user string) (all []TopicPermission, err error) {
	body, err := a.get(ctx, "", "topic-permissions", a.vhost, user)
	if errors.Is(err, ErrNoQueue) {
		return nil, nil
	}
	var answer []definedTopicPermission
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		return nil, fmt.Errorf("management API at %s: topic permissions of user %q in virtual host %q: %w", a, user, a.vhost, err)
	}
	for _, p := range answer {
		all = append(all, TopicPermission{p.Exchange, p.Write, p.Read})
	}
	return all, nil
}

// TopicPermissions answers as [API.TopicPermissions] does.
func (d *Definitions) TopicPermissions(user string) (all []TopicPermission) {
	for _, p := range d.topics {
		if p.User == user && (p.Vhost == nil || *p.Vhost == d.vhost) {
			all = append(all, TopicPermission{p.Exchange, p.Write, p.Read})
		}
	}
	return all
}
