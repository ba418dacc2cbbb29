package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/declared"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// TestEveryFieldOfAMessageIsKept fails when producer.Message gets a field that
// the store would lose: add it to properties.
func TestEveryFieldOfAMessageIsKept(t *testing.T) {
	var m producer.Message
	v := reflect.ValueOf(&m).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i).Addr().Interface().(type) {
		case *string:
			*f = v.Type().Field(i).Name
		case *[]byte:
			*f = []byte("body")
		case *amqp.Table:
			*f = amqp.Table{"a": int64(1)}
		case *time.Time:
			*f = time.Unix(1_700_000_000, 0).UTC()
		case *time.Duration:
			*f = 5 * time.Second
		case *uint8:
			*f = 7
		case *int:
			*f = 3
		case *topology.Address:
			*f = topology.Address{Exchange: "first", RoutingKey: "key"}
		default:
			t.Fatalf("Message.%s is a %v: the store does not know how to keep it", v.Type().Field(i).Name, v.Field(i).Type())
		}
	}
	r, err := newRow(Entry{Message: m})
	if err != nil {
		t.Fatal(err)
	}
	got := producer.Message{ID: m.ID, Exchange: m.Exchange, RoutingKey: m.RoutingKey, Body: m.Body}
	table, err := letter.DecodeTable(r.properties)
	if err := errors.Join(err, letter.SetProperties(&got, table)); err != nil {
		t.Fatal(err)
	}
	if got.Headers, err = letter.DecodeTable(r.headers); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, m) {
		t.Errorf("kept\n%+v\nof\n%+v", got, m)
	}
}

func TestFingerprint(t *testing.T) {
	base := letter.Fingerprint("orders", "shop", rehop.CauseExhausted, "*E", `order 17 of "anna": 0x1f at 3f2a9c1d-1111-2222-3333-444455556666`)
	rows := []struct {
		rule  string
		other string
		same  bool
	}{
		{"numbers, quotes and ids vary", letter.Fingerprint("orders", "shop", rehop.CauseExhausted, "*E", `order 9 of "bob": 0x2e at deadbeef-9999-2222-3333-444455556666`), true},
		{"so do further lines", letter.Fingerprint("orders", "shop", rehop.CauseExhausted, "*E", "order 17 of \"anna\": 0x1f at 3f2a9c1d-1111-2222-3333-444455556666\nmore"), true},
		{"the way to the queue", letter.Fingerprint("orders", "", rehop.CauseExhausted, "*E", `order 9 of "bob": 0x2e at deadbeef-9999-2222-3333-444455556666`), true},
		{"another queue", letter.Fingerprint("bills", "shop", rehop.CauseExhausted, "*E", `order 17 of "anna": 0x1f at 3f2a9c1d-1111-2222-3333-444455556666`), false},
		{"another cause", letter.Fingerprint("orders", "shop", rehop.CausePermanent, "*E", `order 17 of "anna": 0x1f at 3f2a9c1d-1111-2222-3333-444455556666`), false},
		{"another type", letter.Fingerprint("orders", "shop", rehop.CauseExhausted, "*F", `order 17 of "anna": 0x1f at 3f2a9c1d-1111-2222-3333-444455556666`), false},
		{"another text", letter.Fingerprint("orders", "shop", rehop.CauseExhausted, "*E", "no stock"), false},
	}
	for _, row := range rows {
		if (row.other == base) != row.same {
			t.Errorf("%s: same is %v", row.rule, !row.same)
		}
	}
	alike := []string{"stock of order a-5: no answer of 10.0.0.3:5672 in 213ms", "stock of order b-17: no answer of db-2.lan:5672 in 1.052s"}
	if letter.Fingerprint("q", "", rehop.CauseExhausted, "*E", alike[0]) != letter.Fingerprint("q", "", rehop.CauseExhausted, "*E", alike[1]) {
		t.Errorf("two groups: %q", alike)
	}
	if letter.Fingerprint("", "shop", rehop.CauseUnroutable, "*E", "x") == letter.Fingerprint("", "bank", rehop.CauseUnroutable, "*E", "x") {
		t.Error("what was in no queue is told apart by its exchange")
	}
	if got := letter.Fingerprint("orders", "shop", "", "", ""); got != "" {
		t.Errorf("without a cause: %q", got)
	}
}

func TestReadable(t *testing.T) {
	rows := []struct{ in, want string }{{"plain", "plain"}, {"a\x00b\xffc", "a?b?c"}, {strings.Repeat("ü", 10), "üü"}}
	for _, row := range rows {
		if got := letter.Readable(row.in, 5); got != row.want {
			t.Errorf("%q became %q, want %q", row.in, got, row.want)
		}
	}
}

