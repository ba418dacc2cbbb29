package consumer_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

type order struct {
	Number int `json:"number" xml:"number"`
}

func typed(kind, body string) func(*rehoptest.Message) {
	return func(m *rehoptest.Message) { m.Type, m.Body = kind, []byte(body) }
}

func TestABodyThatCannotBeDecodedIsADeadLetterAtItsFirstAttempt(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var got []int
		_, stop := w.start(consumer.JSON(func(_ context.Context, _ *consumer.Delivery, o order) error {
			got = append(got, o.Number)
			return nil
		}), consumer.Config{})
		w.publish(1, typed("", `{"number": 7}`))
		w.publish(1, typed("", `{"number": "seven"}`))
		synctest.Wait()
		w.stopped(stop)
		if !slices.Equal(got, []int{7}) {
			w.Errorf("handled %v, want [7]", got)
		}
		w.has("orders.dlq", id(1))
		h, err := xdeath.Parse(w.letter().Headers)
		if err != nil || h.Failure.Cause != rehop.CauseUndecodable || h.FinalAttempts != 1 || h.Failure.ErrorType != "*json.UnmarshalTypeError" {
			w.Errorf("the letter says %+v, %v; want the cause undecodable after one attempt", h.Failure, err)
		}
		if s := w.journal.of(id(1)); len(s) != 1 || s[0] != (consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CauseUndecodable}) {
			w.Errorf("settled as %+v", s)
		}
		w.truthful()
	})
}

func TestAnyCodecDecodes(t *testing.T) {
	handler := consumer.Decode(func(d *consumer.Delivery) (o order, err error) {
		if d.ContentType != "application/xml" {
			return o, fmt.Errorf("content type %q", d.ContentType)
		}
		return o, xml.Unmarshal(d.Body, &o)
	}, func(_ context.Context, _ *consumer.Delivery, o order) error {
		if o.Number != 7 {
			return fmt.Errorf("number %d", o.Number)
		}
		return nil
	})
	if err := handler(t.Context(), &consumer.Delivery{ContentType: "application/xml", Body: []byte("<order><number>7</number></order>")}); err != nil {
		t.Error(err)
	}
	err := handler(t.Context(), &consumer.Delivery{ContentType: "text/plain"})
	if want := (consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: rehop.CauseUndecodable}); consumer.OutcomeOf(err) != want {
		t.Errorf("OutcomeOf = %v, want %v", consumer.OutcomeOf(err), want)
	}
	if err == nil || err.Error() != `decoding a consumer_test.order: content type "text/plain"` {
		t.Errorf("error = %v", err)
	}
}

func TestMessagesGoToTheHandlerOfTheirType(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var got []string
		note := func(name string) consumer.Handler {
			return func(_ context.Context, d *consumer.Delivery) error {
				got = append(got, name+" "+d.ID)
				return nil
			}
		}
		_, stop := w.start(consumer.Mux{"order.paid": note("paid"), "": note("untyped"), "order.lost": nil}.Handle, consumer.Config{})
		w.publish(1, typed("order.paid", ""))
		w.publish(1, typed("", ""))
		w.publish(1, typed("order.refunded", ""))
		synctest.Wait()
		w.stopped(stop)
		if !slices.Equal(got, []string{"paid m0", "untyped m1"}) {
			w.Errorf("handled %q", got)
		}
		w.has("orders.dlq", id(2))
		h, err := xdeath.Parse(w.letter().Headers)
		if err != nil || h.Failure.Cause != rehop.CauseUnhandled || h.FinalAttempts != 1 || h.Failure.Error != `no handler for messages of type "order.refunded"` {
			w.Errorf("the letter says %+v, %v; want the cause unhandled after one attempt", h.Failure, err)
		}
		w.truthful()
	})
}

func TestATypeWithANilHandlerIsUnhandled(t *testing.T) {
	err := consumer.Mux{"order.lost": nil}.Handle(t.Context(), &consumer.Delivery{Type: "order.lost"})
	if o := consumer.OutcomeOf(err); o.Cause != rehop.CauseUnhandled {
		t.Errorf("OutcomeOf = %v, want a dead letter (unhandled)", o)
	}
}

func TestTheFirstWrapperIsTheOutermost(t *testing.T) {
	var got []string
	wrapper := func(name string) func(consumer.Handler) consumer.Handler {
		return func(next consumer.Handler) consumer.Handler {
			return func(ctx context.Context, d *consumer.Delivery) error {
				got = append(got, name)
				defer func() { got = append(got, "end of "+name) }()
				return next(ctx, d)
			}
		}
	}
	handler := consumer.Wrap(func(context.Context, *consumer.Delivery) error { return errBroken }, wrapper("one"), wrapper("two"))
	if err := handler(t.Context(), &consumer.Delivery{}); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if !slices.Equal(got, []string{"one", "two", "end of two", "end of one"}) {
		t.Errorf("called in the order %q", got)
	}
}

