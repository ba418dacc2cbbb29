package store_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// pagesOf reads all pages of a Query.
func pagesOf(t *testing.T, s *store.Store, q store.Query) (letters []store.Entry, pages int) {
	t.Helper()
	for {
		page, next, err := s.Find(t.Context(), q)
		must(t, err)
		letters = append(letters, page...)
		if pages++; next == 0 {
			return letters, pages
		}
		if next <= q.After {
			t.Fatalf("next is %d after %d", next, q.After)
		}
		q.After = next
	}
}

// spread gives letters names, states and times by chance.
func spread(t *testing.T, db *sql.DB, dialect store.Dialect, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return "'" + of[r.IntN(len(of))] + "'" }
	for i := range n {
		kind := r.IntN(9) // the names that a fingerprint stands for
		_, err := db.Exec(fmt.Sprintf("UPDATE rehop_letters SET state = %s, queue = 'q%d', exchange = %s, routing_key = %s, cause = 'cause %d', error_type = 'type %d', fingerprint = 'f%d', stored = %d, failed = %d WHERE seq = %d",
			pick("ready", "held", "held", "parked", "archived"), kind%3, pick("shop", "bank"), pick("a", "b", "c"), kind%2, kind/3, kind, 1000+r.IntN(1000), max(0, r.IntN(1500)-500)/500*1000+r.IntN(2)*r.IntN(500), i+1))
		must(t, err)
	}
}

// Each answer is that of a plain comparison of all letters.
func TestLookingIsExact(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		const n = 120
		for i := range n {
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: fmt.Sprint("m-", i), Body: fmt.Appendf(nil, "body %d", i%10)}, errAway))
		}
		spread(t, p.open(t), p.dialect, n)
		all, _ := pagesOf(t, s, store.Query{})
		if len(all) != n {
			t.Fatalf("%d letters", len(all))
		}
		for _, q := range manyQueries() {
			var want []int64
			groups := map[string]int{}
			for _, l := range all {
				if !matches(q, l) {
					continue
				}
				want = append(want, l.Number)
				if q.States != nil || l.State == store.Held || l.State == store.Parked {
					groups[l.Fingerprint]++
				}
			}
			for _, limit := range []int{0, 1, 7} {
				q.Limit = limit
				found, _ := pagesOf(t, s, q)
				if got := numbersOf(found); !slices.Equal(got, want) {
					t.Errorf("%+v: %v, want %v", q, got, want)
				}
			}
			q.Limit = 0
			if got, err := s.Count(t.Context(), q); err != nil || got != len(want) {
				t.Errorf("%+v: %d counted and %v, want %d", q, got, err, len(want))
			}
			if got, more, err := s.CountUpTo(t.Context(), q, 5); err != nil || got != min(len(want), 5) || more != (len(want) > 5) {
				t.Errorf("%+v: %d counted up to 5, %v and %v, want of %d", q, got, more, err, len(want))
			}
			checkGroups(t, s, q, all, groups)
			checkTrend(t, s, q, all)
		}
	})
}

func numbersOf(letters []store.Entry) (numbers []int64) {
	for _, l := range letters {
		numbers = append(numbers, l.Number)
	}
	return numbers
}

func manyQueries() (queries []store.Query) {
	for _, states := range [][]store.State{nil, {store.Held}, {store.Held, store.Parked}, {store.Ready, store.Held}, {store.Ready}} {
		for _, q := range []store.Query{
			{}, {Queue: "q1"}, {Exchange: "bank"}, {RoutingKey: "b"}, {Cause: "cause 1"}, {ErrorType: "type 2"}, {Fingerprint: "f4"}, {Fingerprint: "none"},
			{Fingerprint: "f4", Queue: "q1"}, {Fingerprint: "f4", Queue: "q2"}, {Queue: "q1", Cause: "cause 0"}, {Queue: "q1", RoutingKey: "b"}, {Exchange: "shop", Text: "body 3"},
			{Text: "body 7"}, {From: time.UnixMilli(1500)}, {Queue: "q0", From: time.UnixMilli(1300), Before: time.UnixMilli(1800)},
			{FailedFrom: time.UnixMilli(1000)}, {FailedBefore: time.UnixMilli(2000)}, {Fingerprint: "f3", FailedFrom: time.UnixMilli(1100)}, {Queue: "q2", FailedFrom: time.UnixMilli(900), FailedBefore: time.UnixMilli(1200)}, {After: 60}, {Numbers: []int64{3, 5, 90}, Queue: "q1"},
		} {
			q.States = states
			queries = append(queries, q)
		}
	}
	return queries
}