func TestArmour(t *testing.T) {
	for _, s := range []string{"", "order.paid", "\xff", "a\x00", "$base64:", "$base64:YQ==", "ü"} {
		a := letter.Armour(s)
		if got, err := letter.Unarmour(a); got != s || err != nil || strings.Contains(a, "\x00") {
			t.Errorf("%q became %q and then %q, %v", s, a, got, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	now := time.Unix(1000, 0)
	from := resend.From(t.Context(), "this store")
	resend.Took(from, "this store", "own")
	resend.Took(from, "another store", "taken")
	own := producer.Receipt{Place: producer.PlaceFallback, Sink: "store", Err: connection.ErrSessionLost}
	rows := []struct {
		rule string
		l    Entry
		r    producer.Receipt
		want result
	}{
		{"refused: a try spent, and it goes alone from then on", Entry{}, producer.Receipt{Err: producer.ErrRefused}, result{next: now.Add(time.Second), tried: true, alone: true, err: producer.ErrRefused.Error()}},
		{"its Delay is not declared: parked at once", Entry{}, producer.Receipt{Err: fmt.Errorf("no delays: %w", declared.ErrUndeclared)}, result{state: Parked, tried: true, err: "no delays: no such delay is declared"}},
		{"confirmed: deleted", Entry{}, producer.Receipt{Place: producer.PlaceQueue}, result{done: true}},
		{"safe elsewhere: deleted", Entry{}, producer.Receipt{Place: producer.PlaceFallback, Sink: "other"}, result{done: true}},
		{"in a store of this name that took it: deleted", Entry{}, producer.Receipt{ID: "taken", Place: producer.PlaceFallback, Sink: "store"}, result{done: true}},
		{"back in the store: kept", Entry{}, own, result{next: now.Add(100 * time.Millisecond), err: own.Err.Error()}},
		{"no answer: kept, may be there", Entry{}, producer.Receipt{Err: producer.ErrUnconfirmed}, result{next: now.Add(100 * time.Millisecond), unconfirmed: true, err: producer.ErrUnconfirmed.Error()}},
		{"returned: a try spent", Entry{Tries: 2}, producer.Receipt{Err: producer.ErrReturned}, result{next: now.Add(4 * time.Second), tried: true, err: producer.ErrReturned.Error()}},
		{"the last try: parked", Entry{Tries: 4}, producer.Receipt{Err: producer.ErrNacked}, result{state: Parked, tried: true, err: producer.ErrNacked.Error()}},
		{"unconfirmed, then returned: no try spent", Entry{Tries: 4}, producer.Receipt{Err: fmt.Errorf("%w: %w", producer.ErrUnconfirmed, producer.ErrReturned)},
			result{next: now.Add(100 * time.Millisecond), unconfirmed: true, err: fmt.Errorf("%w: %w", producer.ErrUnconfirmed, producer.ErrReturned).Error()}},
		{"faulty: parked at once", Entry{}, producer.Receipt{Err: &resend.FaultyError{Err: errors.New("x")}}, result{state: Parked, tried: true, err: "x"}},
		{"an empty receipt is no confirm", Entry{}, producer.Receipt{}, result{next: now.Add(100 * time.Millisecond), err: "the Publisher said nothing of it"}},
	}
	for _, row := range rows {
		row.l.State = Ready
		if row.want.state == "" {
			row.want.state = Ready
		}
		if got := verdict(row.l, row.r, resend.Arrived(from, row.r, "store"), 5, 0, now); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.rule, got, row.want)
		}
	}
}

func TestPauseDoublesUpToItsLongest(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 9: 256 * time.Second, 10: 300 * time.Second, 1000: 300 * time.Second} {
		if got := pauseAfter(failures, time.Second, 5*time.Minute); got != want {
			t.Errorf("after %d failures %v, want %v", failures, got, want)
		}
	}
}

func TestPrefixesOfLines(t *testing.T) {
	entries := []inLine{{7, 1}, {7, 3}, {7, 5}, {9, 2}, {9, 4}}
	for _, tt := range []struct {
		rule string
		n    int
		free []int64
		want []int64
	}{
		{"line by line, in the order of storing", 5, []int64{1, 2, 3, 4, 5}, []int64{1, 3, 5, 2, 4}},
		{"as many of each", 2, []int64{1, 2, 3, 4, 5}, []int64{1, 3, 2, 4}},
		{"nothing before one that another process has", 5, []int64{1, 5, 4}, []int64{1}},
		{"nothing", 5, nil, nil},
	} {
		free := map[int64]sized{}
		for _, n := range tt.free {
			free[n] = sized{number: n}
		}
		var got []int64
		for _, one := range prefixes(entries, tt.n, free) {
			got = append(got, one.number)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.rule, got, tt.want)
		}
	}
}

