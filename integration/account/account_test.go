package account

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

var waits = delay.Schedule{time.Second, 2 * time.Second}

var (
	errFailed = errors.New("failed on purpose")
	done      = consumer.Settlement{Disposition: consumer.DispositionDone}
	putOff    = consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: 1, Snoozed: true}
	requeued  = consumer.Settlement{Disposition: consumer.DispositionRequeued}
	exhausted = consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CauseExhausted}
)

func wait(waitNumber int) consumer.Settlement {
	return consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: waitNumber}
}

// book is an account with a message that is safe, and verbs for its life.
type book struct {
	*Account
	id string
}

func newBook() book {
	a := New("orders", waits, 4)
	b := book{a, a.Next()}
	b.call(nil)
	return b
}

func (b book) call(err error) { b.Calling(b.id); b.Called(b.id, false, false, err) }

// handle runs an attempt and says where its delivery went.
func (b book) handle(attempt int, err error, said consumer.Settlement) {
	b.run(Run{Attempt: attempt, Call: 1}, err)
	b.say(attempt, said)
}

func (b book) run(r Run, err error) {
	end := b.Begin(b.id, r)
	due, failed := Due(waits, r.Attempt, err, time.Now())
	end(failed, due)
}

func (b book) say(attempt int, said consumer.Settlement) {
	b.Received(b.id)
	b.Said(b.id, attempt, said)
}

func TestLost(t *testing.T) {
	a := New("orders", waits, 8)
	life := func(do func(book)) string {
		b := book{a, a.Next()}
		do(b)
		return b.id
	}
	life(func(b book) { b.call(nil); b.handle(1, nil, done) })
	never := life(func(b book) { b.call(nil) })
	inWait := life(func(b book) { b.call(nil); b.handle(1, errFailed, wait(1)) })
	life(func(b book) { b.call(errFailed) }) // Publish said so
	life(func(b book) { b.run(Run{Attempt: 1, Call: 1}, nil); b.call(nil) })
	life(func(b book) { b.call(nil); b.Letter(b.id, "", 1, 1, false) })
	found := life(func(b book) { b.call(nil) })
	again := life(func(b book) { b.call(errFailed); b.call(nil) })
	if got, want := a.Lost(), []string{never, inWait, found, again}; !slices.Equal(got, want) {
		t.Errorf("lost are %v, want %v", got, want)
	}
	if c := a.Counts(); c.Safe != 7 || c.Open != 4 || c.Failed != 2 || c.Handled != 2 || c.Letters != 1 || c.Failures != 1 || c.Runs != 3 {
		t.Errorf("counts are %+v", c)
	}
	a.Found(found, "orders", 0, 1, false)
	book{a, again}.handle(1, nil, done)
	if got, want := a.Lost(), []string{never, inWait}; !slices.Equal(got, want) {
		t.Errorf("lost are %v, want %v", got, want)
	}
	if text := a.String(); !strings.Contains(text, "7 safe, 2 publishes failed, 4 handler runs; ended 3 handled, 1 as letters (1 ), 1 in a queue; 2 lost, 0 doubled") {
		t.Errorf("it says %q", text)
	}
	if text := a.Tell(a.Lost()); !strings.Contains(text, "said of attempt 1: wait 1; ended nowhere") {
		t.Errorf("the stories are %q", text)
	}
	if err := a.Verdict(); err == nil || err.Error() != "2 messages are lost: "+a.Tell(a.Lost()) {
		t.Errorf("the verdict is %v", err)
	}
	a.Received(found)
	if err := a.Verdict(); err == nil || !strings.HasSuffix(err.Error(), "\n1 deliveries were received and never said to be settled") {
		t.Errorf("the verdict on a delivery that is not settled too is %v", err)
	}
}

