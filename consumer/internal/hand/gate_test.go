package hand

import (
	"testing"
	"time"
)

func TestAnOutageBeginsAtItsShareOfTheLastRuns(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		outage Outage
		runs   string // u: unavailable, anything else: not
		want   int    // the run at which the outage begins, from 1; 0: none
	}{
		"half of ten, at once":             {Outage{Of: 10, From: 5, MaxPause: time.Second}, "uuuuuuu", 5},
		"half of ten, among others":        {Outage{Of: 10, From: 5, MaxPause: time.Second}, "u.u.u.u.u.", 9},
		"too few":                          {Outage{Of: 10, From: 5, MaxPause: time.Second}, "u..u..u..u..u..u..u..u..", 0},
		"earlier runs are forgotten":       {Outage{Of: 10, From: 5, MaxPause: time.Second}, "uuuu......u.........uuuu", 0},
		"earlier runs are forgotten, then": {Outage{Of: 4, From: 2, MaxPause: time.Second}, "u...u...u.u", 11},
		"never":                            {Outage{Of: 10, MaxPause: time.Second}, "uuuuuuuuuuuuuuuuuuuu", 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := gate{outage: tt.outage}
			got := 0
			for i, r := range tt.runs {
				if g.note(false, true, r == 'u', now) {
					got = i + 1
					break
				}
			}
			if got != tt.want {
				t.Errorf("the outage begins at run %d, want %d", got, tt.want)
			}
		})
	}
}

func TestAMessageThatIsHandledAgainAndAgainIsNoOutage(t *testing.T) {
	g := gate{outage: Outage{Of: 10, From: 5, MaxPause: time.Second}}
	for i := range 100 {
		if g.note(false, i == 0, true, time.Now()) {
			t.Fatalf("run %d of one message begins an outage", i)
		}
	}
}

func TestInAnOutageOneMessageAtATimeIsHandled(t *testing.T) {
	now := time.Now()
	g := gate{outage: Outage{Of: 2, From: 1, MaxPause: time.Second}}
	if ok, probe, _ := g.may(now); !ok || probe {
		t.Fatal("an open gate lets no message through")
	}
	if !g.note(false, true, true, now) {
		t.Fatal("no outage")
	}
	var longest time.Duration
	for i := range 20 {
		ok, _, again := g.may(now)
		if ok || !again.After(now) {
			t.Fatalf("probe %d: a message may be handled at once, again %v", i, again)
		}
		longest = max(longest, again.Sub(now))
		now = again
		if ok, probe, _ := g.may(now); !ok || !probe {
			t.Fatalf("probe %d: no message may be handled when the pause is over", i)
		}
		g.probe = &Grant{}
		if ok, _, again := g.may(now); ok || !again.IsZero() {
			t.Fatalf("probe %d: a second message may be handled beside it", i)
		}
		if g.note(false, true, true, now) {
			t.Fatalf("probe %d: a run that is no probe changes the gate", i)
		}
		if ok, _, _ := g.may(now); ok {
			t.Fatalf("probe %d: a run that is no probe ends the probe", i)
		}
		if g.note(true, true, true, now) {
			t.Fatalf("probe %d: a probe that fails changes the gate", i)
		}
	}
	if longest > time.Second || longest < time.Second/2 {
		t.Errorf("the longest pause is %v, want up to 1s", longest)
	}
	if !g.note(false, true, false, now) {
		t.Error("a run that works does not end the outage")
	}
	if ok, probe, _ := g.may(now); !ok || probe {
		t.Error("after the outage no message is handled, or as a probe")
	}
	if g.note(false, true, false, now) || !g.note(false, true, true, now) {
		t.Error("the runs before the outage count after it, or no new one begins")
	}
}

func TestAPausedGateLetsNothingThrough(t *testing.T) {
	now := time.Now()
	g := gate{outage: Outage{Of: 2, From: 1, MaxPause: time.Second}, paused: now}
	if ok, _, again := g.may(now); ok || !again.IsZero() {
		t.Error("a paused gate lets a message through, or says when")
	}
	g.note(false, true, true, now)
	if ok, _, _ := g.may(now.Add(time.Hour)); ok {
		t.Error("a paused gate lets a probe through")
	}
	g.paused = time.Time{}
	if ok, probe, _ := g.may(now.Add(time.Hour)); !ok || !probe {
		t.Error("after the pause the outage is forgotten")
	}
}
