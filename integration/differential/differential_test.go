package differential

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/matrix"
)

var (
	seed        = flag.Uint64("seed", 0, "the only program to run; 0: many")
	random      = flag.Bool("random", false, "other programs in each run, not those of the seeds from 1 on")
	operations  = flag.Int("operations", 10_000, "for each version and queue type")
	length      = flag.Int("length", 50, "operations of a program, beside its declarations")
	workers     = flag.Int("workers", 16, "programs at once on one broker")
	differences = flag.Int("differences", 1, "to show before a column ends")
)

// Each version runs alone: answers that come late look like differences.
func TestDifferential(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	versions, err := broker.Available(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(versions) == 0 {
		versions = []string{""} // the one there is
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) { testVersion(t, version) })
	}
}

func testVersion(t *testing.T, version string) {
	b, err := broker.Start(t.Context(), broker.Options{Version: version, Name: "rehop-differential", LetterTimeout: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	column := matrix.Nearest(b.Version())
	if !strings.HasPrefix(b.Version(), column) {
		t.Logf("AMQP_URL names a RabbitMQ %s, which rehoptest does not imitate: nothing is compared", b.Version())
		return
	}
	if *seed == 0 {
		t.Run("mistakes", func(t *testing.T) {
			t.Parallel()
			compareMistakes(t, b.AMQPURL(), column)
		})
	}
	for _, kind := range matrix.Types {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			compare(t, newReal(b.AMQPURL()), column, kind)
		})
	}
}

// compare runs programs until there are enough operations, or differences.
func compare(t *testing.T, s *real, version, kind string) {
	defer s.close()
	programs := make(chan program)
	var found atomic.Int64
	var ran, done int
	var wg sync.WaitGroup
	for range *workers {
		wg.Go(func() {
			for p := range programs {
				difference, at := check(t, s, p, false)
				if difference == "" {
					continue
				}
				found.Add(1)
				p.ops = p.ops[:at+1]
				p, difference = shrink(t, s, p, difference)
				t.Errorf("%s %s, -seed %d -length %d:\n  %s\n  %s", version, kind, p.seed, *length, lines(p), difference)
			}
		})
	}
	first := uint64(1)
	if *random {
		first = rand.Uint64N(1 << 40)
	}
	if *seed != 0 {
		first = *seed
	}
	for n := first; done < *operations && found.Load() < int64(*differences); n++ {
		p := newProgram(n, version, kind, fmt.Sprintf("diff-%s-%x-", kind, n), *length)
		programs <- p
		ran++
		done += len(p.ops)
		if *seed != 0 {
			break
		}
	}
	close(programs)
	wg.Wait()
	if n := s.failures.Load(); n > int64(ran/50+1) {
		t.Errorf("%d of %d programs did not come to their end", n, ran)
	}
	t.Logf("%s %s: %d operations in %d programs, %d of them after what is of chance and not compared", version, kind, done, ran, s.chance.Load())
}

func lines(p program) string {
	var list []string
	for _, o := range p.ops {
		list = append(list, o.String())
	}
	return strings.Join(list, "\n  ")
}

// check runs a program on both, and returns the first difference and where it
// is.
func check(t *testing.T, s *real, p program, shrinking bool) (string, int) {
	expected, err := inBubble(t, p)
	if err != nil {
		t.Errorf("seed %d on rehoptest: %v", p.seed, err)
		return "", 0
	}
	if !shrinking {
		s.chance.Add(int64(len(p.ops) - len(expected)))
	}
	p.ops = p.ops[:len(expected)]

	for n := 1; ; n++ {
		got, at, err := run(s, p, expected)
		if err != nil {
			t.Logf("seed %d on RabbitMQ: %v", p.seed, err)
			s.failures.Add(1)
		}
		if err != nil || at < 0 || n == tries {
			s.remove(p, shrinking || err != nil || at >= 0)
			if err != nil || at < 0 {
				return "", 0
			}
			return expected[at].differs(got[at]), at
		}
		s.remove(p, true) // one that does not come again was the machine's
	}
}

// tries is how often a program must differ.
const tries = 3

// shrink leaves out what the difference does not need.
func shrink(t *testing.T, s *real, p program, text string) (program, string) {
	for size := len(p.ops) / 2; size > 0; size /= 2 {
		for i := 0; i+size < len(p.ops); {
			q := p
			q.ops = append(append([]op(nil), p.ops[:i]...), p.ops[i+size:]...)
			if found, at := check(t, s, q, true); found != "" {
				q.ops = q.ops[:at+1]
				p, text = q, found
				continue
			}
			i += size
		}
	}
	return p, text
}
