package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/desk"
)

// has5000 gives the broker of a room 5,000 queues of dead letters, with the longest names.
func (r *room) has5000(ready int) {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	r.broker.queues = nil
	for i := range 5000 {
		name := fmt.Sprintf("%04d%s", i, strings.Repeat("<", 240))
		r.broker.queues = append(r.broker.queues, desk.Queue{Name: name + ".dlq", IsDeadLetters: true, Ready: ready}, desk.Queue{Name: name, DeadLetters: name + ".dlq", Consumers: 1})
	}
}

// The overview shows as many rows as a person reads, and says how many it leaves out.
func TestTheOverviewOfFiveThousandQueues(t *testing.T) {
	for _, ready := range []int{1, 0} {
		t.Run(fmt.Sprint(ready, " in each"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := enter(t, nil)
				r.has5000(ready)
				r.h.sampleOnce(t.Context(), map[string]time.Time{})
				sentence := map[int]string{1: "200 of 5,001 are in this table", 0: "200 of 5,000 are in this list"}[ready]
				w := r.get("/")
				r.has(w, 200, sentence, "200 of 5,000 work queues are in this table")
				if known := "Growth is known of the first 1,000 places, and not of 4,001 with letters."; strings.Contains(w.Body.String(), known) != (ready == 1) {
					t.Errorf("of %d in each the page says %q: %t", ready, known, ready != 1)
				}
				if page := r.get("/?name=4711").Body.String(); ready == 1 && (!strings.Contains(page, `growth unknown`) || strings.Contains(page, `<span class="dim">0</span>`)) {
					t.Errorf("the growth of a place that is not watched: %s", page)
				}
				unwatched, watched := strings.Repeat("<", 240)+".dlq", r.get("/events?view=place&store=store+letters.db").Body.String()
				if page := r.get("/events?" + url.Values{"view": {"place"}, "queue": {"4711" + unwatched}}.Encode()).Body.String(); strings.Contains(page, "no change") || !strings.Contains(watched, "no change") {
					t.Errorf("the growth of one place: %s, and of one that is watched: %s", page, watched)
				}
				if w.Body.Len() > 4<<20 {
					t.Errorf("the overview has %d bytes", w.Body.Len())
				}
				w = r.get("/?name=4711")
				r.has(w, 200, "4711&lt;")
				if strings.Contains(w.Body.String(), "4710&lt;") || strings.Contains(w.Body.String(), sentence) {
					t.Error("a filter by name shows others")
				}
				r.has(r.get("/events?view=overview&name=4711"), 200, "4711")
			})
		})
	}
}

// order is the queues of the overview from top to bottom.
func (r *room) order(page string) string {
	r.Helper()
	w := r.get(page)
	r.has(w, 200)
	var names []string
	for _, row := range strings.Split(w.Body.String(), `<tr data-row="`)[1:] {
		name, _, _ := strings.Cut(row, `"`)
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// What a look does is said where its buttons are, and not under a pointer alone: a phone has none.
func TestTheOverviewSaysWhatALookDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		const takes, after = "A look takes the letters of a queue and hands them back in their order, marked as redelivered.", "known after a look"
		r.has(r.get("/"), 200, `<p class="summary"><b>Look</b> shows why letters of a queue failed, and since when. `+takes, after, `action="look"`, "Sorted by need")
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		page := r.get("/")
		r.has(page, 200, takes)
		if text := page.Body.String(); strings.Contains(text, after) || strings.Contains(text, "<b>Look</b> shows") {
			t.Error("the page asks for a look that was done")
		}
	})
}

func TestTheOverviewIsSorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, func(cfg *Config) { cfg.Sources = nil })
		r.broker.each = map[string]*fake{}
		count := func(grown, collected, large, small int) {
			r.broker.mu.Lock()
			defer r.broker.mu.Unlock()
			r.broker.queues = []desk.Queue{
				{Name: "collected", IsDeadLetters: true, Ready: collected, Consumers: 2}, {Name: "empty", IsDeadLetters: true}, {Name: "grown", IsDeadLetters: true, Ready: grown},
				{Name: "large", IsDeadLetters: true, Ready: large}, {Name: "small", IsDeadLetters: true, Ready: small},
			}
		}
		count(1, 900, 500, 2)
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		<-time.After(time.Minute)
		count(9, 990, 500, 2)
		r.h.sampleOnce(t.Context(), map[string]time.Time{})

		old, older := letter(1), letter(2)
		old.Failed, older.Failed = time.Now().Add(-2*time.Hour), time.Now().Add(-3*time.Hour)
		old.Error, older.Error = "no stock", "bad address"
		r.broker.each["small"] = &fake{name: "queue small", live: true, letters: []desk.Letter{old}}
		r.broker.each["large"] = &fake{name: "queue large", live: true, letters: []desk.Letter{older, older, old}}
		for _, queue := range []string{"small", "large"} {
			r.has(r.post("/look", url.Values{"queue": {queue}}), 303)
			<-time.After(time.Minute)
		}
		for sort, want := range map[string]string{
			"":          "grown large small collected",
			"need":      "grown large small collected",
			"name":      "collected grown large small",
			"letters":   "collected large grown small",
			"growth":    "collected grown large small",
			"oldest":    "large small grown collected",
			"reason":    "large small grown collected",
			"look":      "grown collected small large",
			"collector": "grown large small collected",
		} {
			if got := r.order("/?sort=" + sort); got != want {
				t.Errorf("by %q: %s, want %s", sort, got, want)
			}
		}
		if got := r.order("/?name=ALL"); got != "small" {
			t.Errorf("of the name ALL: %s, want small", got)
		}
		r.has(r.get("/?sort=large"), 400, "sort is", "need, name, letters")
		r.has(r.get("/?name=none"), 200, "No name contains")
		w := r.get("/?sort=reason&name=l")
		r.has(w, 200, `aria-sort="ascending"`, `href="./?name=l&amp;sort=letters"`, "events?name=l&amp;sort=reason&amp;view=overview", "bad address", "&#43;90", "3 h ago", "Sort by need</a>, as equal rows are.")
	})
}

// A table of one row is not sorted, and one of a thing is not called several.
func TestATableOfOneRowSaysNothingOfSorting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, func(cfg *Config) { cfg.Sources = nil })
		count := func(queues ...desk.Queue) {
			r.broker.mu.Lock()
			defer r.broker.mu.Unlock()
			r.broker.queues = queues
		}
		letters, work := desk.Queue{Name: "orders.dlq", IsDeadLetters: true, Ready: 1}, desk.Queue{Name: "orders", DeadLetters: "orders.dlq", Letters: 1, Consumers: 1}
		count(letters, work)
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		page := r.get("/")
		r.has(page, 200, `data-what="consumer">1<`, `data-what="letter">1<`)
		for _, text := range []string{"Headings sort", "Sorted by need", "Equal rows", "for all"} {
			if strings.Contains(page.Body.String(), text) {
				t.Errorf("of one row the page says %q", text)
			}
		}
		other, more := letters, work
		other.Name, more.Name, more.Letters, more.Consumers, more.DeadLetters = "bills.dlq", "bills", 2, 0, "bills.dlq"
		count(letters, work, other, more)
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		r.has(r.get("/"), 200, "Headings sort", "Sorted by need", "Equal rows", "one logarithmic scale for all", `data-what="consumers">0<`, `data-what="letters">2<`)
	})
}

