package delay

import (
	"math"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestDefaultIsValidAndFresh(t *testing.T) {
	s := Default()
	if err := s.Validate(); err != nil {
		t.Fatalf("Default().Validate() = %v, want nil", err)
	}
	s[0] = 0
	if got := Default()[0]; got != time.Minute {
		t.Errorf("Default()[0] = %v after a caller changed his copy, want 1m", got)
	}
}

func TestConstructors(t *testing.T) {
	tests := []struct {
		rule string
		got  Schedule
		want Schedule
	}{
		{"fixed repeats the wait", Fixed(time.Second, 3), Schedule{time.Second, time.Second, time.Second}},
		{"fixed of none is no retries", Fixed(time.Second, 0), Schedule{}},
		{"exponential multiplies", Exponential(time.Second, 2, time.Hour, 4), Schedule{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}},
		{"exponential stops at the limit", Exponential(time.Second, 10, time.Minute, 4), Schedule{time.Second, 10 * time.Second, time.Minute, time.Minute}},
		{"the first wait obeys the limit", Exponential(time.Hour, 2, time.Minute, 2), Schedule{time.Minute, time.Minute}},
		{"exponential rounds to milliseconds", Exponential(10*ms, 1.25, time.Second, 4), Schedule{10 * ms, 13 * ms, 16 * ms, 20 * ms}},
		{"a factor below 1 shrinks", Exponential(time.Second, 0.5, time.Hour, 3), Schedule{time.Second, 500 * ms, 250 * ms}},
		{"a huge factor ends at the limit", Exponential(time.Hour, math.MaxFloat64, maxWait, 3), Schedule{time.Hour, maxWait, maxWait}},
		{"a huge limit does not overflow", Exponential(time.Hour, 1e9, math.MaxInt64, 3), Schedule{time.Hour, math.MaxInt64, math.MaxInt64}},
		{"none needs no factor", Exponential(time.Second, math.NaN(), time.Hour, 0), Schedule{}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if !slices.Equal(tt.got, tt.want) {
				t.Errorf("got %v, want %v", tt.got, tt.want)
			}
		})
	}
}

func TestAfter(t *testing.T) {
	s := Schedule{time.Second, time.Minute}
	tests := []struct {
		rule    string
		attempt int
		want    time.Duration
		ok      bool
	}{
		{"the first attempt is followed by the first wait", 1, time.Second, true},
		{"the last wait follows the last attempt but one", 2, time.Minute, true},
		{"used up", 3, 0, false},
		{"no attempt 0", 0, 0, false},
		{"no negative attempt", math.MinInt, 0, false},
		{"no attempt beyond all", math.MaxInt, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if got, ok := s.After(tt.attempt); got != tt.want || ok != tt.ok {
				t.Errorf("%v.After(%d) = %v, %v, want %v, %v", s, tt.attempt, got, ok, tt.want, tt.ok)
			}
		})
	}
	if _, ok := Schedule(nil).After(1); ok {
		t.Error("nil.After(1) is a wait, want none: an empty schedule means no retries")
	}
}

func TestAtLeast(t *testing.T) {
	s := Schedule{20 * time.Minute, time.Minute, 5 * time.Minute, time.Minute}
	tests := []struct {
		rule       string
		s          Schedule
		d          time.Duration
		waitNumber int
		ok         bool
	}{
		{"an equal wait is long enough", s, 5 * time.Minute, 3, true},
		{"the shortest that is long enough, not the first", s, 2 * time.Minute, 3, true},
		{"among equal waits the first of them", s, time.Second, 2, true},
		{"nothing asked for takes the shortest", s, 0, 2, true},
		{"less than nothing takes the shortest", s, -time.Hour, 2, true},
		{"the longest", s, 6 * time.Minute, 1, true},
		{"longer than all", s, 20*time.Minute + 1, 0, false},
		{"an empty schedule has none", nil, 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if waitNumber, ok := tt.s.AtLeast(tt.d); waitNumber != tt.waitNumber || ok != tt.ok {
				t.Errorf("%v.AtLeast(%v) = %d, %v, want %d, %v", tt.s, tt.d, waitNumber, ok, tt.waitNumber, tt.ok)
			}
		})
	}
}

func TestValidateAccepts(t *testing.T) {
	tests := []struct {
		rule string
		s    Schedule
	}{
		{"nil", nil},
		{"empty", Schedule{}},
		{"the shortest wait", Schedule{ms}},
		{"the longest wait", Schedule{315_360_000_000 * ms}},
		{"falling waits", Schedule{time.Hour, ms}},
		{"as many waits as allowed", Fixed(time.Second, MaxWaits)},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if err := tt.s.Validate(); err != nil {
				t.Errorf("Validate() = %v, want nil", err)
			}
		})
	}
}

