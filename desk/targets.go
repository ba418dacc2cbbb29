package desk

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rehop/rehop/topology"
)

// Targets says where letters go that are sent without Redrive.To.
type Targets struct {
	Targets []TargetCount // that of the most letters first
	Doubted int           // letters with a Doubt, which are left
	Unknown int           // letters without a Doubt whose headers name no target, which are left
	Seen
}

// TargetCount is how many letters have a target.
type TargetCount struct {
	To    topology.Address
	Count int
}

// targets counts targets.
type targets struct {
	of map[topology.Address]int
	Targets
}

func (t *targets) add(l Letter) {
	to, known := l.Target()
	switch {
	case l.Doubt != "":
		t.Doubted++
	case !known:
		t.Unknown++
	default:
		if t.of == nil {
			t.of = map[topology.Address]int{}
		}
		t.of[to]++
	}
}

func (t *targets) counted() Targets {
	for to, n := range t.of {
		t.Targets.Targets = append(t.Targets.Targets, TargetCount{to, n})
	}
	slices.SortFunc(t.Targets.Targets, func(a, b TargetCount) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.To.Exchange, b.To.Exchange), cmp.Compare(a.To.RoutingKey, b.To.RoutingKey))
	})
	return t.Targets
}

// Targets counts where letters of the last look go.
func (l *Live) Targets(ctx context.Context, f Filter) (Targets, error) {
	seen, err := l.seen(ctx, false)
	if err != nil {
		return Targets{}, err
	}
	t := targets{Targets: Targets{Seen: seen.seen}}
	for _, letter := range seen.letters {
		if f.Matches(letter) {
			t.add(letter)
		}
	}
	return t.counted(), nil
}

// Targets counts where letters of the store go.
func (c *storeSource) Targets(ctx context.Context, f Filter) (Targets, error) {
	t := targets{Targets: Targets{Seen: Seen{At: time.Now().UTC()}}}
	looked, _, more, err := c.scan(ctx, f, 0, maxMatched, func(l Letter) bool {
		t.add(l)
		return true
	})
	t.Seen.Seen, t.Total, t.More = looked, looked, more
	return t.counted(), err
}
