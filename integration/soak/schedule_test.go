package main

import (
	"slices"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/nodes"
)

var everyCard = slices.Concat(onConnections, onBroker)

func TestASeedDrawsTheSameScheduleAgain(t *testing.T) {
	draw := func(seed uint64) []fault { return schedule(seed, 10*time.Minute, 2*time.Second, everyCard) }
	if !slices.Equal(draw(7), draw(7)) {
		t.Error("two schedules of one seed differ")
	}
	if slices.Equal(draw(7), draw(8)) {
		t.Error("two seeds give one schedule")
	}
}

func TestAScheduleFillsItsTime(t *testing.T) {
	const every, duration = 2 * time.Second, 10 * time.Minute
	var at time.Duration
	for _, f := range schedule(1, duration, every, everyCard) {
		at += every
		if at >= duration {
			t.Fatalf("%v begins after %v", f, at)
		}
		at += f.lasts
	}
	if at+every < duration {
		t.Errorf("the last fault ends after %v of %v", at, duration)
	}
}

func TestEveryKindComesInEachRound(t *testing.T) {
	round := 0
	for _, c := range everyCard {
		round += c.often
	}
	all := schedule(3, time.Hour, 2*time.Second, everyCard)
	for i := 0; i+round <= len(all); i += round {
		for _, c := range everyCard {
			n := 0
			for _, f := range all[i : i+round] {
				if f.kind == c.kind {
					n++
				}
			}
			if n != c.often {
				t.Errorf("round %d has %d times %q, want %d", i/round, n, c.kind, c.often)
			}
		}
	}
}

func TestFaultsKeepTheBoundsOfTheirCards(t *testing.T) {
	for _, f := range schedule(4, time.Hour, 2*time.Second, everyCard) {
		c := everyCard[slices.IndexFunc(everyCard, func(c card) bool { return c.kind == f.kind })]
		if f.lasts < c.shortest || f.lasts > c.longest || f.amount < c.least || f.amount > c.most {
			t.Errorf("%v is outside of %+v", f, c)
		}
	}
}

func TestNoBrokerIsKilledWhileItsQueuesAreYoung(t *testing.T) {
	const every = 2 * time.Second
	kills := 0
	for seed := range uint64(500) {
		var at time.Duration
		for _, f := range schedule(seed, time.Minute, every, everyCard) {
			at += every
			if f.kind == kill {
				kills++
				if at < nodes.YoungQueue {
					t.Errorf("seed %d kills after %v", seed, at)
				}
			}
			at += f.lasts
		}
	}
	if kills == 0 {
		t.Error("no seed kills at all")
	}
}
