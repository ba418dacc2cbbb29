package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer/internal/carry"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/internal/route"
)

// idleRun is a run in which nothing is amiss.
func idleRun() *run {
	return &run{part: &part{}, faultLog: repeats.New(slog.New(slog.DiscardHandler)), copies: work.NewCopies(work.CopiesConfig{}), carriers: carry.New(carry.Config{}), lane: hand.New(1, false).Lane(hand.Limits{Slots: 1})}
}

// status is what Health says.
func status(h *health) error {
	if err := h.check(time.Now()); err != nil {
		return err
	}
	return nil
}

func TestHealthNamesWhatPoliciesBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idleRun()
		h := &r.health
		h.starts(r)
		h.consuming()
		began := time.Now()
		fault := route.PolicyFault{Queue: "orders.wait.1", Policy: `policy "ttl"`, Key: "message-ttl", Value: "5s", Effect: "messages leave the wait after that time"}
		r.notePolicies([]route.PolicyFault{fault})
		time.Sleep(time.Second)
		r.notePolicies([]route.PolicyFault{fault, {Queue: "orders.dlq"}})
		if err := h.check(time.Now()); err == nil || !err.Degraded || err.Since != began || !strings.Contains(err.Error(), fault.String()) || !strings.Contains(err.Error(), `"orders.dlq"`) {
			t.Errorf("%v, want degraded since %v, with both faults", err, began)
		}
		r.notePolicies(nil)
		if err := status(h); err != nil {
			t.Errorf("%v, want healthy", err)
		}
	})
}

func TestHealthAgesWithoutASign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health{queue: "orders"}
		h.starts(idleRun())
		if err := status(&h); !errors.Is(err, errStarting) {
			t.Errorf("before the first sign: %v, want %v", err, errStarting)
		}
		h.consuming()
		time.Sleep(durations.SilentAfter)
		if err := status(&h); err != nil {
			t.Errorf("%v after a sign: %v, want healthy", durations.SilentAfter, err)
		}
		time.Sleep(2 * time.Second)
		if err := status(&h); err == nil || !strings.Contains(err.Error(), `"orders" has given no sign for 17s`) {
			t.Errorf("17s after a sign: %v, want the queue and how long", err)
		}
		h.consuming()
		if err := status(&h); err != nil {
			t.Errorf("after another sign: %v, want healthy", err)
		}
		since := h.consumesNothing(passing, errors.New("gone"), time.Now())
		time.Sleep(time.Second)
		if again := h.consumesNothing(passing, errors.New("still gone"), time.Now()); again != since {
			t.Errorf("interrupted since %v, want %v", again, since)
		}
		if err := h.check(time.Now()); err == nil || !err.Degraded || err.Since != since || !strings.Contains(err.Error(), "still gone") {
			t.Errorf("while interrupted: %v, want degraded since %v", err, since)
		}
		time.Sleep(durations.Lost)
		if err := h.check(time.Now()); err == nil || err.Degraded || err.Since != since {
			t.Errorf("interrupted for long: %v, want unhealthy since %v", err, since)
		}
		h.consumesNothing(lasts, errStopping, time.Now())
		if err := status(&h); !errors.Is(err, errStopping) {
			t.Errorf("while stopping: %v, want %v", err, errStopping)
		}
	})
}

func TestARefusalIsToldUntilTheNextSign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idleRun()
		h := &r.health
		h.starts(r)
		h.consuming()
		began := time.Now()
		time.Sleep(durations.SilentAfter + time.Second)
		refusal := errors.New("ACCESS_REFUSED")
		h.Refused(refusal)
		h.Alive(began) // the sign of before
		if err := h.check(time.Now()); err == nil || err.Degraded || !err.Since.Equal(began) || !errors.Is(err, refusal) {
			t.Errorf("%v, want the sign of before and the refusal", err)
		}
		h.Alive(time.Now())
		if err := status(h); err != nil {
			t.Errorf("after a sign: %v", err)
		}
		time.Sleep(durations.SilentAfter + time.Second)
		if err := status(h); err == nil || errors.Is(err, refusal) {
			t.Errorf("%v, want no sign, and not the refusal from before the sign", err)
		}
	})
}

func TestHealthNamesTheShardThatHasNotBegun(t *testing.T) {
	c := &Consumer{parts: []*part{{}, {}}}
	for i, p := range c.parts {
		p.health.queue = fmt.Sprintf("orders.%02d", i)
		p.health.starts(idleRun())
	}
	if err := c.Health(); err == nil || strings.Contains(err.Error(), "orders") || !errors.Is(err, errStarting) {
		t.Errorf("none has begun: %v, want one error for both", err)
	}
	c.parts[0].health.consuming()
	if err := c.Health(); err == nil || !strings.Contains(err.Error(), `queue "orders.01"`) || !errors.Is(err, errStarting) {
		t.Errorf("one has not begun: %v, want its queue", err)
	}
}
