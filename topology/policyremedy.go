package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/route"
)

// brokenBy is a policy that breaks promises of queues of the plan.
type brokenBy struct {
	policy       string // as [ruled.policyOf] names it
	queues, keys []string
	at           []int // the differences that tell of it
}

type breaking []brokenBy

// add notes what the difference at an index tells.
func (b *breaking) add(f route.PolicyFault, at int) {
	i := slices.IndexFunc(*b, func(of brokenBy) bool { return of.policy == f.Policy })
	if i < 0 {
		i = len(*b)
		*b = append(*b, brokenBy{policy: f.Policy})
	}
	of := &(*b)[i]
	of.queues, of.keys, of.at = appendNew(of.queues, f.Queue), appendNew(of.keys, f.Key), append(of.at, at)
}

func appendNew(list []string, one string) []string {
	if slices.Contains(list, one) {
		return list
	}
	return append(list, one)
}

// remedy says how the policy breaks no promise of these queues and stays as it is for all others. A queue obeys one policy, that
// of the highest priority. So a policy of a higher priority gives these queues what else the policy sets. A policy must set something
// (3.10 to 4.3 refuse an empty one), so one that sets nothing else leaves the queues out by its pattern. Patterns of the broker have
// lookaheads on each version.
func (b brokenBy) remedy(have observed) string {
	const late = "; the management API shows the change up to 10 s late"
	quoted := make([]string, len(b.queues))
	for i, name := range b.queues {
		quoted[i] = strconv.Quote(name)
	}
	queues := strings.Join(quoted, ", ")
	p, verb := b.known(have.rules)
	if p.Name == "" {
		return fmt.Sprintf("give %s a pattern that leaves out %s, or take the entry away, which takes it from all queues of the policy%s", b.policy, queues, late)
	}
	names := make([]string, len(b.queues))
	for i, name := range b.queues {
		names[i] = regexp.QuoteMeta(name)
	}
	these := names[0]
	if len(names) > 1 {
		these = "(?:" + strings.Join(names, "|") + ")"
	}
	rest := maps.Clone(p.Definition)
	for _, key := range b.keys {
		delete(rest, key)
	}
	command := func(name, pattern string, priority int, entries map[string]any) string {
		text, _ := json.Marshal(entries) // what came as JSON
		return setRule(verb, p.ApplyTo, have.vhost, name, pattern, string(text), "--priority", strconv.Itoa(priority))
	}
	if len(rest) > 0 {
		first := fmt.Sprintf("%s for %s without %s", p.Name, b.queues[0], strings.Join(b.keys, ", "))
		name := first
		for n := 2; have.rules.Named(name, verb == setOperatorPolicy).Name != ""; n++ { // setting it would replace that one
			name = fmt.Sprintf("%s %d", first, n)
		}
		return fmt.Sprintf("set one of a higher priority with the other entries of %s, as they were read, for these queues alone: %s; later changes of %s do not reach them%s", b.policy,
			command(name, "^"+these+"$", p.Priority+1, rest), b.policy, late)
	}
	return fmt.Sprintf("give %s, as it was read, a pattern that leaves out %s and matches all others as before: %s; another policy that matches the queues applies to them then%s", b.policy, queues,
		command(p.Name, "^(?!"+these+"$)(?s:.*)(?:"+p.Pattern+")", p.Priority, p.Definition), late)
}

const setOperatorPolicy = "set_operator_policy"

// known returns the policy as it was set, and the verb of rabbitmqctl that sets it; without a name if that is not known.
func (b brokenBy) known(rules *management.Rules) (p management.Policy, verb string) {
	quoted, ofOperator := strings.CutPrefix(b.policy, operatorPolicy)
	if !ofOperator {
		quoted = strings.TrimPrefix(b.policy, "policy ")
	}
	name, err := strconv.Unquote(quoted) // not of two policies
	if err != nil || rules == nil {
		return management.Policy{}, ""
	}
	if ofOperator {
		return rules.Named(name, true), setOperatorPolicy
	}
	return rules.Named(name, false), "set_policy"
}
