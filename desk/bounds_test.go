package desk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
)

// more makes n further letters of the work queue, whose ids begin with a prefix.
func (w *fixture) more(prefix string, n int) {
	w.Helper()
	ch := w.channel()
	for _, m := range orders(n) {
		must(w.T, ch.Publish("shop", "order.paid", false, false, amqp.Publishing{MessageId: prefix + m.ID, Headers: m.Headers, Body: m.Body, DeliveryMode: amqp.Persistent}))
	}
	time.Sleep(time.Second)
	w.consume(n, func(d *consumer.Delivery) error { return consumer.DeadLetter(errors.New(d.Headers["why"].(string))) })
}

// A redrive that takes many turns is about the letters that were there when it began. Their number
// counts those that its filter leaves out.
func TestLettersThatComeDuringARedriveStay(t *testing.T) {
	for _, f := range []Filter{{}, {Error: "no stock"}} {
		onEach(t, func(w *fixture) {
			letters := orders(20)
			w.dead(letters...)
			meant := slices.DeleteFunc(letters, func(m producer.Message) bool { return !strings.Contains(m.Headers["why"].(string), f.Error) })
			type end struct {
				p   Progress
				err error
			}
			ended := make(chan end, 1)
			go func() {
				p, err := w.live().Execute(w.Context(), Redrive{Action: Move, To: address("parked"), Filter: f, All: true, Rate: 0.01}, nil)
				ended <- end{p, err}
			}()
			w.parked()
			time.Sleep(5 * time.Minute)
			w.more("late-", 10)
			e := <-ended
			if e.err != nil || e.p.Done != len(meant) || e.p.Matched != len(meant) {
				w.Errorf("%s: %v: %+v, want the %d that were there when it began", f, e.err, e.p, len(meant))
			}
			w.has("orders.dlq", 30-len(meant))
			w.has("parked", len(meant))
		})
	}
}

// A redrive that goes on after a stop, or after a lost connection, is still about those letters.
func TestLettersThatComeBetweenTheProcessesOfARedriveStay(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(20)...)
		live := w.live()
		stopped := make(chan Progress, 1)
		go func() {
			p, _ := live.Execute(w.Context(), Redrive{ID: "mine", Action: Send, All: true, Rate: 1}, nil)
			stopped <- p
		}()
		time.Sleep(6 * time.Second)
		must(w.T, w.journal.Stop("mine", By{}))
		before := <-stopped
		if n, about := before.Total(); before.Bound != 20 || n != 20 || about != "" {
			w.Errorf("%+v: a total of %s %d, want 20", before, about, n)
		}
		w.consume(before.Done, func(*consumer.Delivery) error { return nil })
		w.more("late-", 10)
		p, err := live.Resume(w.Context(), "mine", By{}, nil)
		if err != nil || p.Done != 20 || p.Bound != 20 || p.DoneBefore != before.Done {
			w.Errorf("%v: %+v, want the 20 that were there when it began", err, p)
		}
		w.has("orders.dlq", 10)
		w.has("orders", 20-before.Done)
	})
}

