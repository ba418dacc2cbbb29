package settle

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/route"
)

func TestEverySlotSettlingForLongIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnconfirmed(2)
		const healthy, degraded, unhealthy = "healthy", "degraded", "unhealthy"
		is := func(when, want string) *rehop.HealthError {
			t.Helper()
			err := u.Check("orders", time.Now())
			got := healthy
			if err != nil {
				got = unhealthy
				if err.Degraded {
					got = degraded
				}
			}
			if got != want {
				t.Errorf("%s: %s (%v), want %s", when, got, err, want)
			}
			return err
		}
		dlq := route.Target{RoutingKey: "orders.dlq"}
		u.began("one")
		is("a copy is on its way", healthy)
		u.held(dlq)
		u.failed(dlq, errors.New("nacked"))
		time.Sleep(time.Hour)
		if err := is("one of two slots", degraded); !strings.Contains(err.Error(), `queue "orders.dlq"`) || time.Since(err.Since) != time.Hour {
			t.Errorf("it does not say where and since when: %v", err)
		}
		u.began("another")
		time.Sleep(settlingLimit - time.Second)
		is("all slots, not long", degraded)
		time.Sleep(time.Second)
		if err := is("all slots for 15 s", unhealthy); !strings.Contains(err.Error(), "2 messages in hand") || !strings.Contains(err.Error(), "nacked") || time.Since(err.Since) != settlingLimit {
			t.Errorf("it does not say why and since when: %v", err)
		}
		u.ended("one")
		is("a slot is free again", degraded)
		u.began("one")
		is("and taken at once", degraded)
		u.ended("one")
		u.ended("another")
		u.over(dlq)
		if err := is("the message went back to its queue", degraded); !strings.Contains(err.Error(), "went back to the queue") {
			t.Errorf("it does not say so: %v", err)
		}
		u.works(dlq)
		is("a copy is confirmed", healthy)
		u.held(dlq)
		u.failed(dlq, errors.New("nacked"))
		u.over(dlq)
		time.Sleep(rememberedFor - time.Second)
		is("nothing is heard of the place, not for long", degraded)
		time.Sleep(time.Second)
		is("nothing is heard of the place for long", healthy)
		u.began("one")
		u.began("one")
		time.Sleep(time.Hour)
		is("two messages of one slot", healthy)
		u.began("another")
		time.Sleep(settlingLimit)
		if err := is("both slots", unhealthy); !strings.Contains(err.Error(), "3 messages in hand") {
			t.Errorf("it does not say how many: %v", err)
		}
		u.ended("one")
		is("one of two messages of a slot is settled", unhealthy)
		u.ended("one")
		is("and the other", healthy)
	})
}