func TestLineOfAMessage(t *testing.T) {
	base := producer.Message{Exchange: "shop", RoutingKey: "k"}
	for rule, tt := range map[string]struct {
		m    producer.Message
		same bool
	}{
		"the same exchange and routing key": {producer.Message{Exchange: "shop", RoutingKey: "k", ID: "x"}, true},
		"another routing key":               {producer.Message{Exchange: "shop", RoutingKey: "l"}, false},
		"an OrderKey":                       {producer.Message{Exchange: "shop", RoutingKey: "k", OrderKey: "17"}, false},
	} {
		if (lineOf(tt.m) == lineOf(base)) != tt.same {
			t.Errorf("%s: the same line is %v", rule, !tt.same)
		}
	}
	if lineOf(producer.Message{Exchange: "a", OrderKey: "17"}) != lineOf(producer.Message{Exchange: "b", RoutingKey: "c", OrderKey: "17"}) {
		t.Error("an OrderKey is one line, wherever its messages go")
	}
}

// What a Store remembers of lines does not grow, and a range is forgotten only if no
// entry can have come meanwhile.
func TestWaitingForgetsARangeThatIsEmpty(t *testing.T) {
	var w waiting
	line := lineOf(producer.Message{RoutingKey: "k"})
	if _, maybe := w.look(line, time.Now()); maybe {
		t.Error("nothing was stored, and may wait")
	}
	end := w.begin(line)
	l, maybe := w.look(line, time.Now())
	if !maybe {
		t.Fatal("a letter is being stored, and none may wait")
	}
	l.empty = true
	l.end() // the entry was not committed yet
	end()
	if l, maybe = w.look(line, time.Now()); !maybe {
		t.Fatal("forgotten while a letter was being stored")
	}
	w.begin(line)()
	l.empty = true
	l.end()
	one, maybe := w.look(line, time.Now())
	if !maybe {
		t.Fatal("forgotten although a letter was stored after the look had begun")
	}
	other, _ := w.look(line, time.Now())
	one.empty = true
	one.end() // the other one may store an entry yet
	other.empty = true
	other.end()
	if _, maybe = w.look(line, time.Now()); maybe {
		t.Error("an empty range is not forgotten")
	}
	until := time.Now().Add(longestTx)
	w.mark(line, until)
	for now, want := range map[time.Time]bool{until: true, until.Add(1): false} {
		w.mark(line, until)
		l, _ := w.look(line, now)
		l.empty = true
		l.end()
		if l, maybe := w.look(line, now); maybe != want {
			t.Errorf("a look %v after the longest transaction: %v, want %v", now.Sub(until), maybe, want)
		} else if maybe {
			l.end()
		}
	}
}

func TestFitting(t *testing.T) {
	rows := []struct {
		rule  string
		sizes []int
		want  int
	}{
		{"small ones all fit", []int{1, 2, 3}, 3},
		{"as many as fit", []int{maxLeaseBytes / 2, maxLeaseBytes / 2, 1}, 2},
		{"one at least", []int{maxLeaseBytes * 2, 1}, 1},
		{"none of none", nil, 0},
	}
	for _, row := range rows {
		var all []sized
		for i, size := range row.sizes {
			all = append(all, sized{number: int64(i), size: size})
		}
		if got := fitting(all); len(got) != row.want {
			t.Errorf("%s: %d, want %d", row.rule, len(got), row.want)
		}
	}
}

func TestBind(t *testing.T) {
	if got := PostgreSQL.bind("a = ? AND b IN (?,?)"); got != "a = $1 AND b IN ($2,$3)" {
		t.Error(got)
	}
	if got := SQLite.bind("a = ?"); got != "a = ?" {
		t.Error(got)
	}
}

func TestAmong(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		numbers []int64
		want    string
	}{
		{"one", []int64{7}, "seq BETWEEN 7 AND 7"},
		{"neighbours, in any order", []int64{8, 7, 9}, "seq BETWEEN 7 AND 9"},
		{"one is missing", []int64{7, 9}, "seq IN (7,9)"},
		{"twice the same is no neighbour", []int64{7, 7, 9}, "seq IN (7,9)"},
	} {
		if got := SQLite.among("seq", tt.numbers); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
	}
	if got, want := MySQL.among("seq", []int64{8, 7}), "seq IN (7,8)"; got != want {
		t.Errorf("a range locks the row behind it on MySQL: %s, want %s", got, want)
	}
}