// The table of work queues has an order of its own, which a live update and the filter keep.
func TestWorkQueuesAreSorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.broker.mu.Lock()
		r.broker.queues = []desk.Queue{
			{Name: "c", Ready: 1, Unacked: 9, Consumers: 1, State: "running"}, {Name: "a", Ready: 1, Waiting: 5, Consumers: 2}, {Name: "b", Ready: 7, DeadLetters: "b.dlq", Letters: 4, Consumers: 1, State: "down"},
		}
		r.broker.mu.Unlock()
		r.h.sampleOnce(t.Context(), map[string]time.Time{})
		order := func(page string) (names string) {
			for _, row := range strings.Split(r.get(page).Body.String(), `<tr><td class="mono">`)[1:] {
				names += row[:1]
			}
			return names
		}
		for sort, want := range map[string]string{"": "abc", "name": "abc", "ready": "bac", "unacked": "cab", "waiting": "abc", "letters": "bac", "consumers": "abc", "state": "bca"} {
			if got := order("/?queues=" + sort); got != want {
				t.Errorf("by %q: %s, want %s", sort, got, want)
			}
		}
		r.has(r.get("/"), 200, `<th aria-sort="ascending"><a href="./">Queue</a>`, `<th class="n"><a href="./?queues=ready">Ready</a>`, "Equal rows are in the order of their names")
		r.has(r.get("/?queues=ready&sort=name&name=b"), 200, `<th class="n" aria-sort="descending"><a href="./?name=b&amp;queues=ready&amp;sort=name">Ready</a>`, `href="./?name=b&amp;queues=ready&amp;sort=letters"`,
			"events?name=b&amp;queues=ready&amp;sort=name&amp;view=overview", `<input type="hidden" name="queues" value="ready">`)
		r.has(r.get("/?queues=size"), 400, "queues is", "size", "name, ready")
	})
}

// The plots of the overview have one scale, so that a letter is lower than 58.
func TestPlotsOfTheOverviewHaveOneScale(t *testing.T) {
	now := time.Now()
	points := func(n int) []point { return []point{{now.Add(-time.Minute), n}, {now, n}} }
	rows := []row{{depth: depth{Plot: points(1)}}, {depth: depth{Plot: points(58)}}, {depth: depth{Plot: points(0)}}}
	s := scaleOf(rows)
	heights := map[string]bool{}
	for _, r := range rows {
		_, line, _ := strings.Cut(string(plotArea(r.Plot, s)), `class="line" d="M0.0 `)
		height, _, _ := strings.Cut(line, "L")
		heights[height] = true
	}
	if len(heights) != 3 || !heights["42.0"] || !heights["4.0"] {
		t.Errorf("the plots of 1, 58 and 0 letters begin at %v", heights)
	}
}

// What goes up and comes down again has changed, although it ends where it began.
func TestAPlotThatEndsWhereItBeganTellsOfTheWay(t *testing.T) {
	at := time.Now()
	for _, tt := range []struct {
		depths []int
		want   string
	}{{[]int{7}, "no change"}, {[]int{7, 7, 7}, "no change"}, {[]int{7, 12, 7}, "as many as before"}, {[]int{7, 12, 9}, "+2"}, {[]int{7, 1}, "-6"}} {
		var points []point
		for i, n := range tt.depths {
			points = append(points, point{at.Add(time.Duration(i) * time.Minute), n})
		}
		if got := grown(points); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.depths, got, tt.want)
		}
	}
}

// A row tells what the kept look has seen, and nothing when that is forgotten.
func TestARowTellsOfTheKeptLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, func(cfg *Config) { cfg.Sources = nil })
		r.queue.letters[2].Failed = time.Now().Add(-72 * time.Hour)
		if page := r.get("/").Body.String(); strings.Contains(page, "no stock") || strings.Contains(page, "3 days ago") {
			t.Error("the overview knows letters that nobody has looked at")
		}
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
		r.has(r.get("/"), 200, "no stock", "3 days ago", `href="letters?group=f1&amp;queue=orders.dlq"`)
		r.queue.mu.Lock()
		r.queue.looked = 0
		r.queue.mu.Unlock()
		r.has(r.post("/export", url.Values{"queue": {"orders.dlq"}}), 409)
		synctest.Wait() // the request has left the queue
		if page := r.get("/").Body.String(); strings.Contains(page, "no stock") {
			t.Error("the overview tells of a look that is forgotten")
		}
	})
}
