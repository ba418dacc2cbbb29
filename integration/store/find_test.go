package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/xdeath"
)

func TestFindAndGroups(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		before := time.Now()
		for i := range 10 {
			must(t, s.Put(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: fmt.Sprint("r-", i), Body: fmt.Appendf(nil, "order=%d?", i), Headers: amqp.Table{"tenant": "acme"}}, fmt.Errorf("order %d: %w", i, producer.ErrReturned)))
		}
		for i := range 5 {
			must(t, s.Put(t.Context(), producer.Message{Exchange: "bank", RoutingKey: "k'--", ID: fmt.Sprint("a-", i)}, fmt.Errorf("dial 10.0.0.%d: %w", i, connection.ErrSessionLost)))
		}
		queries := []struct {
			rule string
			q    store.Query
			want int
		}{
			{"all", store.Query{}, 15},
			{"state", store.Query{States: []store.State{store.Held}}, 10},
			{"states", store.Query{States: []store.State{store.Held, store.Ready}}, 15},
			{"exchange", store.Query{Exchange: "bank"}, 5},
			{"key with a quote", store.Query{RoutingKey: "k'--"}, 5},
			{"cause", store.Query{Cause: rehop.CauseUnroutable}, 10},
			{"message ids", store.Query{MessageIDs: []string{"r-1", "a-1", "none"}}, 2},
			{"text in the body", store.Query{Text: "order=7?"}, 1},
			{"text in the error", store.Query{Text: "10.0.0.3"}, 1},
			{"text in the headers", store.Query{Text: "acme"}, 10},
			{"text is no pattern", store.Query{Text: "order=_"}, 0},
			{"text has cases", store.Query{Text: "ORDER=7"}, 0},
			{"stored since", store.Query{From: before.Add(-time.Second)}, 15},
			{"stored before", store.Query{Before: before.Add(-time.Second)}, 0},
			{"together", store.Query{Exchange: "shop", States: []store.State{store.Ready}}, 0},
		}
		for _, row := range queries {
			n, err := s.Count(t.Context(), row.q)
			if n != row.want || err != nil || len(find(t, s, row.q)) != row.want {
				t.Errorf("%s: %d and %v, want %d", row.rule, n, err, row.want)
			}
		}
		var ids []string
		for q := (store.Query{Limit: 4}); ; {
			page := find(t, s, q)
			if len(page) == 0 {
				break
			}
			for _, l := range page {
				ids = append(ids, l.Message.ID)
			}
			q.After = page[len(page)-1].Number
		}
		if len(ids) != 15 || ids[0] != "r-0" || ids[14] != "a-4" {
			t.Errorf("pages of 4 gave %q", ids)
		}
		groups, _, err := s.Groups(t.Context(), store.Query{States: []store.State{store.Ready, store.Held}})
		must(t, err)
		if len(groups) != 2 || groups[0].Count != 10 || groups[1].Count != 5 || groups[0].Example.Message.ID != "r-0" || groups[0].First.IsZero() || groups[0].Last.Before(groups[0].First) {
			t.Errorf("groups %+v", groups)
		}
		if n, _ := s.Count(t.Context(), store.Query{Fingerprint: groups[1].Fingerprint}); n != 5 {
			t.Errorf("%d letters of the second group, want 5", n)
		}
	})
}

// TestAQueryOfWhatIsNoText: a name that a database cannot hold as text is compared as the
// Store has it, and is no error.
func TestAQueryOfWhatIsNoText(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for _, odd := range []string{"a\x00b", "a\xff", strings.Repeat("\xff", 255)} {
			must(t, s.Collect(t.Context(), &consumer.Delivery{ID: odd, Exchange: odd, RoutingKey: odd, History: xdeath.History{Queue: odd, Failure: xdeath.Failure{Cause: rehop.Cause(odd), Error: odd, ErrorType: odd}}}))
			for name, q := range map[string]store.Query{
				"cause": {Cause: rehop.Cause(odd)}, "type": {ErrorType: odd}, "cause of held": {Cause: rehop.Cause(odd), States: []store.State{store.Held}},
			} {
				n, err := s.Count(t.Context(), q)
				groups, _, errGroups := s.Groups(t.Context(), q)
				if n != 1 || len(groups) != 1 || err != nil || errGroups != nil {
					t.Errorf("%s %.10q: %d letters, %v; %d groups, %v; want 1", name, odd, n, err, len(groups), errGroups)
				}
			}
			q := store.Query{Fingerprint: odd}
			n, err := s.Count(t.Context(), q)
			groups, _, errGroups := s.Groups(t.Context(), q)
			if n != 0 || len(groups) != 0 || err != nil || errGroups != nil {
				t.Errorf("fingerprint %.10q: %d letters, %v; %d groups, %v; want none", odd, n, err, len(groups), errGroups)
			}
			_, err = s.Delete(t.Context(), store.Query{All: true})
			must(t, err)
		}
	})
}
