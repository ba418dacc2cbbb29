package copies

import (
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

// maxPairs bounds the history: (queue, reason) pairs, of which the oldest are
// dropped.
const maxPairs = 32

// fold returns all deaths of a message, newest first: those that former copies
// wrote down, those on the broker's header, which the next copy strips, and the
// message's own end if it is a letter. Counts of one (queue, reason) pair
// are added; the rest of an entry is that of the pair's first death, as in
// x-death.
func fold(h xdeath.History, letter bool) []xdeath.Death {
	if len(h.Earlier) == 0 && len(h.Deaths) == 0 && !letter {
		return nil
	}
	all := slices.Concat(h.Earlier, h.Deaths)
	if letter {
		all = append(all, xdeath.Death{
			Queue:       h.Queue,
			Reason:      xdeath.Reason(h.Failure.Cause),
			Count:       1,
			Exchange:    h.Exchange,
			RoutingKeys: []string{h.RoutingKey},
			Time:        h.Failure.At,
		})
	}
	type pair struct {
		queue  string
		reason xdeath.Reason
	}
	at := make(map[pair]int)
	var merged []xdeath.Death
	for _, d := range all {
		i, seen := at[pair{d.Queue, d.Reason}]
		if !seen {
			at[pair{d.Queue, d.Reason}] = len(merged)
			merged = append(merged, d)
			continue
		}
		sum := int(min(int64(merged[i].Count)+int64(d.Count), header.MaxCount))
		if d.Time.Before(merged[i].Time) && !d.Time.IsZero() {
			merged[i] = d
		}
		merged[i].Count = sum
	}
	slices.SortStableFunc(merged, func(a, b xdeath.Death) int { return b.Time.Compare(a.Time) })
	return merged[:min(len(merged), maxPairs)]
}

// tables returns the deaths in the shape in which the broker writes x-death.
func tables(deaths []xdeath.Death) []any {
	list := make([]any, len(deaths))
	for i, d := range deaths {
		entry := amqp.Table{
			"queue":        d.Queue,
			"reason":       string(d.Reason),
			"count":        int64(d.Count),
			"exchange":     d.Exchange,
			"routing-keys": array(d.RoutingKeys),
		}
		setTime(entry, "time", d.Time)
		setText(entry, "original-expiration", d.OriginalExpiration)
		list[i] = entry
	}
	return list
}

func array(list []string) []any {
	values := make([]any, len(list))
	for i, s := range list {
		values[i] = s
	}
	return values
}
