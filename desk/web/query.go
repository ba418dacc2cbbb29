package web

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/topology"
)

// Names of the conditions of a filter in an address.
var conditions = []condition{
	{"text", "text"}, {"error", "error"}, {"group", "group"}, {"cause", "cause"}, {"failed", "queue that failed"}, {"etype", "type of the error"},
	{"exchange", "exchange"}, {"key", "routing key"}, {"mid", "message id"}, {"header", "header"}, {"state", "state"},
	{"newer", "failed within"}, {"older", "failed before"}, {"id", "letter"},
}

type condition struct{ Name, Label string }

// others are the fields of forms and addresses that are no condition.
var others = []string{"queue", "store", "after", "from", "behind", "ids", "said", "back", "do", "deed", "picked", "why", "redrive", "all", "rate", "limit", "canary", "to", "look", "these", "there", "body", "edit", "content_type", "header_name", "header_value", "remove", "was", "sort"}

// severalOf are the fields that may be given several times.
var severalOf = []string{"id", "mid", "header", "state", "header_name", "header_value", "remove"}

// checkFields returns what is wrong with the fields of an address or a form that selects letters:
// a condition that would be left out selects more letters than were asked for.
func checkFields(v url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		isCondition := slices.ContainsFunc(conditions, func(c condition) bool { return c.Name == name })
		switch values := v[name]; {
		case !isCondition && !slices.Contains(others, name):
			return fmt.Errorf("%w: there is no field %.40q", errForm, name)
		case len(values) > 1 && !slices.Contains(severalOf, name):
			return fmt.Errorf("%w: %s is given %d times, want it once", errForm, name, len(values))
		case isCondition && slices.ContainsFunc(values, func(value string) bool { return value != "" && strings.TrimSpace(value) == "" }):
			return fmt.Errorf("%w: %s has nothing but spaces, want a text, or nothing", errForm, name)
		}
	}
	if v.Get("queue") != "" && v.Get("store") != "" {
		return fmt.Errorf("%w: queue is %.40q and store is %.40q, want one of them", errForm, v.Get("queue"), v.Get("store"))
	}
	return nil
}

// filterOf reads the conditions of an address.
func filterOf(v url.Values, now time.Time) (f desk.Filter, err error) {
	if err := checkFields(v); err != nil {
		return f, err
	}
	one := func(name string) string { return strings.Join(given(v, name), "") }
	f = desk.Filter{
		Text: one("text"), Error: one("error"), Fingerprint: one("group"), Cause: rehop.Cause(one("cause")), Queue: one("failed"),
		ErrorType: one("etype"), Exchange: one("exchange"), RoutingKey: one("key"),
		IDs: given(v, "id"), MessageIDs: given(v, "mid"), States: given(v, "state"),
	}
	for _, header := range given(v, "header") {
		name, value, _ := strings.Cut(header, "=")
		if _, twice := f.Headers[name]; twice {
			return f, fmt.Errorf("%w: header %.40q is given twice, want it once", errForm, name)
		}
		if f.Headers == nil {
			f.Headers = map[string]string{}
		}
		f.Headers[name] = value
	}
	for name, at := range map[string]*time.Time{"newer": &f.From, "older": &f.Before} {
		text := one(name)
		if text == "" {
			continue
		}
		if d, bad := parseSpan(text); bad == nil && d <= 0 {
			return f, fmt.Errorf("%w: %s is %.40q, want more than 0", errForm, name, text)
		} else if bad == nil {
			*at = now.Add(-d)
		} else if *at, bad = time.Parse(time.RFC3339, text); bad != nil {
			return f, fmt.Errorf("%w: %s is %.40q, want a span such as 30m, 24h or 7d, or a time such as 2026-11-23T10:00:00Z", errForm, name, text)
		}
	}
	return f, nil
}

// conditionsOf is the inverse of filterOf, but for the ids of letters: these leave their place. It has no
// condition if an address cannot have as many.
func conditionsOf(f desk.Filter) url.Values {
	v := url.Values{}
	n := 0
	add := func(name string, values ...string) {
		if values = slices.DeleteFunc(slices.Clone(values), func(value string) bool { return value == "" }); len(values) > 0 {
			v[name] = values
			n += len(values)
		}
	}
	add("text", f.Text)
	add("error", f.Error)
	add("group", f.Fingerprint)
	add("cause", string(f.Cause))
	add("failed", f.Queue)
	add("etype", f.ErrorType)
	add("exchange", f.Exchange)
	add("key", f.RoutingKey)
	add("mid", f.MessageIDs...)
	add("state", f.States...)
	var headers []string
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		header := name
		if value := f.Headers[name]; value != "" {
			header += "=" + value
		}
		headers = append(headers, header)
	}
	add("header", headers...)
	for name, at := range map[string]time.Time{"newer": f.From, "older": f.Before} {
		if !at.IsZero() {
			add(name, exactly(at))
		}
	}
	if n >= maxConditions-2 || len(v.Encode()) > maxQuery/2 { // a page adds its own
		return nil
	}
	return v
}