func matches(q store.Query, l store.Entry) bool {
	equal := func(want, have string) bool { return want == "" || want == have }
	within := func(from, before, at time.Time) bool {
		return (from.IsZero() || !at.IsZero() && !at.Before(from)) && (before.IsZero() || !at.IsZero() && at.Before(before))
	}
	return (q.States == nil || slices.Contains(q.States, l.State)) && equal(q.Queue, l.Queue) && equal(q.Exchange, l.Message.Exchange) &&
		equal(q.RoutingKey, l.Message.RoutingKey) && equal(string(q.Cause), string(l.Cause)) && equal(q.ErrorType, l.ErrorType) && equal(q.Fingerprint, l.Fingerprint) &&
		strings.Contains(string(l.Message.Body), q.Text) && within(q.From, q.Before, l.Stored) && within(q.FailedFrom, q.FailedBefore, l.Failed) &&
		l.Number > q.After && (q.Numbers == nil || slices.Contains(q.Numbers, l.Number))
}

func checkGroups(t *testing.T, s *store.Store, q store.Query, all []store.Entry, want map[string]int) {
	t.Helper()
	groups, more, err := s.Groups(t.Context(), q)
	must(t, err)
	if more || len(groups) != len(want) {
		t.Errorf("%+v: %d groups, %v, want %d", q, len(groups), more, len(want))
	}
	if q.States == nil {
		q.States = []store.State{store.Held, store.Parked}
	}
	for i, g := range groups {
		of := slices.DeleteFunc(slices.Clone(all), func(l store.Entry) bool { return !matches(q, l) || l.Fingerprint != g.Fingerprint })
		if len(of) == 0 {
			t.Errorf("%+v: group %q has no letter", q, g.Fingerprint)
			continue
		}
		slices.SortStableFunc(of, func(a, b store.Entry) int { return a.Failed.Compare(b.Failed) })
		first, last := of[0], of[len(of)-1]
		if g.Count != want[g.Fingerprint] || g.More || g.Example.Number != first.Number || !g.First.Equal(first.Failed) || !g.Last.Equal(last.Failed) || g.Example.Message.Body != nil {
			t.Errorf("%+v: group %q: %+v, want %d from %d to %d", q, g.Fingerprint, g, want[g.Fingerprint], first.Number, last.Number)
		}
		if i > 0 && cmp.Or(cmp.Compare(groups[i-1].Count, g.Count), -strings.Compare(groups[i-1].Fingerprint, g.Fingerprint)) < 0 {
			t.Errorf("%+v: group %d is before a larger one", q, i-1)
		}
	}
}

func checkTrend(t *testing.T, s *store.Store, q store.Query, all []store.Entry) {
	t.Helper()
	from, to := time.UnixMilli(900), time.UnixMilli(1600)
	counts, more, err := s.Trend(t.Context(), q, from, to, 7)
	must(t, err)
	if q.States == nil {
		q.States = []store.State{store.Held, store.Parked}
	}
	want := make([]int, 7)
	for _, l := range all {
		if matches(q, l) && !l.Failed.IsZero() && !l.Failed.Before(from) && l.Failed.Before(to) {
			want[l.Failed.Sub(from)/(100*time.Millisecond)]++
		}
	}
	if more || !slices.Equal(counts, want) {
		t.Errorf("%+v: trend %v, %v, want %v", q, counts, more, want)
	}
}

// many makes each letter that many times more, with a fingerprint made from its number i.
func many(t *testing.T, p place, fingerprint string, rows int) {
	t.Helper()
	db := p.open(t)
	columns := "state, line, due, next_try, exchange, routing_key, order_key, queue, properties, headers, size, cause, error, error_type, " +
		"attempts, redrives, redrive_id, tries, try_error, alone, unconfirmed, first_failed, failed, stored, lease, body"
	concat := "id || '-' || i, message_id || '-' || i"
	if p.dialect == store.MySQL {
		concat = "CONCAT(id, '-', i), CONCAT(message_id, '-', i)"
	}
	numbers := "SELECT 1 AS i"
	for d := 1; d < rows; d *= 10 {
		numbers = fmt.Sprintf("SELECT n.i * 10 + d.d AS i FROM (%s) AS n, (SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) AS d", numbers)
	}
	_, err := db.Exec(fmt.Sprintf("INSERT INTO rehop_letters (id, message_id, fingerprint, %s) SELECT %s, %s, %s FROM rehop_letters, (SELECT i FROM (%s) AS all_numbers ORDER BY i LIMIT %d) AS n", columns, concat, fingerprint, columns, numbers, rows))
	must(t, err)
}

