package hooks

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

type trace struct {
	one   func(int)
	two   func(int, int)
	begin func(context.Context, int) context.Context
}

func set(log *bytes.Buffer, traces ...trace) Set[trace] {
	return Of(traces, slog.New(slog.NewTextHandler(log, nil)), "x.Trace")
}

func TestHooksRunInTheirOrderWithoutNilOnes(t *testing.T) {
	var got []string
	note := func(name string) trace {
		return trace{
			one: func(int) { got = append(got, name+"1") },
			two: func(int, int) { got = append(got, name+"2") },
		}
	}
	s := set(new(bytes.Buffer), note("a"), trace{}, note("b"))
	One(s, "One", func(t trace) func(int) { return t.one })(1)
	Two(s, "Two", func(t trace) func(int, int) { return t.two })(1, 2)
	if want := []string{"a1", "b1", "a2", "b2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWithoutAHookThereIsNone(t *testing.T) {
	s := set(new(bytes.Buffer), trace{}, trace{})
	if One(s, "", func(t trace) func(int) { return t.one }) != nil ||
		Two(s, "", func(t trace) func(int, int) { return t.two }) != nil ||
		Begin(s, "", func(t trace) func(context.Context, int) context.Context { return t.begin }) != nil {
		t.Error("there is one")
	}
}

func TestAPanicInAHookIsLoggedAndStopsNoOther(t *testing.T) {
	for name, traces := range map[string][]trace{
		"one hook":  {{one: func(int) { panic("oh") }}},
		"two hooks": {{one: func(int) { panic("oh") }}, {one: func(int) {}}},
	} {
		t.Run(name, func(t *testing.T) {
			log, ran := new(bytes.Buffer), false
			last := traces[len(traces)-1]
			if len(traces) > 1 {
				last.one = func(int) { ran = true }
				traces[1] = last
			}
			One(set(log, traces...), "Ended", func(t trace) func(int) { return t.one })(1)
			if len(traces) > 1 && !ran {
				t.Error("the second hook did not run")
			}
			for _, want := range []string{"x.Trace", "Ended", "oh"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log is without %q: %s", want, log)
				}
			}
		})
	}
}

func TestEachHookThatBeginsGetsTheContextOfTheOneBefore(t *testing.T) {
	type key int
	with := func(k key) trace {
		return trace{begin: func(ctx context.Context, _ int) context.Context {
			return context.WithValue(ctx, k, slices.Collect(func(yield func(key) bool) {
				for i := range key(10) {
					if ctx.Value(i) != nil && !yield(i) {
						return
					}
				}
			}))
		}}
	}
	none := trace{begin: func(context.Context, int) context.Context { return nil }}
	panics := trace{begin: func(context.Context, int) context.Context { panic("oh") }}
	pick := func(t trace) func(context.Context, int) context.Context { return t.begin }

	ctx := Begin(set(new(bytes.Buffer), with(1), none, panics, with(2)), "Begun", pick)(t.Context(), 0)
	if ctx.Value(key(1)) == nil {
		t.Error("what the first hook returned is lost")
	}
	if seen, _ := ctx.Value(key(2)).([]key); !slices.Equal(seen, []key{1}) {
		t.Errorf("the last hook has seen %v, want that of the first", seen)
	}
	for name, only := range map[string]trace{"nil": none, "a panic": panics} {
		if got := Begin(set(new(bytes.Buffer), only), "Begun", pick)(t.Context(), 0); got != t.Context() {
			t.Errorf("%s: ctx is %v, want it unchanged", name, got)
		}
	}
}

func TestAHookAllocatesNothing(t *testing.T) {
	n := 0
	count := trace{two: func(a, b int) { n += a + b }}
	f := Two(set(new(bytes.Buffer), count, count), "Two", func(t trace) func(int, int) { return t.two })
	if allocs := testing.AllocsPerRun(100, func() { f(1, 2) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
