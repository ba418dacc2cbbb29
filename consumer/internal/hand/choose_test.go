package hand

import (
	"testing"
	"time"
)

func TestChoose(t *testing.T) {
	t1, t2 := time.Unix(1, 0), time.Unix(2, 0)
	has := func(start float64) offer { return offer{state: ready, start: start} }
	soon := func(start float64, until time.Time) offer {
		return offer{state: expected, start: start, until: until}
	}
	none := offer{}
	limited := func(until time.Time) offer { return offer{until: until} }
	list := func(c ...offer) []offer { return c }
	for _, tt := range []struct {
		rule   string
		strict bool
		lanes  []offer
		want   int
		again  time.Time
	}{
		{"strict: the highest that has one", true, list(none, has(0), has(0)), 1, time.Time{}},
		{"strict: whatever it has had before", true, list(has(9), has(0)), 0, time.Time{}},
		{"strict: a message that is expected is waited for", true, list(soon(0, t1), has(0)), -1, t1},
		{"strict: an expected one in a lower lane is not", true, list(has(0), soon(0, t1)), 0, time.Time{}},
		{"strict: a lane at its limit is passed over", true, list(limited(t1), has(0)), 1, time.Time{}},
		{"strict: when to look at a limited lane again", true, list(limited(t2), limited(t1), none), -1, t1},
		{"strict: an expected message below a limited lane", true, list(limited(t1), soon(0, t2)), -1, t1},
		{"shares: the one that starts first", false, list(has(2), has(1), has(3)), 1, time.Time{}},
		{"shares: of equals the highest", false, list(none, has(1), has(1)), 1, time.Time{}},
		{"shares: the turn of an expected one is kept", false, list(has(2), soon(1, t1)), -1, t1},
		{"shares: an expected one whose turn it is not", false, list(has(1), soon(2, t1)), 0, time.Time{}},
		{"shares: a lane without a message has no turn", false, list(none, has(7)), 1, time.Time{}},
		{"nothing at all", false, list(none, none), -1, time.Time{}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if lane, again := choose(tt.strict, tt.lanes); lane != tt.want || !again.Equal(tt.again) {
				t.Errorf("choose = %d, %v; want %d, %v", lane, again, tt.want, tt.again)
			}
		})
	}
}

// full has the lanes with these shares served n times, where those that may have a
// message always have one.
func full(n int, shares []int, may func(round, lane int) bool) []int {
	h := New(1, false)
	for _, share := range shares {
		h.Lane(Limits{Slots: 1, Share: share})
	}
	had := make([]int, len(shares))
	for round := range n {
		var all []offer
		for i, l := range h.lanes {
			c := offer{start: l.start()}
			if may(round, i) {
				c.state = ready
			}
			all = append(all, c)
		}
		i, _ := choose(false, all)
		h.took(h.lanes[i], 1, time.Time{})
		had[i]++
	}
	return had
}

func TestFullLanesHaveTheirShares(t *testing.T) {
	always := func(int, int) bool { return true }
	for _, tt := range []struct {
		rule   string
		n      int
		shares []int
		may    func(round, lane int) bool
		want   []int
	}{
		{"six, three and one", 10_000, []int{6, 3, 1}, always, []int{6000, 3000, 1000}},
		{"equal ones", 9_000, []int{1, 1, 1}, always, []int{3000, 3000, 3000}},
		{"far apart", 10_010, []int{1000, 1}, always, []int{10_000, 10}},
		{"what one does not use goes to the others, in proportion", 8_000, []int{6, 3, 1}, func(_, lane int) bool { return lane > 0 }, []int{0, 6000, 2000}},
		{"a lane that was empty does not catch up", 2_000, []int{1, 1}, func(round, lane int) bool { return lane > 0 || round >= 1000 }, []int{500, 1500}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			for i, got := range full(tt.n, tt.shares, tt.may) {
				if got < tt.want[i]-1 || got > tt.want[i]+1 {
					t.Errorf("lane %d had %d of %d, want %d", i, got, tt.n, tt.want[i])
				}
			}
		})
	}
}
