package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

func TestNewNamesEveryFault(t *testing.T) {
	_, err := New(nil, nil, nil, Config{Concurrency: 10_001, Prefetch: -1, HandlerTimeout: -1, DrainTimeout: -1, CopyTimeout: -1})
	for _, want := range []string{"conn is nil", "handler is nil", "source is nil", "Config.Concurrency is 10001, want 1 to 10000",
		"Config.Prefetch is -1", "HandlerTimeout", "DrainTimeout", "CopyTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want also %q", err, want)
		}
	}
	if _, err := New(nil, topology.Route{}, nil, Config{}); err == nil || !strings.Contains(err.Error(), "Route.Queue is empty") {
		t.Errorf("New with an empty Route: %v", err)
	}
	if connection.ClassOf(err) != connection.Bug {
		t.Errorf("it is %v, want a bug", connection.ClassOf(err))
	}
}

func TestClassOfErrors(t *testing.T) {
	refused := func(code int) error { return &amqp.Error{Code: code, Server: true, Recover: true} }
	for _, tt := range []struct {
		err  error
		want connection.Class
	}{
		{consumeError("orders", refused(amqp.NotFound)), connection.Configuration},
		{consumeError("orders", refused(amqp.AccessRefused)), connection.Configuration},
		{consumeError("orders", connection.ErrSessionLost), connection.Transient},
		{errUnanswered, connection.Transient},
		{ErrStopped, connection.Transient},
		{ErrHandlerTimeout, connection.Transient},
		{ErrConsumerTimeout, connection.Transient},
		{errSessionOver, connection.Transient},
		{&PanicError{}, connection.Bug},
		{errGoexit, connection.Bug},
		{&unreadableError{}, connection.Bug},
		{nil, connection.Unknown},
	} {
		if got := connection.ClassOf(tt.err); got != tt.want {
			t.Errorf("ClassOf(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
	if consumeError("orders", nil) != nil {
		t.Error("no error becomes one")
	}
}

type typedNil struct{}

func (*typedNil) Error() string   { return "" }
func (*typedNil) Unwrap() []error { return nil }

func TestErrorTypeIsTheInnermost(t *testing.T) {
	inner := &amqp.Error{}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{inner, "*amqp091.Error"},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", inner)), "*amqp091.Error"},
		{DeadLetter(inner), "*amqp091.Error"},
		{RetryAfter(time.Second, nil), "*errors.errorString"},
		{errors.Join(nil, inner, errors.New("")), "*amqp091.Error"},
		{&typedNil{}, "*consumer.typedNil"},
	} {
		if got := errorType(tt.err); got != tt.want {
			t.Errorf("errorType(%#v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

type brokenHandler struct{ slog.Handler }

func (brokenHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (brokenHandler) Handle(context.Context, slog.Record) error { panic("ouch") }
func (h brokenHandler) WithAttrs([]slog.Attr) slog.Handler      { return h }
func (h brokenHandler) WithGroup(string) slog.Handler           { return h }

func TestALoggerThatPanicsHarmsNobody(t *testing.T) {
	log := Config{Logger: slog.New(brokenHandler{})}.withDefaults().Logger
	log.Error("nobody hears this")
	log.With("a", 1).WithGroup("g").Error("nor this")
}

func TestConsumerTimeoutIsLearnt(t *testing.T) {
	said := func(text string) *amqp.Error { return &amqp.Error{Code: amqp.PreconditionFailed, Reason: text} }
	const text = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 60000 ms. This timeout value can be configured, see consumers doc guide to learn more"
	var t3 timeouts
	for _, other := range []*amqp.Error{
		said("PRECONDITION_FAILED - unknown delivery tag 1"),
		{Code: amqp.NotFound, Reason: text},
		said(strings.Replace(text, "60000", "0", 1)),
		said(strings.Replace(text, "60000", "99999999999999999999", 1)),
	} {
		if t3.closed(other) || t3.limit() != 0 {
			t.Errorf("%v is taken for the timeout", other)
		}
	}
	if !t3.closed(said(text)) || t3.limit() != time.Minute || t3.handlerLimit() != 48*time.Second || t3.holdLimit() != 48*time.Second {
		t.Errorf("%v, handlers %v, held %v; want 1m, 48s, 48s", t3.limit(), t3.handlerLimit(), t3.holdLimit())
	}
	var orphaned timeouts
	if !orphaned.closed(said(strings.Replace(text, "60000", "-1", 1))) || orphaned.limit() != 0 {
		t.Errorf("without a figure: %v", orphaned.limit())
	}
	for _, tt := range []struct {
		rule string
		ages []time.Duration
		want time.Duration
	}{
		{"one cancel can have any reason", []time.Duration{time.Minute}, 0},
		{"two alike", []time.Duration{time.Minute, time.Minute + time.Second}, time.Minute},
		{"two that are not", []time.Duration{time.Minute, 2 * time.Minute}, 0},
		{"the third is like the second", []time.Duration{time.Minute, 2 * time.Minute, 2 * time.Minute}, 2 * time.Minute},
		{"too young", []time.Duration{time.Millisecond, time.Millisecond}, 0},
	} {
		var to timeouts
		for _, age := range tt.ages {
			to.cancelled(age)
		}
		if to.limit() != tt.want || to.handlerLimit() != 0 {
			t.Errorf("%s: %v, want %v, and none for handlers", tt.rule, to.limit(), tt.want)
		}
		if tt.want > 0 && (!to.cancelled(tt.want) || to.cancelled(tt.want/2)) {
			t.Errorf("%s: once it is known, only a message that old was taken away", tt.rule)
		}
	}
	var to timeouts
	if to.holdLimit() != holdLimit {
		t.Errorf("held %v where the timeout is not known", to.holdLimit())
	}
}

func TestWhichMessageWasTakenAway(t *testing.T) {
	counted := func(acquired, failed int64, body string) amqp.Delivery {
		return amqp.Delivery{MessageId: "a", Body: []byte(body),
			Headers: amqp.Table{xdeath.HeaderAcquiredCount: acquired, xdeath.HeaderDeliveryCount: failed}}
	}
	for _, tt := range []struct {
		rule    string
		orphan  bool
		idle    bool
		known   time.Duration
		age     time.Duration
		comes   amqp.Delivery
		took    bool
		guessed bool
	}{
		{"acquired once more, not failed", false, false, 0, time.Minute, counted(3, 1, "x"), true, true},
		{"the end of the session", false, false, 0, time.Minute, counted(3, 2, "x"), false, false},
		{"the end of the session, and a requeue by another", false, false, 0, time.Minute, counted(4, 2, "x"), false, false},
		{"an orphan", true, false, 0, time.Minute, counted(4, 2, "x"), true, true},
		{"queue declared again", false, false, 0, time.Minute, counted(0, 0, "x"), false, false},
		{"another message of this id", false, false, 0, time.Minute, counted(3, 1, "y"), false, false},
		{"it was held", false, true, 0, time.Minute, counted(3, 1, "x"), false, true},
		{"older than the figure", false, false, time.Minute, time.Minute, counted(3, 2, "x"), true, true},
		{"younger than the figure", false, false, time.Minute, time.Minute - 1, counted(3, 2, "x"), false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			to := timeouts{known: tt.known}
			m := &message{raw: counted(2, 1, "x"), received: time.Now().Add(-tt.age)}
			m.running.Store(!tt.idle)
			to.took([]*message{m}, tt.orphan)
			if got := to.tookAway(tt.comes); got != tt.took {
				t.Errorf("%s: %t", tt.rule, got)
			}
			if to.tookAway(tt.comes) {
				t.Errorf("%s: twice", tt.rule)
			}
			if (to.guess > 0) != tt.guessed {
				t.Errorf("%s: guess %v", tt.rule, to.guess)
			}
		})
	}
}

func TestWantedPrefetch(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	calm := start.Add(bufferedTime - calmAfter)
	for _, tt := range []struct {
		rule     string
		pace     pace
		prefetch int
		handled  int64 // in the time before
		unproved int
		waited   time.Duration
		want     int
	}{
		{"what quick handlers do in 100 ms", pace{base: 1}, 1, 300, 0, 0, 301},
		{"and no more than so many", pace{base: 1}, 300, 100_000, 0, 0, maxPrefetch},
		{"slow handlers: as many as are handled at a time", pace{base: 16, unsteady: calm}, 16, 10, 0, 0, 16},
		{"less than twice as much is not worth it", pace{base: 16}, 300, 400, 0, 0, 300},
		{"given by the user", pace{base: 16, fixed: true}, 16, 10_000, 0, 0, 16},
		{"a base beyond the limit stays", pace{base: 9000}, 9000, 100_000, 0, 0, 9000},
		{"buffered messages wait too long", pace{base: 16}, 2000, 1, 0, time.Second, 16},
		{"the first ones wait: they are no more than the base", pace{base: 16}, 16, 1, 0, time.Minute, 16},
		{"few messages since one that was delivered before", pace{base: 1, since: 1}, 1, calmMessages, 0, 0, 1},
		{"enough messages since", pace{base: 1}, 1, calmMessages, 0, 0, 1 + calmMessages},
		{"enough messages since, but that one is in hand", pace{base: 1}, 1, 3000, 1, 0, 1},
		{"a second since, and it is in hand all the same", pace{base: 1, unsteady: calm}, 1, 300, 1, 0, 301},
		{"it was too large a while ago", pace{base: 1, cautious: start.Add(time.Minute)}, 1, 3000, 0, 0, 1},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			p := tt.pace
			p.began = start
			if p.unsteady.IsZero() {
				p.unsteady = start
			}
			if got := p.wanted(tt.prefetch, tt.handled, tt.unproved, tt.waited, start.Add(bufferedTime)); got != tt.want {
				t.Errorf("wanted = %d, want %d", got, tt.want)
			}
			if got := p.wanted(tt.prefetch, tt.handled, 0, 0, p.began.Add(time.Millisecond)); got != tt.prefetch {
				t.Errorf("after a millisecond more: %d, want %d", got, tt.prefetch)
			}
		})
	}
	if carefulPrefetch(16, 0) != 1 || carefulPrefetch(16, 3) != 4 || carefulPrefetch(2, 3) != 2 {
		t.Error("carefulPrefetch is not the cleared and one more, at most the base")
	}
}

func TestARedeliveredMessageKeepsThePrefetchSmall(t *testing.T) {
	var handled atomic.Int64
	handled.Store(5000)
	s := &session{handled: &handled, began: func() {}, workers: newWorkers(0, nil), from: &origin{acks: &acker{}}}
	now := time.Now()
	if s.receive(amqp.Delivery{}, now); !s.pace.calm(5000, 0, now) {
		t.Error("a message that comes for the first time counts")
	}
	if s.receive(amqp.Delivery{Redelivered: true}, now); s.pace.calm(5000, 0, now) || s.from.unproved.Load() != 1 {
		t.Errorf("%d messages are noted as delivered before, and the pace is %+v", s.from.unproved.Load(), s.pace)
	}
}

func TestWhereThePrefetchFollowsTheHandlers(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		cfg    Config
		source topology.Source
		want   pace
	}{
		{"a work queue", Config{Concurrency: 4}, topology.WorkQueue{}, pace{base: 4}},
		{"a dead-letter queue", Config{Concurrency: 4}, topology.DeadLetterQueue{}, pace{base: 4}},
		{"a work queue with priorities", Config{Concurrency: 4}, topology.WorkQueue{Priority: topology.PriorityNative}, pace{base: 4, fixed: true}},
		{"a work queue that others declared", Config{Concurrency: 4}, topology.WorkQueue{Existing: true}, pace{base: 4, fixed: true}},
		{"a queue that others declared", Config{Concurrency: 4}, topology.Route{}, pace{base: 4, fixed: true}},
		{"as the user says", Config{Concurrency: 4, Prefetch: 7}, topology.WorkQueue{}, pace{base: 7, fixed: true}},
	} {
		if got := newPace(tt.cfg, tt.source); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.rule, got, tt.want)
		}
	}
}

func TestARefusedProbeIsTold(t *testing.T) {
	h := &health{queue: "orders", troubles: newTroubles(1)}
	h.alive(time.Now().Add(-time.Minute))
	s := &session{health: h, live: newLiveness(nil), stop: t.Context()}
	defer s.live.close()
	s.live.probing = true
	s.live.sign = time.Now().Add(-time.Minute)
	refusal := errors.New("ACCESS_REFUSED")
	s.answered(refusal)
	if err := h.check(time.Now()); err == nil || !errors.Is(err, refusal) || err.Degraded {
		t.Errorf("health: %v, want unhealthy by %v", err, refusal)
	}
	s.live.probing = true
	s.answered(nil)
	if err := h.check(time.Now()); err != nil {
		t.Errorf("health after a good answer: %v", err)
	}
}

func TestActionsHaveNames(t *testing.T) {
	for a := ActionDone; a <= ActionDiscard+1; a++ {
		if a.String() == "" {
			t.Errorf("action %d has no name", a)
		}
	}
}
