package hand

import (
	"testing"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

func TestLasting(t *testing.T) {
	const short, long = durations.StandsStill - 1, durations.StandsStill
	for rule, c := range map[string]struct {
		gap    time.Duration // before it is so again
		before bool          // at the end of the gap it has been so since the beginning
	}{
		"a short gap is no end": {short, true},
		"a long gap is an end":  {long, false},
	} {
		t.Run(rule, func(t *testing.T) {
			began := time.Now()
			var l lasting
			l.begins(began)
			l.begins(began.Add(time.Hour))
			if !l.isNow() || !l.at(began.Add(time.Hour)).Equal(began) {
				t.Errorf("it is %+v, want since %v", l, began)
			}
			broke := began.Add(2 * time.Hour)
			l.breaks(broke)
			l.breaks(broke.Add(c.gap)) // it is the same gap
			again := broke.Add(c.gap)
			want := time.Time{}
			if c.before {
				want = began
			}
			if at := l.at(again); l.isNow() || !at.Equal(want) {
				t.Errorf("after the gap: since %v, want %v", at, want)
			}
			l.begins(again)
			if !c.before {
				want = again
			}
			if at := l.at(again); !l.isNow() || !at.Equal(want) {
				t.Errorf("when it is so again: since %v, want %v", at, want)
			}
		})
	}
	var never lasting
	never.breaks(time.Now())
	if never.isNow() || !never.at(time.Now()).IsZero() {
		t.Errorf("a gap in nothing: %+v", never)
	}
}