// letter makes a dead letter of the work queue, which may expire.
func (w *fixture) letter(id, expiration string) {
	w.Helper()
	must(w.T, w.channel().Publish("", "orders.dlq", false, false, amqp.Publishing{MessageId: id, Expiration: expiration, DeliveryMode: amqp.Persistent,
		Headers: amqp.Table{"x-rehop-queue": "orders", "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(3)}}))
	synctest.Wait()
}

// parked makes a queue that letters are moved to.
func (w *fixture) parked() {
	w.Helper()
	_, err := w.channel().QueueDeclare("parked", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	must(w.T, err)
}

// Between two processes of a redrive letters leave the queue, and others come. None of these goes
// in the place of one that has left, and each that was there and has stayed goes.
func TestALaterLetterTakesNoPlaceInARedrive(t *testing.T) {
	const n, late = 20, 30
	for _, tt := range []struct {
		rule           string
		taken, expired bool
	}{
		{"others take letters", true, false},
		{"letters expire", false, true},
		{"both", true, true},
		{"none leaves", false, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			for seed := range uint64(5) {
				onEach(t, func(w *fixture) {
					random := rand.New(rand.NewPCG(seed, n))
					w.dead()
					w.parked()
					for i := range n {
						expiration := ""
						if tt.expired && random.IntN(2) == 0 {
							expiration = "60000" // in hand it does not expire
						}
						w.letter(fmt.Sprint("m-", i), expiration)
					}
					live := w.live()
					stopped := make(chan Progress, 1)
					go func() {
						p, _ := live.Execute(w.Context(), Redrive{ID: "mine", Action: Move, To: address("parked"), All: true, Rate: 1}, nil)
						stopped <- p
					}()
					time.Sleep(time.Duration(2+random.IntN(10)) * time.Second)
					must(w.T, w.journal.Stop("mine", By{}))
					before := <-stopped
					if before.Done == 0 || before.Done == n {
						w.Fatalf("%+v: it was to be stopped in between", before)
					}
					ch := w.channel()
					for range map[bool]int{true: 1 + random.IntN(5)}[tt.taken] {
						_, _, err := ch.Get("orders.dlq", true)
						must(w.T, err)
					}
					for i := range late {
						w.letter(fmt.Sprint("late-", i), "")
					}
					time.Sleep(2 * time.Minute)
					p, err := live.Resume(w.Context(), "mine", By{}, nil)
					if err != nil || p.State != Done || strings.Contains(p.Note, "did not come again") != (tt.taken || tt.expired) {
						w.Errorf("seed %d: %v: %v", seed, err, p)
					}
					if sent := w.ids("parked"); strings.Contains(sent, "late") {
						w.Errorf("seed %d: a later letter went: %s", seed, sent)
					}
					if kept := w.ids("orders.dlq"); strings.Contains(kept, "m-") {
						w.Errorf("seed %d: letters that were there stayed: %s", seed, kept)
					}
					w.has("orders.dlq", late)
				})
			}
		})
	}
}

// A redrive that hands letters back after ten minutes, and takes them again, knows them.
func TestALaterLetterTakesNoPlaceInAnotherTurn(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead()
		w.parked()
		for i := range 20 {
			w.letter(fmt.Sprint("m-", i), map[bool]string{true: "60000"}[i%2 == 1])
		}
		ended := make(chan Progress, 1)
		go func() {
			p, err := w.live().Execute(w.Context(), Redrive{Action: Move, To: address("parked"), All: true, Rate: 0.01}, nil)
			if err != nil {
				w.Error(err)
			}
			ended <- p
		}()
		time.Sleep(time.Minute)
		for i := range 10 {
			w.letter(fmt.Sprint("late-", i), "")
		}
		p := <-ended
		if sent := w.ids("parked"); strings.Contains(sent, "late") || p.Done >= 20 || p.Done < 10 {
			w.Errorf("%+v: sent %s", p, sent)
		}
		w.has("orders.dlq", 10)
	})
}

// A number bounds the letters that the redrive has not seen, and no number those that it has.
func TestTheRoomOfARedrive(t *testing.T) {
	look := Redrive{Look: time.Unix(1, 0)}
	sent := func(keys ...string) map[string]bool {
		all := map[string]bool{}
		for _, key := range keys {
			all[key] = true
		}
		return all
	}
	for _, tt := range []struct {
		rule    string
		r       Redrive
		p       past
		letters string // one a letter, in their order
		takes   string
	}{
		{"the first pass goes by the number", Redrive{}, past{there: 3}, "abcd", "abc"},
		{"one that was cut off goes by what it saw, and then by the number", Redrive{}, past{there: 4, seen: []string{"a", "b"}}, "axyz", "axy"},
		{"one after the first goes by what it saw", Redrive{}, past{there: 3, seen: []string{"a", "b"}, passed: true}, "axb", "ab"},
		{"what was sent has no room", Redrive{}, past{there: 3, seen: []string{"a", "b", "c"}, sent: sent("a")}, "abcd", "bc"},
		{"of letters that are alike as many have room as were seen", Redrive{}, past{there: 3, seen: []string{"a", "a", "a"}, sent: sent("a.2")}, "aaaa", "aa"},
		{"one that may have been sent before has none of its own", Redrive{}, past{there: 2, seen: []string{"a", "b"}, sent: sent("a", "a.2"), doubted: sent("a.2")}, "abx", "b"},
		{"a journal without seen letters goes by the number", Redrive{}, past{there: 4, sent: sent("a", "b"), passed: true}, "wxyz", "wx"},
		{"a look goes by its letters", look, past{look: []string{"a", "a.2", "b"}, sent: sent("b")}, "xaaab", "aa"},
	} {
		room, takes := tt.p.room(tt.r), ""
		for _, digest := range strings.Split(tt.letters, "") {
			if ok, _ := room.takes(digest); ok {
				takes += digest
			}
		}
		if takes != tt.takes {
			t.Errorf("%s: of %s it takes %s, want %s", tt.rule, tt.letters, takes, tt.takes)
		}
	}
}

// A redrive with a Look sends the letters of that look, and no letter that is like them.
func TestALookIsTheBoundOfARedrive(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(20)...)
		live := w.live()
		list, err := live.List(w.Context(), Filter{Error: "no stock"}, Page{})
		must(w.T, err)
		if n, exact := list.Most(); n != 10 || !exact {
			w.Errorf("the list bounds a redrive to %d letters, exactly %t; want 10", n, exact)
		}
		w.more("late-", 10)
		p, err := live.Execute(w.Context(), Redrive{ID: "mine", Action: Send, Filter: Filter{Error: "no stock"}, Look: list.At}, nil)
		if err != nil || p.Done != 10 || p.Bound != 10 || p.Note != "" {
			w.Errorf("%v: %+v, want the 10 of the look", err, p)
		}
		w.has("orders.dlq", 20)
		w.has("orders", 10)
		kept, err := w.journal.Redrive("mine")
		if err != nil || !kept.Redrive.Look.Equal(list.At) || !strings.Contains(kept.Redrive.Which(), "of the look at 2000-01-01") {
			w.Errorf("the journal has %+v, %q: %v", kept.Redrive, kept.Redrive.Which(), err)
		}
		rest, err := live.List(w.Context(), Filter{}, Page{})
		if err != nil || len(rest.Letters) != 10 || rest.Total != 10 || !rest.At.Equal(list.At) || slices.ContainsFunc(rest.Letters, func(l Letter) bool { return l.Error == "no stock" }) {
			w.Errorf("the look after its redrive: %v, %+v", err, rest)
		}
		if p, err := live.Execute(w.Context(), Redrive{ID: "rest", Action: Send, All: true, Look: list.At}, nil); err != nil || p.Done != 10 || p.Bound != 10 || p.Note != "" {
			w.Errorf("%v: %+v, want the other 10 of the look", err, p)
		}
		w.has("orders.dlq", 10) // the late ones
		if rest, err = live.List(w.Context(), Filter{}, Page{}); err != nil || len(rest.Letters) != 0 || rest.Total != 0 || rest.Bytes != 0 {
			w.Errorf("the look after both: %v, %+v", err, rest)
		}
		if rest, err = live.List(w.Context(), Filter{}, Page{Look: true}); err != nil || len(rest.Letters) != 10 {
			w.Errorf("a new look: %v, %+v", err, rest)
		}
		if _, err := live.Execute(w.Context(), Redrive{ID: "late", Action: Send, All: true, Look: list.At}, nil); !errors.Is(err, ErrNotLooked) {
			w.Errorf("a redrive of a look that is over: %v", err)
		}
		if _, err := w.journal.Redrive("late"); !errors.Is(err, ErrNoRedrive) {
			w.Errorf("it is in the journal: %v", err)
		}
	})
}