// parseSpan is time.ParseDuration with days.
func parseSpan(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		d, err := time.ParseDuration(days + "h")
		if d > 100*366*time.Hour {
			return 0, fmt.Errorf("%s is too long", text)
		}
		return d * 24, err
	}
	return time.ParseDuration(text)
}

// filled returns the values that are not empty; nil if there are none.
func filled(values []string) (out []string) {
	for _, v := range values {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, v)
		}
	}
	return out
}

// given returns the values of a condition that are not empty; nil if there are none. The spaces
// around a value are no part of it, but of a text in letters they are.
func given(v url.Values, name string) (out []string) {
	if name != "text" && name != "error" {
		return filled(v[name])
	}
	for _, value := range v[name] {
		if value != "" {
			out = append(out, value)
		}
	}
	return out
}

// onlyFilter returns the conditions of an address, without anything else.
func onlyFilter(v url.Values) url.Values {
	out := url.Values{}
	for _, c := range conditions {
		if values := given(v, c.Name); values != nil {
			out[c.Name] = values
		}
	}
	return out
}

// chip is a condition that is set, with the address without it.
type chip struct {
	Label, Value string
	Without      string
}

// chipsOf returns the conditions of the address of a page, and keeps its order.
func chipsOf(page string, p place, v url.Values) (chips []chip) {
	for _, c := range conditions {
		values := given(v, c.Name)
		for i, value := range values {
			rest := onlyFilter(v)
			rest[c.Name] = slices.Delete(slices.Clone(values), i, i+1)
			chips = append(chips, chip{c.Label, value, address(page, p, rest, "sort", v.Get("sort"))})
		}
	}
	return chips
}

// address is the relative address of a page for a place.
func address(page string, p place, filter url.Values, more ...string) string {
	v := p.values()
	for name, values := range filter {
		v[name] = values
	}
	for i := 0; i+1 < len(more); i += 2 {
		if more[i+1] == "" {
			v.Del(more[i])
		} else {
			v.Set(more[i], more[i+1])
		}
	}
	return page + "?" + v.Encode()
}

// spans are those of trends.
var spans = []struct {
	span time.Duration
	name string
}{
	{time.Hour, "last hour"}, {6 * time.Hour, "last 6 hours"}, {24 * time.Hour, "last 24 hours"}, {7 * 24 * time.Hour, "last 7 days"},
	{30 * 24 * time.Hour, "last 30 days"}, {365 * 24 * time.Hour, "last year"},
}

// spanOf returns the shortest span that reaches back to a time.
func spanOf(first, now time.Time) (time.Duration, string) {
	for _, s := range spans {
		if now.Sub(first) <= s.span {
			return s.span, s.name
		}
	}
	last := spans[len(spans)-1]
	return last.span, last.name
}

// ago says how long a time is past.
func ago(at, now time.Time) string {
	d := now.Sub(at)
	future := d < 0
	d = max(d, -d)
	var text string
	switch {
	case d < 10*time.Second:
		return "now"
	case d < time.Minute:
		text = fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		text = fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		text = fmt.Sprintf("%d h", int(d.Hours()))
	default:
		text = fmt.Sprintf("%d days", int(d.Hours()/24))
	}
	if future {
		return "in " + text
	}
	return text + " ago"
}

// number writes a number with commas between thousands.
func number(n int) string {
	text := fmt.Sprint(max(n, -n))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if n < 0 {
		return "-" + text
	}
	return text
}

func size(n int) string {
	switch {
	case n == 1:
		return "1 byte"
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// some writes a number that may be greater.
func some(n int, more bool) string {
	if more {
		return number(n) + "+"
	}
	return number(n)
}

func someLetters(n int, more bool) string {
	switch {
	case more && n == 0:
		return "letters"
	case more:
		return number(n) + "+ letters"
	}
	return letters(n)
}

func letters(n int) string {
	if n == 1 {
		return "1 letter"
	}
	return number(n) + " letters"
}

// target says where a letter goes that is sent back.
func target(l desk.Letter) string {
	to, known := l.Target()
	if !known {
		return ""
	}
	return addressee(to)
}

// addressee says where a message goes.
func addressee(to topology.Address) string {
	if to.Exchange == "" {
		return "queue " + to.RoutingKey
	}
	return "exchange " + to.Exchange + " with key " + cmp.Or(to.RoutingKey, "(empty)")
}