func TestDoubled(t *testing.T) {
	handled := func(attempt, call int, redelivered bool) func(book) {
		return func(b book) {
			b.run(Run{Attempt: attempt, Call: call, Redelivered: redelivered}, nil)
		}
	}
	fail := func(attempt int) func(book) {
		return func(b book) { b.run(Run{Attempt: attempt, Call: 1}, errFailed) }
	}
	letter := func(redelivered bool) func(book) {
		return func(b book) { b.Letter(b.id, "", 1, 1, redelivered) }
	}
	twice := func(b book) { b.Calling(b.id); b.Called(b.id, true, false, nil) }
	found := func(b book) { b.Found(b.id, "orders", 0, 1, true) }
	tests := map[string]struct {
		life []func(book)
		want Cause
	}{
		"another call":              {[]func(book){handled(1, 1, false), handled(1, 2, false)}, CalledAgain},
		"another call, redelivered": {[]func(book){handled(1, 1, false), handled(1, 2, true)}, CalledAgain},
		"redelivered":               {[]func(book){handled(1, 1, false), handled(1, 1, true)}, DeliveredAgain},
		"acked, and still there":    {[]func(book){handled(1, 1, false), found}, DeliveredAgain},
		"sent twice":                {[]func(book){twice, handled(1, 1, false), handled(1, 1, false)}, SentAgain},
		"sent twice, failed":        {[]func(book){twice, fail(1), fail(1), handled(2, 1, false), handled(2, 1, true)}, SentAgain},
		"sent or delivered again":   {[]func(book){twice, handled(1, 1, false), handled(1, 1, true)}, Either},
		"moved twice, run twice":    {[]func(book){fail(1), fail(1), handled(2, 1, false), handled(2, 1, true)}, MovedAgain},
		"moved twice, run once":     {[]func(book){fail(1), handled(2, 1, false), handled(2, 1, false)}, MovedAgain},
		"retry delivered again":     {[]func(book){fail(1), handled(2, 1, false), handled(2, 1, true)}, DeliveredAgain},
		"two letters":               {[]func(book){fail(1), fail(1), letter(false), letter(true)}, MovedAgain},
		"out of nothing":            {[]func(book){handled(1, 1, false), handled(1, 1, false)}, Unexplained},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBook()
			book{b.Account, b.Next()}.handle(1, nil, done) // a neighbour
			for _, do := range tt.life {
				do(b)
			}
			d := b.Doubled()
			if d.Messages != 1 || d.Ends != 1 || !maps.Equal(d.By, map[Cause]int{tt.want: 1}) {
				t.Errorf("doubled are %+v, want one %q", d, tt.want)
			}
			if (len(d.Strange) == 1) != (tt.want == Unexplained) {
				t.Errorf("unexplained are %v", d.Strange)
			}
		})
	}
}

// A message that ends before its call of Publish has returned is not open.
func TestAnEndBeforeTheConfirm(t *testing.T) {
	a := New("orders", waits, 1)
	b := book{a, a.Next()}
	b.Calling(b.id)
	b.handle(1, nil, done)
	b.Called(b.id, false, false, nil)
	if c := a.Counts(); c.Open != 0 || c.Safe != 1 || c.InFlight != 0 || len(a.Lost()) != 0 {
		t.Errorf("counts are %+v, lost %v", c, a.Lost())
	}
}

// Whatever happens to an ordinary message later on, its story is complete.
func TestAnOrdinaryMessageKeepsItsStoryWithoutAHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		time.Sleep(time.Minute)
		began := time.Now()
		b.handle(1, nil, done)
		if b.messages[1].history != nil {
			t.Fatal("it has a history")
		}
		s := b.Of(b.id)
		if !s.Safe || len(s.Runs) != 1 || !s.Runs[0].Began.Equal(began) || s.Runs[0].Attempt != 1 || len(s.Ends) != 1 || s.Ends[0].Place != Handled {
			t.Errorf("its story is %+v", s)
		}
		b.run(Run{Attempt: 1, Call: 1, Redelivered: true}, nil)
		if s := b.Of(b.id); len(s.Runs) != 2 || len(s.Ends) != 2 {
			t.Errorf("its story goes on as %+v", s)
		}
		if d := b.Doubled(); d.By[DeliveredAgain] != 1 {
			t.Errorf("doubled are %+v", d)
		}
		if c := b.Counts(); c.Handled != 1 || c.Safe != 1 || c.Open != 0 {
			t.Errorf("counts are %+v", c)
		}
	})
}

