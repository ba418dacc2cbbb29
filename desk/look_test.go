package desk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// simulated is a queue whose letters a look takes.
type simulated struct {
	sizes []int
	line  int // of them, from the head, came back before
}

// run takes letters as a look does. onWay is the most that was sent and not taken yet.
func (s simulated) run(t *taking) (onWay int) {
	t.total = len(s.sizes)
	t.n = min(t.n, t.total)
	for n := t.next(); n > 0; n = t.next() {
		sent := 0
		for range n {
			size := s.sizes[t.taken]
			sent += size
			t.add(size, t.taken < s.line)
		}
		onWay = max(onWay, sent)
	}
	return onWay
}

func sizes(n, each int, more ...int) []int {
	all := slices.Repeat([]int{each}, n)
	if len(more) > 1 {
		all = append(all, sizes(more[0], more[1], more[2:]...)...)
	}
	return all
}

func TestALookIsBoundedByWhatItTakes(t *testing.T) {
	const kib, mib = 1 << 10, 1 << 20
	for rule, tt := range map[string]struct {
		queue        simulated
		hint, window int
		steps, known int
		kept, taken  int
		onWay        int // bytes, at most
		uncertain    bool
	}{
		"small letters": {queue: simulated{sizes(2000, kib), 0}, window: 1000, kept: 1000, taken: 1000, onWay: stepLetters * kib},
		"large behind small, and the hint is old":  {queue: simulated{sizes(16, kib, 58, 5*mib), 0}, hint: kib, window: 10_000, kept: 28, taken: 32, onWay: 16 * 5 * mib},
		"large ones, and the hint is old":          {queue: simulated{sizes(74, 5*mib), 0}, hint: kib, window: 10_000, kept: 12, taken: 16, onWay: 16 * 5 * mib},
		"large ones, and the hint says so":         {queue: simulated{sizes(74, 5*mib), 0}, hint: 5 * mib, window: 10_000, kept: 12, taken: 15, onWay: 15 * mib},
		"one that is larger than all may be":       {queue: simulated{sizes(1, 100*mib, 20, kib), 0}, window: 100, kept: 1, taken: 16, onWay: 100*mib + 15*kib},
		"the line is taken, with a smaller window": {queue: simulated{sizes(200, kib), 100}, window: 60, kept: 60, taken: 113, onWay: stepLetters * kib},
		"the line is taken, with larger letters":   {queue: simulated{sizes(200, mib), 100}, hint: mib, window: 10_000, kept: 64, taken: 111, onWay: 16 * mib},
		"a line that is too large":                 {queue: simulated{sizes(900, mib), 900}, hint: mib, window: 10_000, kept: 64, taken: 271, onWay: 16 * mib, uncertain: true},
		"a line of whole windows grows by one":     {queue: simulated{sizes(13_000, 100), 10_000}, window: 10_000, kept: 10_000, taken: 10_001, onWay: stepLetters * 100},
		"and by one each time":                     {queue: simulated{sizes(13_000, 100), 10_400}, known: 10_400, window: 10_000, kept: 10_000, taken: 10_401, onWay: stepLetters * 100},
		"a line of another process":                {queue: simulated{sizes(13_000, 100), 10_400}, window: 10_000, kept: 10_000, taken: 10_447, onWay: stepLetters * 100},
		"a line longer than a look":                {queue: simulated{sizes(13_000, 100), 11_000}, window: 10_000, kept: 10_000, taken: 11_000, onWay: stepLetters * 100, uncertain: true},
		"a line that is the queue":                 {queue: simulated{sizes(10_500, 100), 10_500}, window: 10_000, kept: 10_000, taken: 10_500, onWay: stepLetters * 100},
		"few consumers":                            {queue: simulated{sizes(13_000, 100), 0}, steps: maxTagged, window: 10_000, kept: 10_000, taken: 10_000, onWay: 600 * 100},
		"few consumers and a line":                 {queue: simulated{sizes(13_000, 100), 10_000}, steps: maxTagged, known: 10_000, window: 10_000, kept: 10_000, taken: 10_001, onWay: 600 * 100},
		"few consumers and a longer line":          {queue: simulated{sizes(13_000, 100), 10_900}, steps: maxTagged, known: 10_900, window: 10_000, kept: 10_000, taken: 10_901, onWay: 600 * 100},
		"few consumers and a line of another":      {queue: simulated{sizes(13_000, 100), 10_900}, steps: maxTagged, window: 10_000, kept: 10_000, taken: 10_015, onWay: 600 * 100, uncertain: true},
	} {
		t.Run(rule, func(t *testing.T) {
			l := &taking{n: tt.window, bytes: 64 * mib, line: true, largest: tt.hint, steps: tt.steps, known: tt.known}
			onWay := tt.queue.run(l)
			if l.kept != tt.kept || l.taken != tt.taken || onWay > tt.onWay || l.weight > 64*mib && l.kept > 1 {
				t.Errorf("%d kept of %d taken, %d bytes, up to %d on their way; want %d of %d, up to %d on their way", l.kept, l.taken, l.weight, onWay, tt.kept, tt.taken, tt.onWay)
			}
			if l.uncertain() != tt.uncertain || strings.Contains(l.bound(false), "changed places") != tt.uncertain {
				t.Errorf("uncertain %v: %s", l.uncertain(), l.bound(false))
			}
		})
	}
}

