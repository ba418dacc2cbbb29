package account

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
)

// What an account must find, and what not.
func TestCheck(t *testing.T) {
	tests := map[string]struct {
		life func(book)
		want string // in the faults; none if empty
	}{
		"handled at once": {func(b book) { b.handle(1, nil, done) }, ""},
		"handled in the last attempt": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.handle(2, errFailed, wait(2))
			time.Sleep(2 * time.Second)
			b.handle(3, nil, done)
		}, ""},
		"exhausted": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.handle(2, errFailed, wait(2))
			time.Sleep(2 * time.Second)
			b.handle(3, errFailed, exhausted)
			b.Letter(b.id, rehop.CauseExhausted, 3, 1, false)
		}, ""},
		"delivered again after a lost session": {func(b book) {
			b.handle(1, nil, requeued)
			b.handle(1, nil, done)
		}, ""},
		"delivered late, when another has had it": {func(b book) {
			b.run(Run{Attempt: 1, Call: 1, By: "one", Redelivered: true}, errFailed)
			b.say(1, wait(1))
			time.Sleep(time.Second)
			b.handle(2, nil, done)
			b.run(Run{Attempt: 1, Call: 1, By: "other"}, errFailed)
			b.say(1, requeued)
		}, ""},
		"delivered late, when another has put it off": {func(b book) {
			b.Again(b.id, Run{Attempt: 1, Call: 1, By: "one", Redelivered: true})
			time.Sleep(time.Second)
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.handle(2, nil, done)
			b.run(Run{Attempt: 1, Call: 1, By: "other"}, errFailed)
			b.say(1, requeued)
		}, ""},
		"put off by the same process, and begun again after that": {func(b book) {
			b.Again(b.id, Run{Attempt: 1, Call: 1, By: "other", Redelivered: true})
			time.Sleep(time.Second)
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.handle(2, nil, done)
			b.run(Run{Attempt: 1, Call: 1, By: "other"}, errFailed)
			b.say(1, requeued)
		}, "attempt 1 after attempt 2, and there is only one of it"},
		"delivered late, and said to wait": {func(b book) {
			b.run(Run{Attempt: 1, Call: 1, By: "one", Redelivered: true}, errFailed)
			b.say(1, wait(1))
			time.Sleep(time.Second)
			b.handle(2, nil, done)
			b.run(Run{Attempt: 1, Call: 1, By: "other"}, errFailed)
			b.say(1, wait(1))
		}, "attempt 1 after attempt 2, and there is only one of it"},
		"delivered late, and nacked to nobody": {func(b book) {
			b.Nacks()
			b.run(Run{Attempt: 1, Call: 1, By: "one", Redelivered: true}, errFailed)
			b.say(1, wait(1))
			time.Sleep(time.Second)
			b.handle(2, nil, done)
			b.run(Run{Attempt: 1, Call: 1, By: "other"}, errFailed)
			b.say(1, wait(1))
		}, ""},
		"nacked to nobody, when another has had it": {func(b book) {
			b.Nacks()
			end := b.Begin(b.id, Run{Attempt: 1, Call: 1, By: "one"})
			b.run(Run{Attempt: 1, Call: 1, By: "other", Redelivered: true}, nil)
			b.say(1, done)
			end(true, time.Now().Add(waits[0]))
			b.say(1, wait(1))
		}, ""},
		"said to wait, when another has had it": {func(b book) {
			end := b.Begin(b.id, Run{Attempt: 1, Call: 1, By: "one"})
			b.run(Run{Attempt: 1, Call: 1, By: "other", Redelivered: true}, nil)
			b.say(1, done)
			end(true, time.Now().Add(waits[0]))
			b.say(1, wait(1))
		}, "said to be in a wait after attempt 1"},
		"delivered late, and to nobody else": {func(b book) {
			b.run(Run{Attempt: 1, Call: 1, By: "one"}, errFailed)
			b.say(1, wait(1))
			time.Sleep(time.Second)
			b.handle(2, nil, done)
			b.run(Run{Attempt: 1, Call: 1, By: "other"}, errFailed)
			b.say(1, requeued)
		}, "attempt 1 after attempt 2, and there is only one of it"},
		"delivered late, and retried in place": {func(b book) {
			b.InPlace()
			b.run(Run{Attempt: 1, Call: 1, By: "one", Redelivered: true}, errFailed)
			time.Sleep(time.Second)
			b.run(Run{Attempt: 2, Call: 1, By: "one", Redelivered: true}, nil)
			b.say(2, done)
			b.run(Run{Attempt: 1, Call: 1, By: "other"}, errFailed)
			time.Sleep(time.Second)
			b.run(Run{Attempt: 2, Call: 1, By: "other"}, errFailed)
			b.say(2, requeued)
		}, ""},
		"delivered late, retried in place, and said to wait": {func(b book) {
			b.InPlace()
			b.run(Run{Attempt: 1, Call: 1, By: "one", Redelivered: true}, errFailed)
			time.Sleep(time.Second)
			b.run(Run{Attempt: 2, Call: 1, By: "one", Redelivered: true}, nil)
			b.say(2, done)
			b.run(Run{Attempt: 1, Call: 1, By: "other"}, errFailed)
			time.Sleep(time.Second)
			b.run(Run{Attempt: 2, Call: 1, By: "other"}, errFailed)
			b.say(2, wait(2))
		}, "attempt 1 after attempt 2, and there is only one of it"},
		"retried in place by one who has lost it, when another has it": {func(b book) { b.lostInPlace(2, requeued) }, ""},
		"retried in place by one who has lost it, and said to be a letter": {func(b book) { b.lostInPlace(2, exhausted) },
			"attempt 2 after attempt 3, and there is only one of it"},
		"retried in place by one who has lost it, with an attempt left out": {func(b book) { b.lostInPlace(0, requeued) },
			"attempt 2 after attempt 3, and there is only one of it"},
		"retried in place, and given to nobody else meanwhile": {func(b book) {
			b.InPlace()
			b.run(Run{Attempt: 1, Call: 1, By: "one"}, errFailed)
			time.Sleep(time.Second)
			b.run(Run{Attempt: 2, Call: 1, By: "one"}, errFailed)
			time.Sleep(2 * time.Second)
			b.run(Run{Attempt: 3, Call: 1, By: "one"}, errFailed)
			b.say(3, requeued)
			b.run(Run{Attempt: 2, Call: 1, By: "other"}, nil)
			b.say(2, done)
		}, "attempt 2 after attempt 3, and there is only one of it"},
		"sent back to its wait because it was not due": {func(b book) {
			b.handle(1, consumer.RetryAfter(3*time.Second, errFailed), wait(2))
			time.Sleep(2 * time.Second)
			b.say(2, wait(1))
			time.Sleep(time.Second)
			b.handle(2, nil, done)
		}, ""},
		"back before it is said that it was not due": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.handle(2, errFailed, wait(2))
			time.Sleep(2 * time.Second)
			b.handle(3, errFailed, exhausted)
			b.say(3, wait(2))
			b.Letter(b.id, rehop.CauseExhausted, 3, 1, false)
		}, ""},
		"said to be a letter and to wait": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.handle(2, errFailed, exhausted)
			b.say(2, wait(2))
			b.Letter(b.id, rehop.CauseExhausted, 2, 1, false)
		}, "said to be in a wait after attempt 2"},
		"waits at the end": {func(b book) {
			b.handle(1, errFailed, wait(1))
			b.Found(b.id, "orders.wait", 1, 1, false)
		}, ""},
		"its work queue is gone after its wait": {func(b book) {
			b.handle(1, errFailed, wait(1))
			b.Letter(b.id, rehop.CauseExpired, 0, 1, false)
		}, ""},
		"back from its wait, and its consumers are lost too often": {func(b book) {
			b.handle(1, errFailed, wait(1))
			b.Letter(b.id, rehop.CauseCrashLoop, 1, 1, false)
		}, ""},
		"nacked, and the broker says why": {func(b book) {
			b.handle(1, errFailed, consumer.Settlement{Disposition: consumer.DispositionDeadLetter})
			b.Letter(b.id, rehop.CauseRejected, 0, 1, false)
		}, ""},
		"attempt beyond the schedule": {func(b book) { b.handle(4, nil, done) }, "attempt 4, want 1 to 3"},
		"attempt zero":                {func(b book) { b.handle(0, nil, done) }, "attempt 0, want 1 to 3"},
		"attempt left out": {func(b book) {
			b.handle(1, errFailed, requeued)
			time.Sleep(time.Minute)
			b.handle(3, nil, done)
		}, "attempt 3 without a failed attempt 2"},
		"attempt after a success": {func(b book) {
			b.handle(1, nil, done)
			time.Sleep(time.Minute)
			b.handle(2, nil, done)
		}, "attempt 2 without a failed attempt 1"},
		"wait cut short by less than the broker counts": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second - time.Millisecond + 1)
			b.handle(2, nil, done)
		}, ""},
		"wait cut short": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second - time.Millisecond)
			b.handle(2, nil, done)
		}, "attempt 2 came 1ms before its wait had ended"},
		"RetryAfter cut short": {func(b book) {
			b.handle(1, consumer.RetryAfter(3*time.Second, errFailed), wait(2))
			time.Sleep(2 * time.Second)
			b.handle(2, nil, done)
		}, "attempt 2 came 1s before"},
		"attempts start again": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.handle(2, errFailed, wait(2))
			time.Sleep(2 * time.Second)
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.handle(3, nil, done)
		}, "attempt 1 after attempt 2, and there is only one of it"},
		"waits with too few attempts counted": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.handle(2, errFailed, requeued)
			b.Found(b.id, "orders.wait", 1, 1, false)
		}, "lies in orders.wait after 1 attempts, and has had 2"},
		"waits with too many attempts counted": {func(b book) {
			b.handle(1, errFailed, wait(1))
			b.Found(b.id, "orders.wait", 2, 1, false)
		}, "lies in orders.wait after 2 attempts, and has had 1"},
		"put off, and waits": {func(b book) {
			b.handle(1, consumer.Snooze(time.Second, "not its turn"), putOff)
			b.Found(b.id, "orders.wait", 0, 1, false)
		}, ""},
		"put off, and waits with too few attempts counted": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.handle(2, consumer.Snooze(time.Second, "not its turn"), putOff)
			b.Found(b.id, "orders.wait", 0, 1, false)
		}, "lies in orders.wait after 0 attempts, and has had 2"},
		"a doubled message that waits again": {func(b book) { // for the rest of a RetryAfter
			b.handle(1, errFailed, wait(1))
			b.handle(1, nil, done)
			time.Sleep(time.Second)
			b.Received(b.id)
			b.Said(b.id, 1, wait(1))
			time.Sleep(time.Second)
			b.Received(b.id)
			b.Said(b.id, 1, consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CauseExhausted})
			b.Letter(b.id, rehop.CauseExhausted, 1, 1, false)
		}, ""},
		"run by a process that stopped, and put off by another": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.run(Run{Attempt: 2, Call: 1, By: "one"}, errFailed)
			b.say(2, requeued)
			b.Again(b.id, Run{Attempt: 2, Call: 1, By: "other", Redelivered: true})
			b.say(2, wait(1))
			time.Sleep(2 * time.Second)
			b.run(Run{Attempt: 2, Call: 1, By: "other"}, nil)
			b.say(2, done)
		}, ""},
		"run by the process that said it waits, and comes back as the same attempt": {func(b book) {
			b.handle(1, errFailed, wait(1))
			time.Sleep(time.Second)
			b.run(Run{Attempt: 2, Call: 1, By: "one"}, errFailed)
			b.say(2, requeued)
			b.run(Run{Attempt: 2, Call: 1, By: "other", Redelivered: true}, errFailed)
			b.Again(b.id, Run{Attempt: 2, Call: 1, By: "other", Redelivered: true})
			b.say(2, wait(2))
			time.Sleep(2 * time.Second)
			b.run(Run{Attempt: 2, Call: 1, By: "other"}, nil)
			b.say(2, done)
		}, "said to be in a wait after attempt 2"},
		"said to wait, and is a letter": {func(b book) {
			b.handle(1, errFailed, wait(1))
			b.Letter(b.id, rehop.CauseRejected, 1, 1, false)
		}, "said to be in a wait after attempt 1"},
		"said to wait, and is handled again at once": {func(b book) {
			b.handle(1, errFailed, wait(1))
			b.handle(1, nil, done)
		}, "said to be in a wait after attempt 1"},
		"said to wait, and lies in its queue": {func(b book) {
			b.handle(1, errFailed, wait(1))
			b.Found(b.id, "orders", 0, 1, false)
		}, "said to be in a wait after attempt 1"},
		"said to be a letter, and is handled": {func(b book) {
			b.handle(1, errFailed, exhausted)
			b.handle(1, nil, done)
		}, "said to be a letter, exhausted, after attempt 1"},
		"said to be a letter of another cause": {func(b book) {
			b.handle(1, errFailed, exhausted)
			b.Letter(b.id, rehop.CauseRejected, 1, 1, false)
		}, "said to be a letter, exhausted"},
		"said to be a letter of another attempt": {func(b book) {
			b.handle(1, errFailed, exhausted)
			b.Letter(b.id, rehop.CauseExhausted, 2, 1, false)
		}, "said to be a letter, exhausted"},
		"said to be done, and has failed": {func(b book) {
			b.handle(1, errFailed, done)
			b.Letter(b.id, rehop.CauseExhausted, 1, 1, false)
		}, "said to be done in attempt 1 1 times, which succeeded 0 times"},
		"said to be done twice": {func(b book) {
			b.handle(1, nil, done)
			b.say(1, done)
		}, "said to be done in attempt 1 2 times, which succeeded 1 times"},
		"said to be nowhere": {func(b book) { b.handle(1, nil, consumer.Settlement{}) }, `said to be at place ""`},
		"never said to be settled": {func(b book) {
			b.Received(b.id)
			b.run(Run{Attempt: 1, Call: 1}, nil)
		}, "1 deliveries were received and never said to be settled"},
		"settled and never received": {func(b book) {
			b.run(Run{Attempt: 1, Call: 1}, nil)
			b.Said(b.id, 1, done)
		}, "-1 deliveries were received"},
		"an id that is written otherwise": {func(b book) { b.Received("orders/01") }, `"orders/01" is received, and is none of ours`},
		"an id whose number has a sign":   {func(b book) { b.Received("orders/+1") }, `"orders/+1" is received, and is none of ours`},
		"a stranger":                      {func(b book) { b.Letter("invoices/1", "", 0, 1, false) }, `"invoices/1" is a letter, and is none of ours`},
		"a number that was not given": {func(b book) {
			b.Begin("orders/2", Run{Attempt: 1})(false, time.Time{})
		}, `"orders/2" is handled, and is none of ours`},
		"lost is not reported here": {func(b book) { b.handle(1, errFailed, wait(1)) }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBook()
				tt.life(b)
				err := b.Check()
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Check = %v, want %q", err, tt.want)
				}
			})
		})
	}
}