// Of letters that nobody can tell apart, as many go as the look had, in however many turns.
func TestOfLettersThatAreAlikeAsManyGoAsTheLookHad(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead()
		ch := w.channel()
		nameless := func(n int) {
			for range n {
				must(w.T, ch.Publish("", "orders.dlq", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent,
					Headers: amqp.Table{"x-rehop-queue": "orders", "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(3)}}))
			}
			time.Sleep(time.Second)
		}
		nameless(5)
		live := w.live()
		list, err := live.List(w.Context(), Filter{}, Page{})
		must(w.T, err)
		nameless(4)
		stopped := make(chan Progress, 1)
		go func() {
			p, _ := live.Execute(w.Context(), Redrive{ID: "mine", Action: Send, All: true, Look: list.At, Rate: 0.2}, nil)
			stopped <- p
		}()
		time.Sleep(7 * time.Second)
		must(w.T, w.journal.Stop("mine", By{}))
		if p := <-stopped; p.Done == 0 || p.Done == 5 {
			w.Fatalf("%+v: it was to be stopped in between", p)
		}
		p, err := live.Resume(w.Context(), "mine", By{}, nil)
		if err != nil || p.Done != 5 || p.Bound != 5 {
			w.Errorf("%v: %+v, want the 5 of the look", err, p)
		}
		w.has("orders.dlq", 4)
		w.has("orders", 5)
	})
}

// A person may select a letter of which the queue has another one like it in front.
func TestALetterThatTheFilterLeavesOutTakesNoRoomOfALook(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead()
		ch := w.channel()
		for range 3 {
			must(w.T, ch.Publish("", "orders.dlq", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent,
				Headers: amqp.Table{"x-rehop-queue": "orders", "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(3)}}))
		}
		w.has("orders.dlq", 3)
		live := w.live()
		list, err := live.List(w.Context(), Filter{}, Page{})
		must(w.T, err)
		last := list.Letters[2].ID
		p, err := live.Execute(w.Context(), Redrive{Action: Send, Filter: Filter{IDs: []string{last}}, Look: list.At}, nil)
		if err != nil || p.Done != 1 || p.Bound != 1 || p.Note != "" {
			w.Errorf("%v: %+v, want letter %s sent", err, p, last)
		}
		w.has("orders.dlq", 2)
		w.has("orders", 1)
	})
}

// A letter of the look that another consumer has taken is missed, and none goes for it.
func TestALetterOfTheLookThatIsGoneIsToldOf(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(6)...)
		live := w.live()
		list, err := live.List(w.Context(), Filter{}, Page{})
		must(w.T, err)
		ch := w.channel()
		for range 2 {
			d, ok, err := ch.Get("orders.dlq", true)
			if err != nil || !ok {
				w.Fatal(d.MessageId, err)
			}
		}
		w.more("late-", 4)
		p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true, Look: list.At}, nil)
		if err != nil || p.Done != 4 || !strings.Contains(p.Note, "2 letters of the look did not come") {
			w.Errorf("%v: %+v, want 4 sent, and a word of the other 2", err, p)
		}
		w.has("orders.dlq", 4)

		list, err = live.List(w.Context(), Filter{}, Page{Look: true})
		must(w.T, err)
		if _, err := ch.QueuePurge("orders.dlq", false); err != nil {
			w.Fatal(err)
		}
		p, err = live.Execute(w.Context(), Redrive{Action: Send, All: true, Look: list.At}, nil)
		if err != nil || !strings.Contains(p.Note, "4 letters of the look did not come") {
			w.Errorf("%v: %+v, want a word of all 4", err, p)
		}
	})
}

