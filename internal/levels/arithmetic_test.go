package levels

import (
	"math"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

func TestPath(t *testing.T) {
	seconds, fine := Levels{}, Levels{Grain: 10 * time.Millisecond}
	for _, row := range []struct {
		rule   string
		levels Levels
		d      time.Duration
		grains uint32
		entry  int
		hops   int
	}{
		{"one grain is one level", seconds, time.Second, 1, 0, 1},
		{"a bit for each level", seconds, 13 * time.Second, 0b1101, 3, 3},
		{"a power of two is one hop", seconds, 4096 * time.Second, 1 << 12, 12, 1},
		{"the least excess rounds up", seconds, time.Second + 1, 2, 1, 1},
		{"less than a grain is one", seconds, 1, 1, 0, 1},
		{"just below a grain rounds up to it", seconds, 2*time.Second - 1, 2, 1, 1},
		{"61 s", seconds, 61 * time.Second, 61, 5, 5},
		{"10 h", seconds, 10 * time.Hour, 36000, 15, 5},
		{"the longest delay visits every level", seconds, (1<<28 - 1) * time.Second, 1<<28 - 1, 27, 28},
		{"a finer grain", fine, 70 * time.Millisecond, 7, 2, 3},
		{"a finer grain rounds up too", fine, 61 * time.Millisecond, 7, 2, 3},
	} {
		t.Run(row.rule, func(t *testing.T) {
			path, err := row.levels.Path(row.d)
			if err != nil || uint32(path) != row.grains || path.Entry() != row.entry || path.Hops() != row.hops {
				t.Errorf("Path(%v) is %b, entry %d, %d hops, %v; want %b, %d, %d", row.d, path, path.Entry(), path.Hops(), err, row.grains, row.entry, row.hops)
			}
		})
	}
}

func TestPathRefuses(t *testing.T) {
	hour := Levels{Max: time.Hour}
	for _, row := range []struct {
		rule   string
		levels Levels
		d      time.Duration
	}{
		{"nothing", hour, 0},
		{"negative", hour, -time.Second},
		{"beyond Max, though the levels would reach", hour, time.Hour + 1},
		{"beyond every level", Levels{}, math.MaxInt64},
	} {
		t.Run(row.rule, func(t *testing.T) {
			if path, err := row.levels.Path(row.d); err == nil || path != 0 {
				t.Errorf("Path(%v) is %b and %v, want an error", row.d, path, err)
			}
		})
	}
}

func TestLevelsCount(t *testing.T) {
	for _, row := range []struct {
		rule   string
		levels Levels
		want   int
	}{
		{"all of them by default", Levels{}, 28},
		{"as many as Max needs", Levels{Max: time.Hour}, 12},
		{"a power of two takes its own level", Levels{Max: 4 * time.Second}, 3},
		{"one less does not", Levels{Max: 3 * time.Second}, 2},
		{"one", Levels{Max: time.Second}, 1},
		{"Max rounds up", Levels{Max: 3*time.Second + 1}, 3},
		{"a finer grain takes more", Levels{Grain: 10 * time.Millisecond, Max: time.Hour}, 19},
	} {
		t.Run(row.rule, func(t *testing.T) {
			if got := row.levels.Count(); got != row.want {
				t.Errorf("Count of %+v is %d, want %d", row.levels, got, row.want)
			}
		})
	}
}

func TestLevelsValidate(t *testing.T) {
	for _, row := range []struct {
		rule   string
		levels Levels
		want   []string // in the error; none: valid
	}{
		{"the defaults", Levels{}, nil},
		{"the finest grain", Levels{Grain: 10 * time.Millisecond}, nil},
		{"one level", Levels{Max: time.Second}, nil},
		{"too fine", Levels{Grain: 9 * time.Millisecond}, []string{"Grain is 9ms"}},
		{"too coarse", Levels{Grain: 2 * time.Second}, []string{"Grain is 2s"}},
		{"a broken millisecond", Levels{Grain: 10*time.Millisecond + 1}, []string{"Grain is 10.000001ms"}},
		{"negative", Levels{Grain: -1, Max: -1}, []string{"Grain is -1ns", "Max is -1ns"}},
		{"Max below the grain", Levels{Max: time.Millisecond}, []string{"Max is 1ms"}},
		{"Max beyond the levels", Levels{Max: 1 << 28 * time.Second}, []string{"Max is", "2^28-1"}},
		{"Max beyond those of a finer grain", Levels{Grain: 10 * time.Millisecond, Max: 60 * day}, []string{"Max is 1440h"}},
	} {
		t.Run(row.rule, func(t *testing.T) {
			err := row.levels.Validate()
			if (err == nil) != (row.want == nil) {
				t.Fatalf("Validate of %+v is %v", row.levels, err)
			}
			for _, text := range row.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("Validate of %+v is %v, want %q in it", row.levels, err, text)
				}
			}
		})
	}
}

func TestWordsStartWithTheLowestLevel(t *testing.T) {
	path, _ := Levels{}.Path(13 * time.Second)
	if got, want := path.Words(), "+.-.+.+"+strings.Repeat(".-", 24); got != want {
		t.Errorf("Words of 13 s is %q, want %q", got, want)
	}
}

// A message that follows its words waits at least as long as it was told to, and
// less than one grain longer.
func FuzzPath(f *testing.F) {
	f.Add(int64(time.Second), int64(13*time.Second))
	f.Add(int64(10*time.Millisecond), int64(61*time.Millisecond))
	f.Add(int64(time.Second), int64(math.MaxInt64))
	f.Add(int64(0), int64(-1))
	f.Fuzz(func(t *testing.T, grain, d int64) {
		levels := Levels{Grain: time.Duration(grain)}
		if levels.Validate() != nil {
			return
		}
		levels = levels.WithDefaults()
		delayed := time.Duration(d)
		path, err := levels.Path(delayed)
		if within := delayed > 0 && delayed <= levels.Max; within != (err == nil) {
			t.Fatalf("Path(%v) of %+v is %v", delayed, levels, err)
		}
		if err != nil {
			return
		}
		words := strings.Split(path.Words(), ".")
		if len(words) != MaxLevels {
			t.Fatalf("%d words", len(words))
		}
		var waited time.Duration
		hops := 0
		for level := path.Entry(); level >= 0; level = path.Next(level) {
			if words[level] != Visit || level >= levels.Count() {
				t.Fatalf("level %d of %v is visited, and its word is %q of %d levels", level, delayed, words[level], levels.Count())
			}
			words[level] = Pass
			waited += levels.Wait(level)
			hops++
		}
		if strings.Contains(strings.Join(words, ""), Visit) || hops != path.Hops() {
			t.Fatalf("%v has %d hops of %d, and words are left: %q", delayed, hops, path.Hops(), words)
		}
		if waited < delayed || waited-delayed >= levels.Grain || waited != path.Duration(levels.Grain) {
			t.Fatalf("%v waits %v", delayed, waited)
		}
	})
}
