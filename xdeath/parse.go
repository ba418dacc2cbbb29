package xdeath

import (
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/header"
)

// Parse reads the headers of a delivery. Without headers, or with none that matter, it
// returns the zero History and nil. Integers may have any width, strings may be byte
// slices.
//
// Parse never panics, on any headers. A value is malformed if it
// has the wrong type, or is a count below 0 or above 2,147,483,647, a string longer than
// 255 bytes that names something (a queue, an exchange, a key, a cause, a user), or an
// instant outside the years 1970 to 9999. The error then joins all faults, each with the name of its header; of an
// array it has the faults of the first malformed entry. The History is usable all the
// same: a malformed header counts as absent, and x-death and x-rehop-history count
// as absent as a whole if one entry is malformed.
func Parse(headers amqp.Table) (History, error) {
	if !hasPast(headers) {
		return History{}, nil
	}
	r := reader{headers: headers}
	h := History{
		Deaths: r.deaths(header.Death),
		First: Point{
			Queue:    r.name(header.FirstDeathQueue),
			Reason:   Reason(r.name(header.FirstDeathReason)),
			Exchange: r.name(header.FirstDeathExchange),
		},
		Last: Point{
			Queue:    r.name(header.LastDeathQueue),
			Reason:   Reason(r.name(header.LastDeathReason)),
			Exchange: r.name(header.LastDeathExchange),
		},
		DeliveryCount: r.count(header.DeliveryCount),
		AcquiredCount: r.count(header.AcquiredCount),

		Queue:         r.name(header.Queue),
		Attempts:      r.count(header.Attempts),
		FinalAttempts: r.count(header.FinalAttempts),
		Exchange:      r.name(header.Exchange),
		RoutingKey:    r.name(header.RoutingKey),
		FirstFailed:   r.time(header.FirstFailedAt),
		NotBefore:     r.millis(header.NotBefore),
		Due:           r.millis(header.Due),
		Earlier:       r.deaths(header.History),
		Snoozes:       r.count(header.Snoozes),
		FirstSnoozed:  r.time(header.FirstSnoozedAt),
		OrderKey:      r.name(header.OrderKey),
		Replays:       r.count(header.Replays),
		Redrives:      r.count(header.Redrives),
		RedriveID:     r.name(header.RedriveID),
		Failure: Failure{
			Cause:     rehop.Cause(r.name(header.Cause)),
			Error:     r.text(header.Error),
			ErrorType: r.text(header.ErrorType),
			Stack:     r.text(header.Stack),
			At:        r.time(header.FailedAt),
			Host:      r.text(header.Host),
		},
		Archived: Archived{
			Expiration: r.name(header.Expiration),
			UserID:     r.name(header.UserID),
			CC:         header.Texts(headers[header.ArchivedCC]),
		},
	}
	h.hasOrigin, h.isLetter = header.HasOrigin(headers), header.IsLetter(headers)
	return h, errors.Join(r.faults...)
}

// hasPast reports whether any header could be one that Parse reads: all their
// names begin with "x-". Most messages have none.
func hasPast(headers amqp.Table) bool {
	for key := range headers {
		if strings.HasPrefix(key, "x-") {
			return true
		}
	}
	return false
}

// reader takes single headers out of a table and collects their faults. A malformed
// header reads as an absent one.
type reader struct {
	headers amqp.Table
	within  string // the part of the headers that the table is, for messages
	faults  []error
}

func (r *reader) fault(key, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("xdeath: %s%s is %s", r.within, key, fmt.Sprintf(format, args...)))
}

func (r *reader) text(key string) string {
	v, found := r.headers[key]
	if !found {
		return ""
	}
	s, ok := header.Text(v)
	if !ok {
		r.fault(key, "a %T, want a string", v)
	}
	return s
}

func (r *reader) name(key string) string {
	s := r.text(key)
	if len(s) > header.MaxName {
		r.fault(key, "%d bytes long, want at most %d", len(s), header.MaxName)
		return ""
	}
	return s
}

func (r *reader) integer(key string, limit int64) int64 {
	v, found := r.headers[key]
	if !found {
		return 0
	}
	n, ok := header.Integer(v)
	switch {
	case !ok:
		r.fault(key, "a %T, want an integer", v)
		return 0
	case n < 0 || n > limit:
		r.fault(key, "%d, want 0 to %d", n, limit)
		return 0
	}
	return n
}

func (r *reader) count(key string) int { return int(r.integer(key, header.MaxCount)) }

func (r *reader) millis(key string) time.Time {
	if n := r.integer(key, header.MaxMillis); n > 0 {
		return time.UnixMilli(n)
	}
	return time.Time{}
}

func (r *reader) time(key string) time.Time {
	v, found := r.headers[key]
	if !found {
		return time.Time{}
	}
	t, ok := v.(time.Time)
	switch {
	case !ok:
		r.fault(key, "a %T, want a timestamp", v)
		return time.Time{}
	case !header.IsInstant(t):
		r.fault(key, "%d seconds after 1970, want the years 1970 to 9999", t.Unix())
		return time.Time{}
	}
	return t
}

// deaths reads an array of the shape of x-death: all of it, or nothing.
func (r *reader) deaths(key string) []Death {
	v, found := r.headers[key]
	if !found {
		return nil
	}
	entries, ok := v.([]any)
	if !ok {
		r.fault(key, "a %T, want an array", v)
		return nil
	}
	var deaths []Death
	for i, entry := range entries {
		table, ok := entry.(amqp.Table)
		if !ok {
			r.fault(fmt.Sprintf("%s[%d]", key, i), "a %T, want a table", entry)
			return nil
		}
		e := reader{headers: table, within: fmt.Sprintf("%s[%d].", key, i)}
		death := e.death()
		if len(e.faults) > 0 { // the first bad entry is enough: there may be thousands, and all of this is logged
			r.faults = append(r.faults, e.faults...)
			return nil
		}
		deaths = append(deaths, death)
	}
	return deaths
}

// death reads one entry of x-death. Queue, reason and count make the entry; the
// broker of every version writes the rest too, except for the expiration.
func (r *reader) death() Death {
	for _, key := range []string{"queue", "reason", "count"} {
		if _, found := r.headers[key]; !found {
			r.fault(key, "absent")
		}
	}
	keys := r.headers["routing-keys"]
	if _, ok := keys.([]any); keys != nil && !ok {
		r.fault("routing-keys", "a %T, want an array", keys)
	}
	return Death{
		Queue:              r.name("queue"),
		Reason:             Reason(r.name("reason")),
		Count:              r.count("count"),
		Exchange:           r.name("exchange"),
		RoutingKeys:        header.Texts(keys),
		Time:               r.time("time"),
		OriginalExpiration: r.name("original-expiration"),
	}
}
