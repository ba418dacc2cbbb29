package desk

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
)

// Filter selects letters. A letter must match each field that is set. The zero Filter
// selects all letters; a redrive refuses it unless Redrive.All is set. A list that is
// empty and not nil selects nothing. Calls that change letters refuse a text of which nothing
// can be seen, such as a space: nearly every letter has one.
type Filter struct {
	IDs         []string    `json:"ids,omitzero"`         // any of these Letter.ID
	MessageIDs  []string    `json:"message_ids,omitzero"` // any of these
	States      []string    `json:"states,omitzero"`      // of collected letters, a letter in a queue has none; nil: those that wait for a person
	Queue       string      `json:"queue,omitzero"`       // that failed
	Exchange    string      `json:"exchange,omitzero"`    // first published to
	RoutingKey  string      `json:"routing_key,omitzero"`
	Cause       rehop.Cause `json:"cause,omitzero"`
	ErrorType   string      `json:"error_type,omitzero"`
	Fingerprint string      `json:"fingerprint,omitzero"`

	// Error is contained in the error; upper and lower case do not differ.
	Error string `json:"error,omitzero"`

	// Text is contained in the error, a header or the body; upper and lower case
	// differ.
	Text string `json:"text,omitzero"`

	// Headers must all be there. A value that is not empty must be the header's, in
	// the form that fmt.Sprint gives it.
	Headers map[string]string `json:"headers,omitzero"`

	// From and Before bound the time of the failure; From is included. A letter
	// without a time of failure does not match them.
	From   time.Time `json:"from,omitzero"`
	Before time.Time `json:"before,omitzero"`
}

// IsZero reports whether the Filter selects all letters.
func (f Filter) IsZero() bool {
	return f.IDs == nil && f.MessageIDs == nil && f.States == nil && f.Queue == "" && f.Exchange == "" && f.RoutingKey == "" && f.Cause == "" &&
		f.ErrorType == "" && f.Fingerprint == "" && f.Error == "" && f.Text == "" && len(f.Headers) == 0 && f.From.IsZero() && f.Before.IsZero()
}

// Matches reports whether the Filter selects a letter.
func (f Filter) Matches(l Letter) bool {
	equal := func(want, have string) bool { return want == "" || want == have }
	one := func(of []string, have string) bool { return of == nil || slices.Contains(of, have) }
	return one(f.IDs, l.ID) && one(f.MessageIDs, l.Publishing.MessageId) && one(f.States, l.State) &&
		equal(f.Queue, l.Queue) && equal(f.Exchange, l.Exchange) && equal(f.RoutingKey, l.RoutingKey) &&
		equal(string(f.Cause), string(l.Cause)) && equal(f.ErrorType, l.ErrorType) &&
		(equal(f.Fingerprint, l.Fingerprint) || f.Fingerprint == l.lane) &&
		(f.Error == "" || strings.Contains(strings.ToLower(l.Error), strings.ToLower(f.Error))) &&
		f.matchesHeaders(l.Publishing.Headers) && f.matchesTime(l.Failed) && f.matchesText(l)
}

func (f Filter) matchesHeaders(headers amqp.Table) bool {
	for name, want := range f.Headers {
		have, found := headers[name]
		if !found || want != "" && headerText(have) != want {
			return false
		}
	}
	return true
}

// headerText is the value of a header as a person writes it.
func headerText(v any) string {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	}
	return fmt.Sprint(v)
}

func (f Filter) matchesTime(at time.Time) bool {
	return (f.From.IsZero() || !at.IsZero() && !at.Before(f.From)) && (f.Before.IsZero() || !at.IsZero() && at.Before(f.Before))
}

func (f Filter) matchesText(l Letter) bool {
	if f.Text == "" || strings.Contains(l.Error, f.Text) || bytes.Contains(l.Publishing.Body, []byte(f.Text)) {
		return true
	}
	return tableContains(l.Publishing.Headers, f.Text)
}

// tableContains reports whether a name or a value of a table contains a text.
func tableContains(v any, text string) bool {
	switch v := v.(type) {
	case amqp.Table:
		for name, inner := range v {
			if strings.Contains(name, text) || tableContains(inner, text) {
				return true
			}
		}
		return false
	case []any:
		return slices.ContainsFunc(v, func(inner any) bool { return tableContains(inner, text) })
	}
	return strings.Contains(headerText(v), text)
}

// namedValues is how many values of a condition are told one by one.
const namedValues = 3

// String returns the Filter in the form of the command's flags; "all letters" for
// the zero Filter.
func (f Filter) String() string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf("%s=%q", name, value))
		}
	}
	list := func(name string, values []string) {
		switch {
		case values == nil:
		case len(values) > namedValues:
			parts = append(parts, fmt.Sprintf("%d %ss", len(values), name))
		default:
			for _, value := range values { // which may have a comma
				add(name, value)
			}
		}
	}
	list("id", f.IDs)
	list("message-id", f.MessageIDs)
	list("state", f.States)
	add("queue", f.Queue)
	add("exchange", f.Exchange)
	add("key", f.RoutingKey)
	add("cause", string(f.Cause))
	add("error-type", f.ErrorType)
	add("fingerprint", f.Fingerprint)
	add("error", f.Error)
	add("text", f.Text)
	for name, value := range f.Headers {
		add("header", name+"="+value)
	}
	if !f.From.IsZero() {
		add("from", f.From.UTC().Format(time.RFC3339))
	}
	if !f.Before.IsZero() {
		add("before", f.Before.UTC().Format(time.RFC3339))
	}
	if len(parts) == 0 {
		return "all letters"
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}