func TestValidateRefuses(t *testing.T) {
	tests := []struct {
		rule string
		s    Schedule
		want string
	}{
		{"negative", Schedule{time.Second, -5 * time.Second}, "delay: wait 2 is -5s, want 1ms to 87600h"},
		{"zero", Schedule{0}, "delay: wait 1 is 0s, want 1ms to 87600h"},
		{"shorter than the wire can say", Schedule{ms - 1}, "delay: wait 1 is 999.999µs, want 1ms to 87600h"},
		{"longer than the broker takes", Schedule{maxWait + ms}, "delay: wait 1 is 87600h0m0.001s, want 1ms to 87600h"},
		{"not whole milliseconds", Schedule{ms + 1}, "delay: wait 1 is 1.000001ms, want whole milliseconds"},
		{"too many", Fixed(time.Second, MaxWaits+1), "delay: the number of waits is 17, want 0 to 16 (each is a queue)"},
		{"far too many", Exponential(time.Second, 2, time.Hour, math.MaxInt32), "delay: the number of waits is 2147483647, want 0 to 16 (each is a queue)"},
		{"too many that are written out", append(Fixed(time.Second, MaxWaits), time.Minute, time.Hour), "delay: the number of waits is 18, want 0 to 16 (each is a queue)"},
		{"all faults at once", Schedule{0, time.Second, ms + 1}, "delay: wait 1 is 0s, want 1ms to 87600h\ndelay: wait 3 is 1.000001ms, want whole milliseconds"},
		{"negative count", Fixed(time.Second, -1), "delay: the number of waits is -1, want 0 to 16 (each is a queue)"},
		{"negative count of exponential", Exponential(time.Second, math.NaN(), time.Hour, math.MinInt32), "delay: the number of waits is -2147483648, want 0 to 16 (each is a queue)"},
		{"negative count before other waits", append(Fixed(time.Second, -1), time.Second), "delay: the number of waits is -1, want 0 to 16 (each is a queue)"},
		{"factor is not a number", Exponential(time.Second, math.NaN(), time.Hour, 3), "delay: the factor is NaN, want a positive finite number"},
		{"factor is infinite", Exponential(time.Second, math.Inf(1), time.Hour, 3), "delay: the factor is +Inf, want a positive finite number"},
		{"factor is zero", Exponential(time.Second, 0, time.Hour, 3), "delay: the factor is 0, want a positive finite number"},
		{"factor is negative", Exponential(time.Second, -2.5, time.Hour, 3), "delay: the factor is -2.5, want a positive finite number"},
		{"first is negative", Exponential(-time.Second, 2, time.Hour, 1), "delay: wait 1 is -1s, want 1ms to 87600h"},
		{"first is not whole milliseconds", Exponential(1500*time.Microsecond, 2, time.Hour, 1), "delay: wait 1 is 1.5ms, want whole milliseconds"},
		{"limit is missing", Exponential(time.Second, 2, 0, 1), "delay: wait 1 is 0s, want 1ms to 87600h"},
		{"shrunk to nothing", Exponential(ms, 0.1, time.Hour, 2), "delay: wait 2 is 0s, want 1ms to 87600h"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			err := tt.s.Validate()
			if err == nil || err.Error() != tt.want {
				t.Errorf("Validate() = %v, want %s", err, tt.want)
			}
		})
	}
}

// FuzzExponential holds what the comment of Exponential promises for any
// arguments.
func FuzzExponential(f *testing.F) {
	f.Add(int64(time.Second), 2.0, int64(time.Hour), 5)
	f.Add(int64(math.MinInt64), math.MaxFloat64, int64(math.MaxInt64), 20)
	f.Add(int64(math.MaxInt64), 1.0000000001, int64(math.MaxInt64), 3)
	f.Fuzz(func(t *testing.T, first int64, factor float64, limit int64, n int) {
		s := Exponential(time.Duration(first), factor, time.Duration(limit), n)
		err := s.Validate()
		sane := n >= 0 && n <= MaxWaits && (n == 0 || first > 0 && limit > 0 && factor > 0 && !math.IsInf(factor, 1))
		if !sane && err == nil {
			t.Errorf("Exponential(%d, %v, %d, %d) = %v, which Validate accepts", first, factor, limit, n, s)
		}
		if !sane {
			return
		}
		for i, wait := range s {
			if wait < 0 || wait > time.Duration(limit) {
				t.Errorf("Exponential(%d, %v, %d, %d): wait %d is %d", first, factor, limit, n, i+1, wait)
			}
		}
		if err == nil && factor >= 1 && !slices.IsSorted(s) {
			t.Errorf("Exponential(%d, %v, %d, %d) = %v, want rising waits", first, factor, limit, n, s)
		}
		if len(s) != n {
			t.Errorf("Exponential(%d, %v, %d, %d) = %v, want %d waits", first, factor, limit, n, s, n)
		}
	})
}