func TestALookIsWithoutLettersThatLeft(t *testing.T) {
	of := func(ids ...string) (letters []Letter) {
		for i, id := range ids {
			letters = append(letters, Letter{ID: id, Place: int64(i + 1)})
		}
		return letters
	}
	all := &look{letters: of("a", "b", "a.2", "c", "a.3"), bound: "the first 5 of 9", seen: Seen{Seen: 5, Total: 9, Bound: "the first 5 of 9", Bytes: 5 * weightOf(nil, nil)}}
	first := all.without(map[string]int{"a": 1, "c": 1})
	second := first.without(map[string]int{"a": 2})
	if third := second.without(map[string]int{"d": 1}); third != nil {
		t.Errorf("a letter has left that the look did not see, and it still says %q", third.seen.Bound)
	}
	whole := (&look{letters: of("a", "b"), seen: Seen{Seen: 2, Total: 2}}).without(map[string]int{"a": 1, "d": 3})
	if whole.seen != (Seen{Seen: 1, Total: 1, Gone: 1, Bytes: -weightOf(nil, nil)}) {
		t.Errorf("letters that came after a look of all: %+v", whole.seen)
	}
	for _, tt := range []struct {
		rule, ids string
		look      *look
		seen      Seen
	}{
		{"of letters that are alike the first ones stay", "[a b a.2]", first, Seen{Seen: 3, Total: 7, Gone: 2, Bound: "the first 5 of 9; 2 letters of the look left since", Bytes: 3 * weightOf(nil, nil)}},
		{"all of them may leave", "[b]", second, Seen{Seen: 1, Total: 5, Gone: 4, Bound: "the first 5 of 9; 4 letters of the look left since", Bytes: weightOf(nil, nil)}},
	} {
		ids := []string{}
		for _, l := range tt.look.letters {
			ids = append(ids, l.ID)
		}
		if fmt.Sprint(ids) != tt.ids || tt.look.seen != tt.seen {
			t.Errorf("%s: %v, %+v; want %s, %+v", tt.rule, ids, tt.look.seen, tt.ids, tt.seen)
		}
	}
	if len(all.letters) != 5 || all.seen.Seen != 5 {
		t.Error("the look that others may read has changed")
	}
}

// A look says each reason for which letters may be missing from it.
func TestALookSaysEachReasonThatLeavesLettersOut(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		window int
		others int // letters in their hands
		bound  string
	}{
		{"neither", 10, 0, ""},
		{"its bound", 4, 0, "the first 4 of 10 letters: one look takes no more"},
		{"other consumers", 10, 3, "what was ready, 7 letters: the queue has other consumers, which may have letters in hand"},
		{"both", 4, 3, "the first 4 of 7 letters: one look takes no more; the queue has other consumers, which may have letters in hand"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			inBubble(t, "4.3", func(w *fixture) {
				w.dead(orders(10)...)
				if tt.others > 0 {
					ch := w.channel()
					must(w.T, ch.Qos(tt.others, 0, false))
					deliveries, err := ch.Consume("orders.dlq", "", false, false, false, false, nil)
					must(w.T, err)
					for range tt.others {
						<-deliveries
					}
				}
				live, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal, Window: tt.window})
				must(w.T, err)
				list, err := live.Peek(w.Context(), 100)
				if err != nil || list.Bound != tt.bound {
					w.Errorf("%v: %q, want %q", err, list.Bound, tt.bound)
				}
			})
		})
	}
}

// Each look takes all that any look before it has handed back, of whatever process.
func TestLooksOfDifferentWindowsKeepTheOrder(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(60)...)
		before := w.ids("orders.dlq")
		for _, window := range []int{25, 16, 40, 10, 1, 60, 7} {
			live, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal, Window: window})
			must(w.T, err)
			list, err := live.Peek(w.Context(), 100)
			must(w.T, err)
			if len(list.Letters) != window || (list.Bound == "") != (window == 60) {
				w.Errorf("a window of %d: %d letters, %q", window, len(list.Letters), list.Bound)
			}
			w.has("orders.dlq", 60)
			if after := w.ids("orders.dlq"); after != before {
				w.Fatalf("a window of %d: the order was\n%s\nand is\n%s", window, before, after)
			}
		}
	})
}