func TestInState(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		states []State
		want   string
	}{
		{"the index of Ready", []State{Ready}, "state = 'ready'"},
		{"the index of the others", []State{Parked, Held}, "state <> 'ready' AND state IN ('held', 'parked')"},
		{"both", []State{Ready, Held}, "state IN ('ready', 'held')"},
		{"no letter is in a state that does not exist", []State{"x' OR '1"}, "1 = 0"},
	} {
		if got := inState(tt.states...); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
	}
}

// answering is a Publisher with the same answer to every message.
type answering struct{ err error }

func (p answering) PublishAll(_ context.Context, messages []producer.Message) ([]producer.Receipt, error) {
	receipts := make([]producer.Receipt, len(messages))
	for i := range receipts {
		receipts[i] = producer.Receipt{Err: p.err}
		if p.err == nil {
			receipts[i].Place = producer.PlaceQueue
		}
	}
	return receipts, nil
}

func TestOneLetterAtATimeWhileNobodyAnswers(t *testing.T) {
	for _, tt := range []struct {
		rule string
		err  error
		want int
	}{
		{"the broker takes them", nil, 500},
		{"the broker refuses them, so it is there", producer.ErrReturned, 500},
		{"nobody is there", connection.ErrSessionLost, 1},
	} {
		cfg := ForwardConfig{}.withDefaults()
		s := &Store{cfg: Config{}.withDefaults(), now: time.Now}
		f := &forwarder{health: &forwardHealth{failing: map[topology.Address]failing{}}, store: s, publisher: answering{tt.err}, cfg: cfg, again: repeats.New(s.cfg.Logger)}
		one := &sending{forwarder: f, work: t.Context(), lease: leased{until: time.Now().Add(time.Minute)}}
		for range 5 {
			one.publish(t.Context(), []Entry{{State: Ready}}, 0, func() {})
		}
		if got, alone := f.wanted(); got != tt.want || alone != (tt.want == 1) {
			t.Errorf("%s: %d letters are wanted, want %d", tt.rule, got, tt.want)
		}
	}
}

func TestPutAtRefusesWhatIsDueAfterTheYear9999(t *testing.T) {
	s := &Store{cfg: Config{}.withDefaults(), now: time.Now, writer: (&fakeDB{}).writer()}
	last := endOfTime.Add(-time.Millisecond)
	for _, tt := range []struct {
		rule  string
		due   time.Time
		delay time.Duration
		ok    bool
	}{
		{"the last millisecond", last, 0, true},
		{"behind it", last.Add(1), 0, false},
		{"with its Delay", last, time.Millisecond, false},
		{"the largest time", time.Unix(1<<63-62135596801, 999999999), 0, false},
		{"the largest time, with a Delay", time.Unix(1<<63-62135596801, 999999999), time.Hour, false},
	} {
		m := producer.Message{RoutingKey: "k", Delay: tt.delay}
		if _, err := s.newEntry(t.Context(), m, s.now(), tt.due); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.rule, err)
		}
		if tt.ok {
			continue
		}
		if _, err := s.PutAt(t.Context(), tt.due, m); rehop.ClassOf(err) != rehop.ClassBug || !strings.HasPrefix(err.Error(), "store: due is ") || !strings.Contains(err.Error(), "want a time before 10000-01-01") {
			t.Errorf("%s: %v", tt.rule, err)
		}
	}
}