// Each answer with a bound says that it has been reached.
func TestBoundedAnswersSaySo(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		must(t, s.Put(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "k", ID: "m", Body: []byte("body")}, fmt.Errorf("x: %w", producer.ErrReturned)))
		one := find(t, s, store.Query{})[0]
		const n = 21_000
		many(t, p, "fingerprint", n)
		must(t, s.Put(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "k", ID: "last", Body: []byte("needle")}, fmt.Errorf("x: %w", producer.ErrReturned)))
		held := []store.State{store.Held}
		for _, q := range []store.Query{
			{States: held, Text: "needle"}, {Text: "needle"}, {Fingerprint: one.Fingerprint, Text: "needle"}, {States: held, Exchange: "none", RoutingKey: "k"},
			{States: held, Exchange: "shop", FailedFrom: time.Now().Add(time.Hour)}, {States: []store.State{store.Ready, store.Held}, From: time.Now().Add(time.Hour)},
		} {
			found, next, err := s.Find(t.Context(), q)
			if err != nil || len(found) != 0 || next == 0 {
				t.Errorf("%+v: %d letters, next %d and %v, want a page that has ended early", q, len(found), next, err)
			}
			if got, more, err := s.CountUpTo(t.Context(), q, 10); err != nil || got != 0 || !more {
				t.Errorf("%+v: %d counted, %v and %v, want 0 and more", q, got, more, err)
			}
			if _, more, err := s.Groups(t.Context(), q); err != nil || !more {
				t.Errorf("%+v: groups of all letters: %v", q, err)
			}
			letters, pages := pagesOf(t, s, q)
			if want := len(q.Text) / 6; len(letters) != want || pages < 2 {
				t.Errorf("%+v: %d letters on %d pages, want %d", q, len(letters), pages, want)
			}
		}
		if found, next, err := s.Find(t.Context(), store.Query{States: held, From: time.Now().Add(time.Hour)}); err != nil || len(found) != 0 || next != 0 {
			t.Errorf("a time, which an index has: %d letters, next %d and %v", len(found), next, err)
		}
		groups, more, err := s.Groups(t.Context(), store.Query{})
		if err != nil || more || len(groups) != 1 || groups[0].Count != 10_000 || !groups[0].More {
			t.Errorf("groups %+v, %v and %v, want 10,000 and more", groups, more, err)
		}
		counts, more, err := s.Trend(t.Context(), store.Query{Fingerprint: one.Fingerprint}, one.Failed.Add(-time.Hour), one.Failed.Add(time.Hour), 3)
		if err != nil || !more || !slices.Equal(counts, []int{0, 2000, 0}) {
			t.Errorf("trend %v, %v and %v, want 2,000 and more", counts, more, err)
		}
		if _, more, err := s.Trend(t.Context(), store.Query{Exchange: "shop"}, one.Failed.Add(-time.Hour), one.Failed.Add(time.Hour), 3); err != nil || !more {
			t.Errorf("trend of an exchange of all letters: %v", err)
		}
		if got, more, err := s.CountUpTo(t.Context(), store.Query{States: held}, 10_000); err != nil || got != 10_000 || !more {
			t.Errorf("%d counted, %v and %v", got, more, err)
		}
		if got, err := s.Count(t.Context(), store.Query{States: held}); err != nil || got != n+2 {
			t.Errorf("%d counted and %v", got, err)
		}
		for _, err := range []error{
			second(s.Count(t.Context(), store.Query{Limit: 1})), third(s.CountUpTo(t.Context(), store.Query{}, 0)), third(s.Trend(t.Context(), store.Query{}, one.Stored, one.Stored, 3)),
		} {
			if rehop.ClassOf(err) != rehop.ClassBug {
				t.Errorf("a faulty call: %v", err)
			}
		}
	})
}

func second[A any](_ A, err error) error { return err }

func third[A, B any](_ A, _ B, err error) error { return err }