// Letters that leave the head of the queue bring larger ones into the window.
func TestALookThatKeepsFewerLettersKeepsTheOrder(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead()
		publish := func(from, n, size int) {
			for i := range n {
				_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "orders.dlq", Publishing: amqp.Publishing{MessageId: fmt.Sprint("m-", from+i), Body: make([]byte, size)}})
				must(w.T, err)
			}
		}
		publish(0, 100, 1000)
		live, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal, WindowBytes: 100_000})
		must(w.T, err)
		first, err := live.Peek(w.Context(), 1000)
		must(w.T, err)
		publish(100, 20, 30_000)
		before := w.ids("orders.dlq")
		for range 3 {
			list, err := live.Peek(w.Context(), 1000)
			must(w.T, err)
			if list.Bytes > 100_000 || list.Seen.Seen > first.Seen.Seen || list.Seen.Seen < first.Seen.Seen-4 || list.Total != 120 || !strings.Contains(list.Bound, "one look keeps about") {
				w.Errorf("%d bytes of %d letters, %q; the first look had %d", list.Bytes, list.Seen.Seen, list.Bound, first.Seen.Seen)
			}
			w.has("orders.dlq", 120)
			if after := w.ids("orders.dlq"); after != before {
				w.Fatalf("the order was\n%s\nand is\n%s", before, after)
			}
		}
	})
}

// A queue notices the end of a channel late, and counts letters that have arrived meanwhile.
// A look that began then would take these before those that come back, which are older.
func TestALookHasEndedWithItsConsumer(t *testing.T) {
	for rule, tt := range map[string]struct {
		answers []amqp.Queue // the last one stays
		asked   int
		waits   time.Duration
	}{
		"all came back":                    {[]amqp.Queue{{Messages: 0, Consumers: 1}, {Messages: 3}}, 2, 5 * time.Millisecond},
		"letters arrived before":           {[]amqp.Queue{{Messages: 3, Consumers: 1}, {Messages: 4, Consumers: 1}, {Messages: 7}}, 3, 10 * time.Millisecond},
		"another consumer was there":       {[]amqp.Queue{{Messages: 3, Consumers: 2}, {Messages: 3, Consumers: 1}}, 0, settled},
		"another consumer has taken some":  {[]amqp.Queue{{Messages: 1}}, 0, settled},
		"another consumer came, and stays": {[]amqp.Queue{{Messages: 3, Consumers: 1}}, 0, settled},
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				ask := func(context.Context) (amqp.Queue, error) {
					asked++
					return tt.answers[min(asked, len(tt.answers))-1], nil
				}
				waitForReturn(t.Context(), ask, 3, 0)
				if took := time.Since(began); tt.asked > 0 && asked != tt.asked || took < tt.waits || took > tt.waits+10*time.Millisecond {
					t.Errorf("asked %d times in %v", asked, took)
				}
			})
		})
	}
}

func TestARedriveTakesAsManyAsTheLookBefore(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead(orders(40)...)
		live, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal, WindowBytes: 36_000})
		must(w.T, err)
		list, err := live.Peek(w.Context(), 100)
		must(w.T, err)
		if live.tookBefore() < list.Seen.Seen || list.Seen.Seen < 16 || list.Bound == "" {
			w.Errorf("%d letters were taken, and %d seen: %q", live.tookBefore(), list.Seen.Seen, list.Bound)
		}
		for least, want := range map[int]int{live.tookBefore(): live.tookBefore(), 0: 3} {
			h, err := take(w.Context(), w.conn, "orders.dlq", 100, least, 40, 36_000, 12_000) // as large as the API says by now
			must(w.T, err)
			if h.prefetch != want {
				w.Errorf("%d letters are taken after %d, want %d", h.prefetch, least, want)
			}
			must(w.T, h.back())
		}
	})
}

func TestAnExportIsWholeOrNothing(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead(orders(30)...)
		live, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal, Window: 20})
		must(w.T, err)
		for rule, tt := range map[string]struct {
			filter Filter
			limit  int
			want   int // letters; -1: refused
		}{
			"all of more than a window":          {want: -1},
			"a filter that saw a part":           {filter: Filter{Error: "no stock"}, want: -1},
			"one that matches none":              {filter: Filter{Error: "nothing"}, want: -1},
			"as many as there are in the window": {limit: 20, want: 20},
			"fewer":                              {limit: 3, want: 3},
			"more than a window":                 {limit: 21, want: -1},
			"a filter, and so many":              {filter: Filter{Error: "no stock"}, limit: 10, want: 10},
			"a filter, and one too many":         {filter: Filter{Error: "no stock"}, limit: 11, want: -1},
		} {
			var out bytes.Buffer
			n, err := live.Export(w.Context(), tt.filter, tt.limit, &out, By{})
			if tt.want < 0 {
				if !errors.Is(err, ErrNotWhole) || n != 0 || out.Len() != 0 || !strings.Contains(err.Error(), "the first 20 of 30 letters") || !strings.Contains(err.Error(), "collect them") {
					w.Errorf("%s: %d letters, %d bytes, %v; want a refusal", rule, n, out.Len(), err)
				}
			} else if lines := bytes.Count(out.Bytes(), []byte("\n")); err != nil || n != tt.want || lines != n {
				w.Errorf("%s: %d letters, %d lines: %v; want %d", rule, n, lines, err, tt.want)
			}
		}
		if _, err := live.Export(w.Context(), Filter{}, -1, &bytes.Buffer{}, By{}); err == nil || !strings.Contains(err.Error(), "limit is -1") {
			w.Error(err)
		}
		w.has("orders.dlq", 30)
	})
}