func TestClassify(t *testing.T) {
	noCustomer := errors.New("no such customer")
	dead := consumer.Outcome{Action: consumer.ActionDeadLetter}
	hold := consumer.Outcome{Action: consumer.ActionHold}
	old := consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: rehop.CauseExpired}
	later := consumer.Outcome{Action: consumer.ActionRetryAfter, After: time.Hour}
	rules := []consumer.Rule{
		{Is: noCustomer, Then: dead},
		{Match: func(err error) bool { return err.Error() == "broken pipe" }, Name: "broken pipes", Then: hold},
		{Is: context.DeadlineExceeded, OlderThan: time.Hour, Then: consumer.Outcome{Action: consumer.ActionDiscard, Reason: "too late"}},
		{Is: context.DeadlineExceeded, Then: later},
		{OlderThan: 24 * time.Hour, Then: old},
		{Is: errBusy, Then: consumer.Outcome{Action: consumer.ActionHoldFor, After: time.Minute}},
		{Snoozed: 3, Then: dead},
	}
	published := func(ago time.Duration) *consumer.Delivery {
		return &consumer.Delivery{Timestamp: time.Now().Add(-ago)}
	}
	for _, tt := range []struct {
		rule string
		d    *consumer.Delivery
		err  error
		want consumer.Outcome
	}{
		{"nil stays nil", published(48 * time.Hour), nil, consumer.Outcome{Action: consumer.ActionDone}},
		{"no rule matches", published(0), errBroken, consumer.Outcome{Action: consumer.ActionRetry}},
		{"by errors.Is", published(0), fmt.Errorf("w: %w", noCustomer), dead},
		{"by a function", published(0), errors.New("broken pipe"), hold},
		{"by error and age", published(2 * time.Hour), context.DeadlineExceeded, consumer.Outcome{Action: consumer.ActionDiscard, Reason: "too late"}},
		{"the first that matches", published(0), context.DeadlineExceeded, later},
		{"by age alone", published(25 * time.Hour), errBroken, old},
		{"by the first failure without a timestamp", &consumer.Delivery{History: xdeath.History{FirstFailed: time.Now().Add(-25 * time.Hour)}}, errBroken, old},
		{"by the first death without either", &consumer.Delivery{History: xdeath.History{Deaths: []xdeath.Death{{Time: time.Now()}, {Time: time.Now().Add(-25 * time.Hour)}}}}, errBroken, old},
		{"of unknown age", &consumer.Delivery{}, errBroken, consumer.Outcome{Action: consumer.ActionRetry}},
		{"a meaning that is given is kept", published(0), consumer.RetryAfter(time.Minute, noCustomer), consumer.Outcome{Action: consumer.ActionRetryAfter, After: time.Minute}},
		{"a time that is given is kept", published(0), consumer.HoldFor(time.Minute, noCustomer), consumer.Outcome{Action: consumer.ActionHoldFor, After: time.Minute}},
		{"age ends what is held for a time", published(25 * time.Hour), consumer.HoldFor(time.Minute, errBroken), old},
		{"a rule names a time", published(0), errBusy, consumer.Outcome{Action: consumer.ActionHoldFor, After: time.Minute}},
		{"age ends what would come back", published(25 * time.Hour), consumer.Hold(errBroken), old},
		{"a count ends what was put off too often", &consumer.Delivery{History: xdeath.History{Snoozes: 3}}, consumer.Snooze(time.Hour, "not yet"), dead},
		{"and not what was put off less often", &consumer.Delivery{History: xdeath.History{Snoozes: 2}}, consumer.Snooze(time.Hour, "not yet"), consumer.Outcome{Action: consumer.ActionSnooze, After: time.Hour, Reason: "not yet"}},
		{"age does not end what ends", published(25 * time.Hour), consumer.Discard("done with"), consumer.Outcome{Action: consumer.ActionDiscard, Reason: "done with"}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			handler := consumer.Wrap(func(context.Context, *consumer.Delivery) error { return tt.err }, classifier(t, rules...))
			err := handler(t.Context(), tt.d)
			if got := consumer.OutcomeOf(err); got != tt.want {
				t.Errorf("OutcomeOf = %v, want %v", got, tt.want)
			}
			if tt.err != nil && (!errors.Is(err, tt.err) || !strings.HasPrefix(err.Error(), tt.err.Error())) {
				t.Errorf("error = %v, want that of the handler kept", err)
			}
		})
	}
}

func TestAClassifiedMessageGoesWhereTheRuleSays(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		handler := consumer.Wrap(func(context.Context, *consumer.Delivery) error { return errBroken },
			classifier(w.T, consumer.Rule{OlderThan: 30 * time.Second, Then: consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: rehop.CauseExpired}}))
		w.publish(1, func(m *rehoptest.Message) { m.Timestamp = time.Now() })
		_, stop := w.start(handler, consumer.Config{})
		w.has(route.WaitQueue(w.orders.Name, 1), id(0)) // young enough
		time.Sleep(2 * time.Minute)
		w.stopped(stop)
		w.has("orders.dlq", id(0))
		h, err := xdeath.Parse(w.letter().Headers)
		if err != nil || h.Failure.Cause != rehop.CauseExpired || h.FinalAttempts != 2 {
			w.Errorf("the letter says %+v after %d attempts, %v; want expired after 2", h.Failure, h.FinalAttempts, err)
		}
		w.truthful()
	})
}