// More groups than are counted, and more letters in them.
func TestManyGroupsSaySo(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for i := range 3 {
			must(t, s.Put(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "k", ID: fmt.Sprint("m-", i)}, fmt.Errorf("x: %w", producer.ErrReturned)))
		}
		groupOf := "CAST(i AS CHAR(20))"
		if p.dialect == store.SQLite {
			groupOf = "CAST(i AS TEXT)"
		}
		many(t, p, groupOf, 1500)
		groups, more, err := s.Groups(t.Context(), store.Query{Limit: 2000})
		if err != nil || !more || len(groups) != 1000 || groups[0].Count != 3 || groups[999].Count != 3 {
			t.Errorf("%d groups, %v and %v", len(groups), more, err)
		}
		if groups, more, err = s.Groups(t.Context(), store.Query{Limit: 10}); err != nil || !more || len(groups) != 10 {
			t.Errorf("%d groups, %v and %v, want 10 of more", len(groups), more, err)
		}
		if groups, more, err = s.Groups(t.Context(), store.Query{Fingerprint: groups[3].Fingerprint, Cause: rehop.CauseUnroutable}); err != nil || more || len(groups) != 1 {
			t.Errorf("%d groups, %v and %v, want 1", len(groups), more, err)
		}
	})
}

// MariaDB goes from group to group, and does not read the letters between.
func TestGroupsOnMariaDBLeap(t *testing.T) {
	onOnly(t, store.MySQL, groupsLeap)
}

func groupsLeap(t *testing.T, p place) {
	db := p.open(t)
	db.SetMaxOpenConns(1) // whose reads are counted
	s, err := store.Open(t.Context(), db, p.dialect, store.Config{})
	must(t, err)
	for i := range 10 {
		must(t, s.Put(t.Context(), producer.Message{Exchange: fmt.Sprint("shop ", i), RoutingKey: "k", ID: fmt.Sprint("m-", i)}, fmt.Errorf("x: %w", producer.ErrReturned)))
	}
	many(t, p, "fingerprint", 3000)
	_, err = db.Exec("ANALYZE TABLE rehop_letters")
	must(t, err)
	reads := func() (n int) {
		must(t, db.QueryRow("SELECT SUM(VARIABLE_VALUE) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME LIKE 'Handler_read%'").Scan(&n))
		return n
	}
	one := find(t, s, store.Query{Limit: 1})[0]
	for name, ask := range map[string]func() error{
		"groups of a time": func() error {
			_, _, err := s.Groups(t.Context(), store.Query{FailedFrom: one.Failed.Add(time.Hour)})
			return err
		},
		"a trend": func() error {
			_, _, err := s.Trend(t.Context(), store.Query{Fingerprint: one.Fingerprint}, one.Failed.Add(time.Hour), one.Failed.Add(2*time.Hour), 24)
			return err
		},
	} {
		before := reads()
		must(t, ask())
		if read := reads() - before; read > 1500 {
			t.Errorf("%s: %d rows of 30,010 were read to find none", name, read)
		}
	}
}

// A page of large letters ends before they fill the memory.
func TestPagesAreBoundedInBytes(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		const n, large = 5, 7 << 20
		for i := range n {
			must(t, s.Put(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "k", ID: fmt.Sprint("m-", i), Body: make([]byte, large)}, errAway))
		}
		page, next, err := s.Find(t.Context(), store.Query{})
		if err != nil || len(page) != 2 || next != page[1].Number {
			t.Errorf("%d letters of 7 MiB, next %d and %v, want 2", len(page), next, err)
		}
		if all, pages := pagesOf(t, s, store.Query{}); len(all) != n || pages != 3 {
			t.Errorf("%d letters on %d pages", len(all), pages)
		}
		if _, next, err := s.Find(t.Context(), store.Query{Text: "none"}); err != nil || next != 5 {
			t.Errorf("a text: next is %d and %v, want 5: 32 MiB are looked at", next, err)
		}
	})
}

// What a person waits for reads an index, and no more of the table than its bound.
func TestLookingUsesTheIndices(t *testing.T) {
	p := newPlace(t, store.SQLite)
	s := p.store(t, store.Config{})
	db := p.open(t)
	if _, err := db.Exec("DROP INDEX rehop_letters_groups"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Groups(t.Context(), store.Query{}); err == nil || !strings.Contains(err.Error(), "rehop_letters_groups") {
		t.Errorf("groups without their index: %v", err)
	}
	if _, _, err := s.Trend(t.Context(), store.Query{Fingerprint: "f"}, time.UnixMilli(1), time.UnixMilli(2), 1); err == nil {
		t.Error("a trend without its index")
	}
	for name, q := range map[string]store.Query{"fingerprint": {Fingerprint: "f"}, "queue": {Queue: "q"}, "cause": {Cause: "c"}, "state": {States: []store.State{store.Held}}} {
		_, err := db.Exec("DROP INDEX rehop_letters_" + name)
		must(t, err)
		if _, _, err := s.Find(t.Context(), q); err == nil || !strings.Contains(err.Error(), "rehop_letters_"+name) {
			t.Errorf("a page by %s without its index: %v", name, err)
		}
	}
}
