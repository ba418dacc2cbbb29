package group

import (
	"slices"
	"testing"
)

func TestCalm(t *testing.T) {
	for _, test := range []struct {
		rule      string
		processes []int
		want      []bool
	}{
		{"processes that come are given their shares at once", []int{1, 2, 3, 3}, []bool{true, true, true, true}},
		{"after one that went, one look is the same", []int{2, 1, 1, 2, 2}, []bool{true, false, true, false, true}},
		{"after several, more looks are", []int{2, 1, 2, 1, 2, 1, 2, 2, 2, 2, 2}, []bool{true, false, false, false, false, false, false, false, false, false, true}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var c Calm
			var got []bool
			for _, n := range test.processes {
				got = append(got, c.Look(n))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestCalmReturns(t *testing.T) {
	var c Calm
	for n := range 100 {
		c.Look(1 + n%2)
	}
	for looks := range longestCalm {
		if calm := c.Look(1); calm && looks < longestCalm-2 {
			t.Fatalf("calm after %d looks", looks+1)
		}
	}
	if !c.Look(1) {
		t.Errorf("not calm after %d looks", longestCalm+1)
	}
	for range 10 * calmHalves {
		c.Look(1)
	}
	if !c.Look(2) {
		t.Error("a process that comes after hours waits")
	}
}
