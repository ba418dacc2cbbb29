package main

import (
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		values []float64
		want   float64
	}{
		{"one", []float64{3}, 3},
		{"odd: the middle one, whatever the order", []float64{9, 1, 2}, 2},
		{"even: between the two in the middle", []float64{4, 1, 2, 100}, 3},
	} {
		before := append([]float64(nil), tt.values...)
		if got := median(tt.values); got != tt.want {
			t.Errorf("%s: median(%v) = %v, want %v", tt.rule, before, got, tt.want)
		}
		if tt.values[0] != before[0] {
			t.Errorf("%s: median has sorted its argument", tt.rule)
		}
	}
}

// in returns a sample of 1000 messages that took so long.
func in(d time.Duration) sample { return sample{Messages: 1000, Elapsed: d} }

func TestTheRatioIsTakenRoundByRound(t *testing.T) {
	// The machine is three times slower in the second round; rehop is twice as
	// fast in every one.
	got := ratioOf(
		[]sample{in(time.Second), in(3 * time.Second), in(time.Second)},
		[]sample{in(2 * time.Second), in(6 * time.Second), in(2 * time.Second)})
	if want := (ratio{Median: 2, Min: 2, Max: 2}); got != want {
		t.Errorf("ratioOf = %+v, want %+v", got, want)
	}
}

func TestTheSpreadOfARatioIsItsExtremes(t *testing.T) {
	got := ratioOf(
		[]sample{in(time.Second), in(time.Second), in(time.Second)},
		[]sample{in(time.Second), in(4 * time.Second), in(500 * time.Millisecond)})
	if want := (ratio{Median: 1, Min: 0.5, Max: 4}); got != want {
		t.Errorf("ratioOf = %+v, want %+v", got, want)
	}
}

func TestFiguresArePerMessage(t *testing.T) {
	start := usage{at: time.Unix(100, 0), cpu: time.Second, allocs: 10, bytes: 1000}
	s := usage{at: time.Unix(102, 0), cpu: 2 * time.Second, allocs: 4010, bytes: 201_000}.since(start, 1000)
	for name, got := range map[string][2]float64{
		"messages per second":  {s.perSecond(), 500},
		"CPU microseconds":     {s.cpuMicros(), 1000},
		"allocations":          {s.allocsEach(), 4},
		"bytes":                {s.bytesEach(), 200},
		"median of one sample": {middle([]sample{s}, sample.allocsEach), 4},
	} {
		if got[0] != got[1] {
			t.Errorf("%s = %v, want %v", name, got[0], got[1])
		}
	}
}