func TestGroups(t *testing.T) {
	to := func(n int64, key string) Entry {
		return Entry{Number: n, Message: producer.Message{Exchange: "e", RoutingKey: key}}
	}
	inLine := func(n int64, key string) Entry { l := to(n, key); l.line = 7; return l }
	for _, tt := range []struct {
		rule    string
		entries []Entry
		want    map[group][]int64
	}{
		{"by address, in their order", []Entry{to(1, "a"), to(2, "b"), to(3, "a")}, map[group][]int64{
			{to: topology.Address{Exchange: "e", RoutingKey: "a"}}: {1, 3}, {to: topology.Address{Exchange: "e", RoutingKey: "b"}}: {2}}},
		{"all to one address", []Entry{to(1, "a"), to(2, "a")}, map[group][]int64{{to: topology.Address{Exchange: "e", RoutingKey: "a"}}: {1, 2}}},
		{"a line, whatever its addresses", []Entry{inLine(1, "a"), inLine(2, "b"), to(3, "a")}, map[group][]int64{
			{line: 7}: {1, 2}, {to: topology.Address{Exchange: "e", RoutingKey: "a"}}: {3}}},
		{"a dead letter to its queue", []Entry{{Number: 1, Queue: "orders", Message: producer.Message{Exchange: "e", RoutingKey: "a"}}}, map[group][]int64{{to: topology.Address{RoutingKey: "orders"}}: {1}}},
		{"a refused one by itself", []Entry{to(1, "a"), {Number: 2, alone: true, Message: producer.Message{Exchange: "e", RoutingKey: "a"}}}, map[group][]int64{
			{to: topology.Address{Exchange: "e", RoutingKey: "a"}}: {1}, {to: topology.Address{Exchange: "e", RoutingKey: "a"}, alone: true}: {2}}},
		{"none", nil, map[group][]int64{}},
	} {
		got := map[group][]int64{}
		for g, entries := range groups(tt.entries) {
			for _, l := range entries {
				got[g] = append(got[g], l.Number)
			}
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.rule, got, tt.want)
		}
	}
}

// fakeDB commits what it is told to, or refuses.
type fakeDB struct {
	commits int
	refuse  func(id string) error
	hold    chan struct{}
}

func (f *fakeDB) writer() *writer {
	return &writer{timeout: time.Minute, rows: 10, abreast: 1,
		transact: func(ctx context.Context, do func(context.Context, Tx) error) error {
			if f.hold != nil {
				select {
				case <-f.hold:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			err := do(ctx, nil)
			if err == nil {
				f.commits++
			}
			return err
		},
		insert: func(_ context.Context, _ Tx, rows []*row) error {
			ids := map[string]bool{}
			for _, r := range rows {
				if ids[r.id] {
					return errors.New("one insert has a row twice")
				}
				ids[r.id] = true
				if f.refuse != nil {
					if err := f.refuse(r.id); err != nil {
						return err
					}
				}
			}
			return nil
		}}
}

func TestWriterCommitsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{hold: make(chan struct{}), refuse: func(id string) error {
			if id == "bad" {
				return errors.New("refused")
			}
			return nil
		}}
		w := db.writer()
		put := func(id string) chan error {
			done := make(chan error, 1)
			go func() { done <- w.put(t.Context(), &row{id: id}) }()
			synctest.Wait()
			return done
		}
		first := put("first") // is being committed while the others come
		var others []chan error
		for i := range 100 {
			others = append(others, put(fmt.Sprint("other ", i%50)))
		}
		left, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- w.put(left, &row{id: "gone"}) }()
		synctest.Wait()
		leave()
		synctest.Wait()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("who leaves gets %v", err)
		}
		db.hold <- struct{}{}
		db.hold <- struct{}{}
		if err := <-first; err != nil {
			t.Error(err)
		}
		for _, done := range others {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if db.commits != 2 {
			t.Errorf("%d commits, want 2", db.commits)
		}
		db.hold = nil
		bad, good := w.put(t.Context(), &row{id: "bad"}), w.put(t.Context(), &row{id: "good"})
		if bad == nil || good != nil {
			t.Errorf("bad: %v, good: %v", bad, good)
		}
	})
}

func TestWriterGivesUpOnADatabaseThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := (&fakeDB{hold: make(chan struct{})}).writer()
		began := time.Now()
		errs := make(chan error, 20)
		for i := range 20 {
			go func() { errs <- w.put(t.Context(), &row{id: fmt.Sprint(i)}) }()
		}
		for range 20 {
			if err := <-errs; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("put: %v", err)
			}
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("20 puts gave up after %v, want one timeout for all of a transaction", took)
		}
	})
}

// A caller whose ctx has ended finds the error of the ctx and its cause, whether it has waited or not.
func TestAWriteSaysWhyItsCtxHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{hold: make(chan struct{})}
		defer close(db.hold)
		w := db.writer()
		cause := errors.New("the request is over")
		for _, after := range []time.Duration{0, time.Second} {
			ctx, cancel := context.WithCancelCause(t.Context())
			if after == 0 {
				cancel(cause)
			}
			time.AfterFunc(after, func() { cancel(cause) })
			if err := w.put(ctx, &row{id: "m"}); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
				t.Errorf("ended after %v: %v; want the error of the ctx and its cause", after, err)
			}
		}
	})
}
