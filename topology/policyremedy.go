package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rehop/rehop/internal/ctl"
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
	late := ""
	if have.live {
		late = "; the management API, and so this answer, shows the change up to 10 s late"
	}
	p, set := b.known(have.rules)
	if p.Name == "" {
		return fmt.Sprintf("give %s a pattern that leaves out %s, or take the entry away, also from its other queues%s", b.policy, strings.Join(b.queues, ", "), late)
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
		return ctl.Command(fmt.Sprintf("rabbitmqctl %s --apply-to %s --priority %s", set, ctl.Quote(p.ApplyTo), strconv.Itoa(priority)), have.vhost, name, pattern, string(text))
	}
	if len(rest) > 0 {
		return fmt.Sprintf("give the queues what else it sets by one of a higher priority, and leave all other queues to it: %s%s",
			command(fmt.Sprintf("%s for %s without %s", p.Name, b.queues[0], strings.Join(b.keys, ", ")), "^"+these+"$", p.Priority+1, rest), late)
	}
	return fmt.Sprintf("have it leave the queues out, and stay as it is for all others: %s; one of a lower priority that matches the queues applies to them then%s",
		command(p.Name, "^(?!"+these+"$)(?s:.*)(?:"+p.Pattern+")", p.Priority, p.Definition), late)
}

// known returns the policy as it was set, and the command that sets it; without a name if that is not known.
func (b brokenBy) known(rules *management.Rules) (p management.Policy, set string) {
	quoted, ofOperator := strings.CutPrefix(b.policy, operatorPolicy)
	if !ofOperator {
		quoted = strings.TrimPrefix(b.policy, "policy ")
	}
	name, err := strconv.Unquote(quoted) // not of two policies
	if err != nil || rules == nil {
		return management.Policy{}, ""
	}
	if ofOperator {
		return rules.Named(name, true), "set_operator_policy"
	}
	return rules.Named(name, false), "set_policy"
}