func TestTheTotalOfARedriveIsNoMoreThanIsKnown(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		p     Progress
		n     int
		about string
	}{
		{"all of a place", Progress{State: Running, Bound: 150_000, Matched: 99_099, Done: 90_056}, 150_000, ""},
		{"a condition, and nobody has counted", Progress{State: Running, Matched: 99_099, Done: 90_056}, 99_099, "at least"},
		{"a condition and a limit", Progress{State: Running, Matched: 7, Done: 2, Redrive: Redrive{Limit: 100}}, 100, "at most"},
		{"stopped", Progress{State: Stopped, Bound: 20, Matched: 7, Done: 7}, 20, ""},
		{"done, with fewer than there were", Progress{State: Done, Bound: 20, Matched: 19, Done: 17, Failed: 1, Skipped: 1}, 19, ""},
		{"done, with a limit", Progress{State: Done, Matched: 7, Done: 7, Redrive: Redrive{Limit: 100}}, 7, ""},
	} {
		if n, about := tt.p.Total(); n != tt.n || about != tt.about {
			t.Errorf("%s: %s %d, want %s %d", tt.rule, about, n, tt.about, tt.n)
		}
	}
}

func TestThePaceIsThatOfTheLastProcess(t *testing.T) {
	began := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	p := Progress{Began: began, Updated: began.Add(10 * time.Second), Done: 1500, DoneBefore: 1000}
	if got := p.PerSecond(); got != 50 {
		t.Errorf("%v per second, want 50", got)
	}
	p.Updated = began
	if got := p.PerSecond(); got != 0 {
		t.Errorf("%v per second at once, want 0: it is not known", got)
	}
}

