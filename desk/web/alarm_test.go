package web

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
)

// A broker with an alarm is there, and one that is away has none.
func TestAnAlarmIsNotABrokerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		blocked := &connection.BlockedError{Reason: "low on memory", Since: time.Now().Add(-time.Minute)}
		for _, tt := range []struct {
			rule   string
			block  *connection.BlockedError
			err    error
			silent error // of the management API
			has    []string
			not    []string
		}{
			{"no alarm", nil, nil, nil, []string{`<span class="pill good">`}, []string{"takes no messages", "away"}},
			{"an alarm", blocked, nil, nil, []string{"RabbitMQ 4.3.6 takes no messages", "low on memory", "1 min ago", "<b>3</b>"}, []string{"broker away", "The broker is away", "pill good", "stale"}},
			{"away in an alarm", blocked, rehop.WithClass(errors.New("connection refused"), rehop.ClassTransient), nil, []string{"broker away", "The broker is away"}, []string{"takes no messages", "low on memory", "pill good"}},
			{"a silent management API", nil, nil, errors.New("404 page not found"), []string{"The management API does not answer", "can be looked at and sent."}, []string{"takes no messages"}},
			{"an alarm and a silent management API", blocked, nil, errors.New("404 page not found"), []string{"takes no messages", "low on memory", "The management API does not answer", "can be looked at."}, []string{"pill good", "and sent."}},
		} {
			r.broker.mu.Lock()
			r.broker.block, r.broker.err, r.broker.silent = tt.block, tt.err, tt.silent
			r.broker.mu.Unlock()
			r.h.sampleOnce(t.Context(), map[string]time.Time{})
			page := r.get("/").Body.String()
			for _, text := range tt.has {
				if !strings.Contains(page, text) {
					t.Errorf("%s: the page does not have %q", tt.rule, text)
				}
			}
			for _, text := range tt.not {
				if strings.Contains(page, text) {
					t.Errorf("%s: the page has %q", tt.rule, text)
				}
			}
		}
		for _, tt := range []struct {
			err  error
			head string
		}{
			{fmt.Errorf("desk: %w", blocked), "The broker takes no messages"},
			{rehop.WithClass(errors.New("connection refused"), rehop.ClassTransient), "The broker is away"},
		} {
			if p := problemOf(tt.err); p.Head != tt.head || p.Status != 503 {
				t.Errorf("%v: %+v, want %q", tt.err, p, tt.head)
			}
		}
	})
}

// A connection says that it is blocked, and the desk that it is there.
func TestABlockedConnectionIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker, err := rehoptest.NewBroker(rehoptest.Config{})
		must(t, err)
		defer broker.Close()
		conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
		must(t, err)
		defer conn.Close()
		journal, err := desk.OpenJournal(t.TempDir())
		must(t, err)
		b := &realBroker{conn: conn, journal: journal}
		is := func(rule string, alarm, healthy bool) {
			t.Helper()
			synctest.Wait()
			if got := b.alarm(); (got != nil) != alarm {
				t.Errorf("%s: the alarm is %v", rule, got)
			}
			if err := b.health(); (err == nil) != healthy {
				t.Errorf("%s: %v", rule, err)
			}
		}
		is("connected", false, true)
		p, err := producer.New(conn, producer.Config{})
		must(t, err)
		broker.Block("low on memory")
		published := make(chan struct{})
		go func() { // the broker tells a socket that publishes
			defer close(published)
			_, _ = p.Publish(t.Context(), producer.Message{RoutingKey: "nowhere", ID: "m"})
		}()
		is("blocked", true, true)
		broker.Unblock()
		<-published
		is("over", false, true)
		must(t, p.Close())
		broker.Close()
		is("gone", false, false)
	})
}