func TestWhatIsNotOrdinaryKeepsItsHistory(t *testing.T) {
	tests := map[string]func(book){
		"redelivered":     func(b book) { b.run(Run{Attempt: 1, Call: 1, Redelivered: true}, nil); b.say(1, done) },
		"by one of many":  func(b book) { b.run(Run{Attempt: 1, Call: 1, By: "one"}, nil); b.say(1, done) },
		"another call":    func(b book) { b.run(Run{Attempt: 1, Call: 2}, nil); b.say(1, done) },
		"not done":        func(b book) { b.handle(1, nil, requeued) },
		"sent twice":      func(b book) { b.handle(1, nil, done); b.Called(b.id, true, false, nil) },
		"published twice": func(b book) { b.handle(1, nil, done); b.call(nil) },
		"a letter": func(b book) {
			b.run(Run{Attempt: 1, Call: 1}, errFailed)
			b.say(1, done)
			b.Letter(b.id, "", 1, 1, false)
		},
	}
	for name, life := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBook()
			if life(b); b.messages[1].history == nil {
				t.Error("it has none")
			}
			if c := b.Counts(); c.Safe != 1 || c.Open != 0 {
				t.Errorf("counts are %+v, want one that is safe and has ended", c)
			}
		})
	}
}

func TestAnOrdinaryMessageCostsNoMemory(t *testing.T) {
	const messages = 50_000
	a := New("orders", waits, messages)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range messages {
		b := book{a, a.Next()}
		b.call(nil)
		b.handle(1, nil, done)
	}
	if more := int64(heap()) - int64(before); more > 20*messages {
		t.Errorf("%d messages hold %d bytes more", messages, more)
	}
	runtime.KeepAlive(a)
}

func TestDue(t *testing.T) {
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		attempt int
		err     error
		failed  bool
		after   time.Duration // of now; none if negative
	}{
		"success":     {1, nil, false, -1},
		"discarded":   {1, consumer.Discard("old"), false, -1},
		"failed":      {2, errFailed, true, 2 * time.Second},
		"exhausted":   {3, errFailed, true, 0},
		"retry after": {1, consumer.RetryAfter(time.Minute, errFailed), true, time.Minute},
		"held":        {1, consumer.Hold(errFailed), true, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			due, failed := Due(waits, tt.attempt, tt.err, now)
			want := time.Time{}
			if tt.after >= 0 {
				want = now.Add(tt.after)
			}
			if failed != tt.failed || !due.Equal(want) {
				t.Errorf("Due = %v, %t, want %v, %t", due, failed, want, tt.failed)
			}
		})
	}
}

// The adapters note what the consumer's own types hold.
func TestAdapters(t *testing.T) {
	a := New("orders", waits, 1)
	w := topology.WorkQueue{Name: "orders", Waits: waits}
	id := a.Next()
	a.Called(id, false, false, nil)
	handler := a.Handler("one", func(_ context.Context, d *consumer.Delivery) error {
		if d.Attempt == 1 {
			return errFailed
		}
		return nil
	})
	for attempt, said := range []consumer.Settlement{wait(1), done} {
		d := &consumer.Delivery{ID: id, Attempt: attempt + 1, Redelivered: attempt == 1, Headers: amqp.Table{callHeader: int64(3)}}
		a.Trace().Received(t.Context(), d)
		if err := handler(t.Context(), d); (err == nil) != (attempt == 1) {
			t.Errorf("the handler returned %v", err)
		}
		a.Trace().Settled(t.Context(), consumer.Settled{Delivery: d, Settlement: said})
	}
	letter := &consumer.Delivery{ID: id, History: xdeath.History{Failure: xdeath.Failure{Cause: rehop.CausePermanent}, FinalAttempts: 2}}
	if err := a.Letters(t.Context(), letter); err != nil {
		t.Error(err)
	}
	for _, queue := range []string{w.DeadLetterQueue().Name, route.WaitQueue(w.Name, 1)} {
		m := amqp.Delivery{MessageId: id, Headers: amqp.Table{header.Queue: "orders", header.Attempts: int64(1)}}
		if err := a.Lies(w, queue, m); err != nil {
			t.Error(err)
		}
	}
	s := a.Of(id)
	if len(s.Runs) != 2 || s.Runs[1].By != "one" || s.Runs[1].Call != 3 || !s.Runs[1].Redelivered || !s.Runs[0].Failed || s.Runs[0].Due.Sub(s.Runs[0].Ended) > waits[0] {
		t.Errorf("runs are %+v", s.Runs)
	}
	var ends []string
	for _, e := range s.Ends {
		ends = append(ends, fmt.Sprintf("%v %d %s", e.Place, e.Attempt, e.Cause))
	}
	if want := []string{"handled 2 ", "letter 2 permanent", "letter 1 expired", "in a queue 1 "}; !slices.Equal(ends, want) {
		t.Errorf("ends are %q, want %q", ends, want)
	}
	if c := a.Counts(); c.Unsettled != 0 || c.Running != 0 {
		t.Errorf("counts are %+v", c)
	}
}
