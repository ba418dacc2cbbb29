package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/xdeath"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		default:
			t.Fatalf("Message.%s is a %v: the store does not know how to keep it", v.Type().Field(i).Name, v.Field(i).Type())
		}
	}
	r, err := newRow(Letter{Message: m})
	if err != nil {
		t.Fatal(err)
	}
	got := producer.Message{ID: m.ID, Exchange: m.Exchange, Key: m.Key, Body: m.Body}
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
	base := letter.Fingerprint("orders", "shop", xdeath.CauseExhausted, "*E", `order 17 of "anna": 0x1f at 3f2a9c1d-1111-2222-3333-444455556666`)
	rows := []struct {
		rule  string
		other string
		same  bool
	}{
		{"numbers, quotes and ids vary", letter.Fingerprint("orders", "shop", xdeath.CauseExhausted, "*E", `order 9 of "bob": 0x2e at deadbeef-9999-2222-3333-444455556666`), true},
		{"so do further lines", letter.Fingerprint("orders", "shop", xdeath.CauseExhausted, "*E", "order 17 of \"anna\": 0x1f at 3f2a9c1d-1111-2222-3333-444455556666\nmore"), true},
		{"the way to the queue", letter.Fingerprint("orders", "", xdeath.CauseExhausted, "*E", `order 9 of "bob": 0x2e at deadbeef-9999-2222-3333-444455556666`), true},
		{"another queue", letter.Fingerprint("bills", "shop", xdeath.CauseExhausted, "*E", `order 17 of "anna": 0x1f at 3f2a9c1d-1111-2222-3333-444455556666`), false},
		{"another cause", letter.Fingerprint("orders", "shop", xdeath.CausePermanent, "*E", `order 17 of "anna": 0x1f at 3f2a9c1d-1111-2222-3333-444455556666`), false},
		{"another type", letter.Fingerprint("orders", "shop", xdeath.CauseExhausted, "*F", `order 17 of "anna": 0x1f at 3f2a9c1d-1111-2222-3333-444455556666`), false},
		{"another text", letter.Fingerprint("orders", "shop", xdeath.CauseExhausted, "*E", "no stock"), false},
	}
	for _, row := range rows {
		if (row.other == base) != row.same {
			t.Errorf("%s: same is %v", row.rule, !row.same)
		}
	}
	alike := []string{"stock of order a-5: no answer of 10.0.0.3:5672 in 213ms", "stock of order b-17: no answer of db-2.lan:5672 in 1.052s"}
	if letter.Fingerprint("q", "", xdeath.CauseExhausted, "*E", alike[0]) != letter.Fingerprint("q", "", xdeath.CauseExhausted, "*E", alike[1]) {
		t.Errorf("two groups: %q", alike)
	}
	if letter.Fingerprint("", "shop", xdeath.CauseUnroutable, "*E", "x") == letter.Fingerprint("", "bank", xdeath.CauseUnroutable, "*E", "x") {
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
	own := producer.Receipt{Place: producer.PlaceFallback, Sink: "store", Err: connection.ErrSessionLost}
	rows := []struct {
		rule string
		l    Letter
		r    producer.Receipt
		want ending
	}{
		{"confirmed: deleted", Letter{}, producer.Receipt{Place: producer.PlaceQueue}, ending{done: true}},
		{"safe elsewhere: deleted", Letter{}, producer.Receipt{Place: producer.PlaceFallback, Sink: "other"}, ending{done: true}},
		{"back in the store: kept", Letter{}, own, ending{next: now.Add(100 * time.Millisecond), err: own.Err.Error()}},
		{"no answer: kept, may be there", Letter{}, producer.Receipt{Err: producer.ErrUnconfirmed}, ending{next: now.Add(100 * time.Millisecond), unconfirmed: true, err: producer.ErrUnconfirmed.Error()}},
		{"returned: a try spent", Letter{Tries: 2}, producer.Receipt{Err: producer.ErrReturned}, ending{next: now.Add(4 * time.Second), tried: true, err: producer.ErrReturned.Error()}},
		{"the last try: parked", Letter{Tries: 4}, producer.Receipt{Err: producer.ErrNacked}, ending{state: Parked, tried: true, err: producer.ErrNacked.Error()}},
		{"unconfirmed, then returned: no try spent", Letter{Tries: 4}, producer.Receipt{Err: fmt.Errorf("%w: %w", producer.ErrUnconfirmed, producer.ErrReturned)},
			ending{next: now.Add(100 * time.Millisecond), unconfirmed: true, err: fmt.Errorf("%w: %w", producer.ErrUnconfirmed, producer.ErrReturned).Error()}},
		{"faulty: parked at once", Letter{}, producer.Receipt{Err: faultyError{errors.New("x")}}, ending{state: Parked, tried: true, err: "x"}},
		{"an empty receipt is no confirm", Letter{}, producer.Receipt{}, ending{next: now.Add(100 * time.Millisecond), err: "the Publisher said nothing of it"}},
	}
	for _, row := range rows {
		row.l.State = Ready
		if row.want.state == "" {
			row.want.state = Ready
		}
		if got := verdict(row.l, row.r, "store", 5, 0, now); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.rule, got, row.want)
		}
	}
}