// A text that nobody can see is no condition, and a redrive without one needs All.
func TestABlankConditionSelectsNothing(t *testing.T) {
	about := About{Name: "queue q", Live: true, Queue: "q"}
	for _, blank := range []string{" ", "\t\n", "\u00a0", "\u200b\ufeff"} {
		for rule, f := range map[string]Filter{
			"Text": {Text: blank}, "Error": {Error: blank}, "Queue": {Queue: blank}, "Exchange": {Exchange: blank}, "RoutingKey": {RoutingKey: blank},
			"Cause": {Cause: rehop.Cause(blank)}, "ErrorType": {ErrorType: blank}, "Fingerprint": {Fingerprint: blank},
			"IDs[1]": {IDs: []string{"a", blank}}, "MessageIDs[0]": {MessageIDs: []string{blank}}, "States[0]": {States: []string{blank}},
			"Headers has the name": {Headers: map[string]string{blank: ""}}, "Headers[tenant]": {Headers: map[string]string{"tenant": blank}},
		} {
			for _, all := range []bool{false, true} { // All allows no condition, and not one that nobody means
				_, err := Redrive{Action: Send, Filter: f, All: all}.check(about, time.Now())
				if rehop.ClassOf(err) != rehop.ClassBug || !strings.Contains(err.Error(), "Filter."+rule) || !strings.Contains(err.Error(), strconv.Quote(blank)) {
					t.Errorf("%s is %q, All is %t: %v", rule, blank, all, err)
				}
			}
		}
	}
	for rule, f := range map[string]Filter{
		"a state that is empty, which every letter of a queue has": {States: []string{""}},
		"a message id that is empty":                               {MessageIDs: []string{""}},
		"headers without any name":                                 {Headers: map[string]string{}},
		"times that are zero":                                      {From: time.Time{}.In(time.FixedZone("", 3600)), Before: time.Time{}},
	} {
		if _, err := (Redrive{Action: Send, Filter: f}).check(about, time.Now()); rehop.ClassOf(err) != rehop.ClassBug {
			t.Errorf("%s: %v", rule, err)
		}
	}
	if _, err := (Redrive{Action: Send, Filter: Filter{Text: " é "}}).check(about, time.Now()); err != nil {
		t.Errorf("a text with spaces around it: %v", err)
	}
}
