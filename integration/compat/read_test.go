package compat

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// handled is how a handler meets a message that the release has left in a queue.
type handled struct {
	attempt int
	wait    time.Duration // it does not come earlier, but for the time that passed before it was left
	cause   rehop.Cause
	final   int // attempts of a dead letter
	snoozes int
	redrive int
}

var wants = map[string]handled{
	"published":   {attempt: 1},
	"delayed":     {attempt: 1, wait: 30 * time.Minute},
	"retry":       {attempt: 2, wait: time.Minute},
	"third":       {attempt: 3, wait: 5 * time.Minute},
	"archived":    {attempt: 2, wait: time.Minute},
	"retry-after": {attempt: 2, wait: 10 * time.Minute},
	"snoozed":     {attempt: 1, wait: 30 * time.Second, snoozes: 1},
	"sent-back":   {attempt: 1, redrive: 1},
	"exhausted":   {attempt: 1, cause: rehop.CauseExhausted, final: 3},
	"permanent":   {attempt: 1, cause: rehop.CausePermanent, final: 1},
	"panicked":    {attempt: 1, cause: rehop.CauseExhausted, final: 3},
	"expired":     {attempt: 1, cause: rehop.CauseExpired},
	"unroutable":  {attempt: 1, cause: rehop.CauseUnroutable},
}

// TestMessagesOfTheRelease: what a program of the release has left in a queue goes to a
// consumer of today, in the topology that the program has declared.
func TestMessagesOfTheRelease(t *testing.T) {
	files(t, "messages", func(t *testing.T, name string, text []byte) {
		at := strings.LastIndex(name, "-")
		kind, engine := name[:at], name[at+1:]
		want, ok := wants[kind]
		if !ok {
			t.Fatalf("no kind of the name %s", kind)
		}
		m := read(t, text)
		if m.Headers["x-death"] != nil && want.cause == "" {
			want.checkCounts(t, m)
			return
		}
		rehoptest.Test(t, rehoptest.Config{Version: engines[engine].version}, func(t *testing.T, b *rehoptest.Broker) {
			s := start(t, b, engine)
			p, err := m.publishing()
			must(t, err)
			began := time.Now()
			ch := channel(t, b)
			must(t, ch.PublishWithContext(t.Context(), m.Exchange, m.RoutingKey, true, false, p))
			synctest.Wait()
			if left := s.only(); left.Queue != m.Queue {
				t.Fatalf("the message is in %s, want %s", left.Queue, m.Queue)
			}
			var source topology.Source = s.orders
			if m.Queue != "orders" && want.cause != "" {
				source = topology.DeadLetterQueue{Name: m.Queue}
			}
			var got []consumer.Delivery
			var after time.Duration
			s.handle(source, func(_ context.Context, d *consumer.Delivery) error {
				got, after = append(got, *d), time.Since(began)
				return nil
			}, time.Hour)
			if len(got) != 1 {
				t.Fatalf("%d attempts in an hour, want 1:\n%s", len(got), b.Story(m.ID))
			}
			want.check(t, kind, got[0], after)
		})
	})
}

// checkCounts is for a message whose attempts the broker has counted. A client cannot publish
// a message with these counts, so the rules read them from the headers.
func (want handled) checkCounts(t *testing.T, m message) {
	t.Helper()
	p, err := m.publishing()
	must(t, err)
	h, err := xdeath.Parse(p.Headers)
	must(t, err)
	if got := h.Attempt("orders", true); got != want.attempt {
		t.Errorf("attempt %d, want %d", got, want.attempt)
	}
	if exchange, key, ok := h.Origin("orders"); !ok || exchange != "shop" || key != "order.paid" {
		t.Errorf("published to %s with the key %s (%v), want shop and order.paid", exchange, key, ok)
	}
}

func (want handled) check(t *testing.T, kind string, d consumer.Delivery, after time.Duration) {
	t.Helper()
	h := d.History
	if d.Attempt != want.attempt || h.Failure.Cause != want.cause || h.FinalAttempts != want.final || h.Snoozes != want.snoozes || h.Redrives != want.redrive {
		t.Errorf("attempt %d, cause %q after %d attempts, %d snoozes, sent back %d times; want %+v",
			d.Attempt, h.Failure.Cause, h.FinalAttempts, h.Snoozes, h.Redrives, want)
	}
	const passed = 2 * time.Second // at most, until the message was left
	if after < want.wait-passed || after > want.wait+2*time.Minute {
		t.Errorf("handled after %v, want %v", after, want.wait)
	}
	exchange, key := d.Exchange, d.RoutingKey
	if want.cause != "" {
		exchange, key = h.Exchange, h.RoutingKey
	}
	wantKey := "order.paid"
	if kind == "unroutable" {
		wantKey = "nobody"
	}
	if exchange != "shop" || key != wantKey {
		t.Errorf("published to %s with the key %s, want shop and %s", exchange, key, wantKey)
	}
	if kind == "archived" {
		if a := h.Archived; d.ID != "order-8" || a.Expiration != "3600000" || len(a.CC) != 1 || a.CC[0] != "invoice.paid" {
			t.Errorf("id %s, archived %+v", d.ID, a)
		}
		return
	}
	o := order()
	if d.ID != o.ID || d.OrderKey != o.OrderKey || d.Priority != o.Priority || string(d.Body) != string(o.Body) || d.Type != o.Type ||
		d.ContentType != o.ContentType || d.ContentEncoding != o.ContentEncoding || d.CorrelationID != o.CorrelationID ||
		d.ReplyTo != o.ReplyTo || d.AppID != o.AppID || !d.Timestamp.Equal(o.Timestamp) ||
		d.Headers["tenant"] != o.Headers["tenant"] || d.Headers["items"] != o.Headers["items"] {
		t.Errorf("the message has changed: %+v", d)
	}
}

// TestEveryFileIsWritten: a file of the current release that nothing writes any more would
// be compared with nothing.
func TestEveryFileIsWritten(t *testing.T) {
	written := map[string]bool{}
	for wiring := range wirings {
		for version := range versions {
			written["topology/"+wiring+"-"+version+".txt"] = !refused[wiring+"-"+version]
		}
	}
	for kind := range kinds {
		for engine := range engines {
			written["messages/"+kind+"-"+engine+".json"] = true
		}
		if _, ok := wants[kind]; !ok {
			t.Errorf("nothing says how a message of the kind %s is handled", kind)
		}
	}
	root := filepath.Join("testdata", Current)
	must(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(root, path)
			if !written[filepath.ToSlash(name)] {
				t.Errorf("%s is written by nothing", path)
			}
		}
		return err
	}))
}