// lostInPlace is a message that one process retries in place when it has lost it, without
// knowing that, while another retries it from its headers on. The first one's second attempt
// has a number that a test chooses, and its delivery ends with what is said of attempt 3.
func (b book) lostInPlace(second int, said consumer.Settlement) {
	b.InPlace()
	b.run(Run{Attempt: 1, Call: 1, By: "one"}, errFailed)
	time.Sleep(time.Second)
	if second > 0 {
		b.run(Run{Attempt: second, Call: 1, By: "one"}, errFailed)
	}
	time.Sleep(time.Second)
	b.run(Run{Attempt: 1, Call: 1, By: "other", Redelivered: true}, errFailed)
	b.say(1, wait(1))
	time.Sleep(time.Second)
	b.run(Run{Attempt: 3, Call: 1, By: "one"}, errFailed)
	b.run(Run{Attempt: 2, Call: 1, By: "other"}, nil)
	b.say(2, done)
	b.say(3, said)
}

// A message and its duplicate each have a count of their own.
func TestADuplicateHasItsOwnAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		b.call(nil) // published again: Call 2
		b.handle(1, errFailed, wait(1))
		time.Sleep(time.Second)
		b.handle(2, nil, done)
		b.run(Run{Attempt: 1, Call: 2}, nil)
		if err := b.Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestAnExactClockEndsNoWaitEarly(t *testing.T) {
	for name, tt := range map[string]struct {
		exact bool
		want  string
	}{
		"a broker that counts milliseconds": {false, ""},
		"a broker with our clock":           {true, "attempt 2 came 1ns before its wait had ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBook()
				if tt.exact {
					b.Exact()
				}
				b.handle(1, errFailed, wait(1))
				time.Sleep(time.Second - 1)
				b.handle(2, nil, done)
				err := b.Check()
				if got := err != nil && strings.Contains(err.Error(), tt.want); got != tt.exact {
					t.Errorf("Check = %v, want %q", err, tt.want)
				}
			})
		})
	}
}
