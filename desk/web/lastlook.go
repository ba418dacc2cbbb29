package web

import (
	"context"
	"time"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
)

// lastLook is what the overview tells of the letters of a kept look.
type lastLook struct {
	Seen   desk.Seen // zero: no look is kept
	Oldest time.Time // the earliest failure; zero: no letter tells
	Reason string    // of the largest group; empty: the look has no letters
	Count  int       // of its letters
	Group  string    // its fingerprint
}

// lastLookOf reads a look that a source keeps. It asks no broker.
func lastLookOf(source desk.Source, seen desk.Seen) lastLook {
	l := lastLook{Seen: seen}
	if groups, err := source.Groups(context.Background(), desk.Filter{}); err == nil && len(groups.Groups) > 0 {
		top := groups.Groups[0]
		l.Reason, l.Count, l.Group = reasonOf(top.Example), top.Count, top.Fingerprint
	}
	l.Oldest = oldestOf(source)
	return l
}

// reasonOf is a short text for why a letter failed.
func reasonOf(l desk.Letter) string {
	switch {
	case l.Error != "":
		return said.Group(l.Error)
	case l.Cause != "":
		return string(l.Cause)
	}
	return "no reason is known"
}

// oldestOf returns the earliest failure in a look that a source keeps. Its groups do not tell:
// there are no more than a hundred of them.
func oldestOf(source desk.Source) (oldest time.Time) {
	const step = 1000
	for page := (desk.Page{Limit: step}); ; {
		list, err := source.List(context.Background(), desk.Filter{}, page)
		if err != nil {
			return oldest
		}
		for _, l := range list.Letters {
			if !l.Failed.IsZero() && (oldest.IsZero() || l.Failed.Before(oldest)) {
				oldest = l.Failed
			}
		}
		if len(list.Letters) < step {
			return oldest
		}
		page.After = list.Letters[step-1].Place
	}
}

// lastLooks returns the kept looks by queue.
func (p *places) lastLooks() map[string]lastLook {
	p.mu.Lock()
	defer p.mu.Unlock()
	looks := map[string]lastLook{}
	for _, o := range p.open {
		if o.bytes > 0 {
			looks[o.queue] = o.look
		}
	}
	return looks
}
