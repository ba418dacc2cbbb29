package desk

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/desk/internal/said"
)

// Which returns the letters of the redrive in words: the conditions of its Filter, its Look
// and its Limit.
func (r Redrive) Which() string {
	text := r.Filter.String()
	if len(r.MessageIDs) > 0 {
		rest := r.Filter
		rest.IDs = nil
		var parts []string
		for _, id := range r.MessageIDs {
			parts = append(parts, fmt.Sprintf("letter=%q", said.Ends(id, longID)))
		}
		if !rest.IsZero() {
			parts = append(parts, rest.String())
		}
		text = strings.Join(parts, " ")
	}
	if !r.Look.IsZero() {
		text += ", of the look at " + r.Look.UTC().Format(time.DateTime+" UTC")
	}
	if r.Limit > 0 {
		text += fmt.Sprintf(", at most %d", r.Limit)
	}
	return text
}

// longID is how many bytes of a message id are told at most.
const longID = 40

// messageIDs returns Redrive.MessageIDs, if letters have them.
func (f Filter) messageIDs(letters []Letter) (ids []string) {
	if len(f.IDs) > namedValues {
		return nil
	}
	for _, id := range f.IDs {
		at := slices.IndexFunc(letters, func(l Letter) bool { return l.ID == id })
		if at < 0 || letters[at].Publishing.MessageId == "" {
			return nil
		}
		ids = append(ids, letters[at].Publishing.MessageId)
	}
	return ids
}

// least returns the smaller of n and Redrive.Limit.
func (r Redrive) least(n int) int {
	if r.Limit > 0 {
		return min(n, r.Limit)
	}
	return n
}

// Total returns how many letters the redrive is about. about is empty if it is about so many
// letters, "at most" if more will not be tried, and "at least" if nobody has counted them: n
// are known by now.
func (p Progress) Total() (n int, about string) {
	switch known := max(p.Matched, p.Done+p.Failed+p.Skipped); {
	case p.State == Done:
		return known, ""
	case p.Bound > 0:
		return p.Bound, ""
	case p.Redrive.Limit > 0:
		return p.Redrive.Limit, "at most"
	default:
		return known, "at least"
	}
}

// PerSecond returns how many letters a second the process has done that works on the redrive,
// or worked on it last; 0 if that is not known.
func (p Progress) PerSecond() float64 {
	took := p.Updated.Sub(p.Began).Seconds()
	if took < 0.5 || p.Done < p.DoneBefore {
		return 0
	}
	return float64(p.Done-p.DoneBefore) / took
}

// Most returns how many letters of the place the Filter of the list selects: exactly n, or at
// most n if the list is about a part of the place.
func (l List) Most() (n int, exact bool) {
	if l.Bound == "" && !l.More {
		return l.Matched, true
	}
	return max(l.Total, l.Matched), false
}

// check returns what is wrong with the Filter of a call that changes letters. A text that nobody
// can see looks like no condition, and selects nearly all letters.
func (f Filter) check() error {
	var errs []error
	blank := func(name, value string) {
		if value != "" && isBlank(value) {
			errs = append(errs, fmt.Errorf("desk: Filter.%s is %.40q, want a text that can be seen, or none", name, value))
		}
	}
	blank("Text", f.Text)
	blank("Error", f.Error)
	blank("Queue", f.Queue)
	blank("Exchange", f.Exchange)
	blank("RoutingKey", f.RoutingKey)
	blank("Cause", string(f.Cause))
	blank("ErrorType", f.ErrorType)
	blank("Fingerprint", f.Fingerprint)
	for name, values := range map[string][]string{"IDs": f.IDs, "MessageIDs": f.MessageIDs, "States": f.States} {
		for i, value := range values {
			if isBlank(value) {
				errs = append(errs, fmt.Errorf("desk: Filter.%s[%d] is %.40q, want a text that can be seen", name, i, value))
			}
		}
	}
	for name, value := range f.Headers {
		if isBlank(name) {
			errs = append(errs, fmt.Errorf("desk: Filter.Headers has the name %.40q, want a text that can be seen", name))
		}
		blank("Headers["+name+"]", value)
	}
	return rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// isBlank reports whether a text shows nothing to a person.
func isBlank(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) })
}

// lettersOf returns the identities of the letters that a redrive with a Look is about; nil for
// one without.
func (l *Live) lettersOf(r Redrive) ([]string, error) {
	if r.Look.IsZero() {
		return nil, nil
	}
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	if last == nil || !last.seen.At.Equal(r.Look) {
		return nil, fmt.Errorf("%w %q since the look at %s was taken over by another one, or by a redrive that was cut off: look again",
			ErrNotLooked, l.queue, r.Look.UTC().Format(time.DateTime+" UTC"))
	}
	ids := []string{}
	for _, letter := range last.letters {
		if r.Filter.Matches(letter) {
			ids = append(ids, letter.ID)
		}
	}
	return ids, nil
}

// room is which letters a redrive may still take out of a queue, besides those that it has sent
// and that are still there.
type room struct {
	alike map[string]int // how many letters of each digest: of its look, or that it has seen
	known int            // letters of alike
	tail  int            // how many letters that were there when it began it has not seen
}

// room returns the room of a redrive at the begin of a turn. Without a look, the first pass through
// the queue goes by the number of the letters that were there when the redrive began, which come
// first. The passes after it go by the letters that the first one saw.
func (p past) room(r Redrive) room {
	of, ids := room{alike: map[string]int{}}, p.look
	if r.Look.IsZero() {
		ids, of.tail = p.seen, p.there-len(p.seen)
	}
	for _, id := range ids {
		of.alike[digestOf(id)]++
	}
	of.known = len(ids)
	for key := range p.sent {
		digest := digestOf(key)
		switch {
		case p.doubted[key]: // it may have been sent before, and has no room of its own
		case of.alike[digest] > 0:
			of.alike[digest]--
			of.known--
		default: // an earlier version of rehop noted no letter that it saw
			of.tail--
		}
	}
	if of.tail = max(of.tail, 0); p.passed && len(p.seen) > 0 {
		of.tail = 0
	}
	return of
}

// left is how many letters have room.
func (o room) left() int { return o.known + o.tail }

// takes reports whether the redrive may have a letter, and takes its room. first says that the
// redrive has not seen the letter before.
func (o *room) takes(digest string) (takes, first bool) {
	switch {
	case o.alike[digest] > 0:
		o.alike[digest]--
		o.known--
		return true, false
	case o.tail > 0:
		o.tail--
		return true, true
	}
	return false, false
}

// digestOf is the inverse of numbered.
func digestOf(id string) string {
	digest, _, _ := strings.Cut(id, ".")
	return digest
}

// bound returns how many letters the redrive is about, 0 if nobody knows.
func (p past) bound(r Redrive) int {
	switch {
	case !r.Look.IsZero():
		return r.least(len(p.look))
	case r.Filter.IsZero():
		return r.least(p.there)
	}
	return 0
}