func TestRulesPrint(t *testing.T) {
	for want, r := range map[string]consumer.Rule{
		`"broken": dead-letter`:                                {Is: errBroken, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}},
		`"broken": hold-for 1m0s`:                              {Is: errBroken, Then: consumer.Outcome{Action: consumer.ActionHoldFor, After: time.Minute}},
		`any error, snoozed 3 times: dead-letter`:              {Snoozed: 3, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}},
		`timeouts, older than 1h0m0s: retry-after 5m0s`:        {Match: func(error) bool { return true }, Name: "timeouts", OlderThan: time.Hour, Then: consumer.Outcome{Action: consumer.ActionRetryAfter, After: 5 * time.Minute}},
		`a Match without a Name: discard (not ours)`:           {Match: func(error) bool { return true }, Then: consumer.Outcome{Action: consumer.ActionDiscard, Reason: "not ours"}},
		`any error, older than 24h0m0s: dead-letter (expired)`: {OlderThan: 24 * time.Hour, Then: consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: rehop.CauseExpired}},
	} {
		if got := fmt.Sprint(r); got != want {
			t.Errorf("printed as %s, want %s", got, want)
		}
	}
}

// classifier returns the wrapper for rules.
func classifier(t *testing.T, rules ...consumer.Rule) func(consumer.Handler) consumer.Handler {
	t.Helper()
	classify, err := consumer.Classify(rules...)
	if err != nil {
		t.Fatal(err)
	}
	return classify
}

func TestClassifyRefusesRules(t *testing.T) {
	for want, r := range map[string]consumer.Rule{
		`rule 0: Then.Action is "", want retry, retry-after, dead-letter, hold, hold-for, discard or snooze`: {},
		"rule 0: Then.Action is done, want another: discard acks too, and is logged":                         {Then: consumer.Outcome{Action: consumer.ActionDone}},
		"rule 0: OlderThan is -1ns, want 0 or more":                                                          {OlderThan: -1, Then: consumer.Outcome{Action: consumer.ActionRetry}},
		"rule 0: Snoozed is -1, want 0 or more":                                                              {Snoozed: -1, Then: consumer.Outcome{Action: consumer.ActionRetry}},
		"rule 0: Then.After is -1ns, want 0 or more":                                                         {Then: consumer.Outcome{Action: consumer.ActionRetryAfter, After: -1}},
		"rule 0: Then.After is 1s, want 0: it is for retry-after, hold-for and snooze":                       {Then: consumer.Outcome{Action: consumer.ActionHold, After: time.Second}},
		`rule 0: Then.Cause is "expired", want none: it is for dead-letter`:                                  {Then: consumer.Outcome{Action: consumer.ActionRetry, Cause: rehop.CauseExpired}},
	} {
		_, err := consumer.Classify(r)
		_, errBatch := consumer.ClassifyBatch(r)
		if err == nil || err.Error() != "consumer: Classify: "+want || errBatch == nil || errBatch.Error() != "consumer: ClassifyBatch: "+want {
			t.Errorf("Classify: %v\nClassifyBatch: %v\nwant %s", err, errBatch, want)
		}
	}
	_, err := consumer.Classify(
		consumer.Rule{OlderThan: -1, Snoozed: -2},
		consumer.Rule{Then: consumer.Outcome{Action: consumer.ActionHold}},
		consumer.Rule{Then: consumer.Outcome{Action: consumer.ActionHold, After: time.Second}})
	if err == nil || rehop.ClassOf(err) != rehop.ClassBug || strings.Count(err.Error(), "rule 0: ") != 3 || strings.Count(err.Error(), "rule 2: ") != 1 || strings.Contains(err.Error(), "rule 1") {
		t.Errorf("Classify = %v, want every fault of rules 0 and 2", err)
	}
}

// Wrappers and typed handlers work with every queue of Lanes.
func TestWrappersKnowNothingOfLanes(t *testing.T) {
	onNewest(t, func(w *fixture) {
		lanes := topology.Lanes{Name: "sms", Type: topology.Quorum, Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}}
		w.declare(lanes)
		_, stop := w.startOn(lanes, consumer.JSON(func(context.Context, *consumer.Delivery, order) error { return nil }), consumer.Config{})
		w.orders.Name = lanes.WorkQueues()[0].Name
		w.publish(1, typed("", "no JSON"))
		synctest.Wait()
		w.stopped(stop)
		w.has(lanes.WorkQueues()[0].DeadLetterQueue().Name, id(0))
	})
}