func TestPauseDoublesUpToItsLongest(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 9: 256 * time.Second, 10: 300 * time.Second, 1000: 300 * time.Second} {
		if got := pause(failures, time.Second, 5*time.Minute); got != want {
			t.Errorf("after %d failures %v, want %v", failures, got, want)
		}
	}
}

func TestPagesOfHeads(t *testing.T) {
	at := func(keys string, numbers ...int64) (page []head) {
		for i, n := range numbers {
			page = append(page, head{candidate{number: n}, target{"e", keys[i : i+1]}})
		}
		return page
	}
	numbers := func(page []candidate) (all []int64) {
		for _, c := range page {
			all = append(all, c.number)
		}
		return all
	}
	dated, others := at("ab", 3, 9), at("acb", 1, 4, 6)
	for _, tt := range []struct {
		rule    string
		last    int64
		waiting map[target]bool
		want    []int64
	}{
		{"in the order of storing", math.MaxInt64, nil, []int64{1, 3, 4, 6, 9}},
		{"as far as both pages are known", 6, nil, []int64{1, 3, 4, 6}},
		{"nothing to a target that waits", math.MaxInt64, map[target]bool{{"e", "a"}: true}, []int64{4, 6, 9}},
	} {
		if got := numbers(candidatesOf(inOrder(dated, others, tt.last), tt.waiting)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.rule, got, tt.want)
		}
	}
	if end(others, false) != 6 || end(others, true) != math.MaxInt64 || end(nil, true) != math.MaxInt64 {
		t.Error("a page that is not whole is known up to its last letter")
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
		var all []candidate
		for i, size := range row.sizes {
			all = append(all, candidate{number: int64(i), size: size})
		}
		if got := fitting(all); len(got) != row.want {
			t.Errorf("%s: %d, want %d", row.rule, len(got), row.want)
		}
	}
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace{rate: 1000}
		p.wait(t.Context(), 100)
		began := time.Now()
		if p.wait(t.Context(), 100); time.Since(began) != 100*time.Millisecond {
			t.Errorf("the second 100 messages left after %v: a burst at the beginning", time.Since(began))
		}
		p = pace{rate: 1000}
		began = time.Now()
		for range 100 {
			p.wait(t.Context(), 100)
		}
		if took := time.Since(began); took < 9500*time.Millisecond || took > 10*time.Second {
			t.Errorf("10,000 messages at 1,000/s took %v", took)
		}
		<-time.After(time.Hour)
		began = time.Now()
		for range 10 {
			p.wait(t.Context(), 100)
		}
		if took := time.Since(began); took < 600*time.Millisecond {
			t.Errorf("1,000 messages after an hour's rest took %v: a burst", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p = pace{rate: 1, next: time.Now().Add(time.Hour)}
		began = time.Now()
		p.wait(ctx, 1)
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited %v, want until the end of ctx", took)
		}
	})
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
		if got := among("seq", tt.numbers); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
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
		f := &forwarder{store: s, publisher: answering{tt.err}, cfg: cfg, endings: make(chan []ending, 10), again: repeats.New(s.cfg.Logger)}
		for range 5 {
			f.publish(t.Context(), []Letter{{State: Ready}}, leased{until: time.Now().Add(time.Minute)}, 0)
		}
		if got := f.wanted(); got != tt.want {
			t.Errorf("%s: %d letters are wanted, want %d", tt.rule, got, tt.want)
		}
	}
}

func TestByTarget(t *testing.T) {
	letter := func(n int64, key string) Letter {
		return Letter{Number: n, Message: producer.Message{Exchange: "e", Key: key}}
	}
	numbers := func(letters []Letter) (all []int64) {
		for _, l := range letters {
			all = append(all, l.Number)
		}
		return all
	}
	mixed := byTarget([]Letter{letter(1, "a"), letter(2, "b"), letter(3, "a")})
	if got := numbers(mixed[target{"e", "a"}]); len(mixed) != 2 || !slices.Equal(got, []int64{1, 3}) {
		t.Errorf("%d targets, the first with %v", len(mixed), got)
	}
	one := byTarget([]Letter{letter(1, "a"), letter(2, "a")})
	if got := numbers(one[target{"e", "a"}]); len(one) != 1 || !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("%d targets, the first with %v", len(one), got)
	}
	if none := byTarget(nil); len(none) != 0 {
		t.Errorf("%d targets of no letters", len(none))
	}
}

// fakeDB commits what it is told to, or refuses.
type fakeDB struct {
	commits int
	refuse  func(id string) error
	hold    chan struct{}
}

func (f *fakeDB) writer() *writer {
	return &writer{timeout: time.Minute, rows: 10,
		transact: func(ctx context.Context, do func(context.Context, querier) error) error {
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
		insert: func(_ context.Context, _ querier, rows []*row) error {
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
