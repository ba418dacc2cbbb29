package desk_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/topology"
)

func TestNothingIsLostByLooking(t *testing.T) {
	onEach(t, func(r *room) {
		const n = 1000
		r.fill(r.queue, n)
		live := r.live()
		began := time.Now()
		for i := range *looks {
			list, err := live.Peek(r.Context(), n)
			must(r.T, err)
			if len(list.Letters) != n || list.Total != n {
				r.Fatalf("look %d: %d letters of %d", i, len(list.Letters), list.Total)
			}
			for k, l := range list.Letters {
				if l.Publishing.MessageId != id(k) {
					r.Fatalf("look %d: %s in place %d", i, l.Publishing.MessageId, k)
				}
			}
		}
		r.Logf("%d looks at %d letters: %v for each", *looks, n, (time.Since(began) / time.Duration(*looks)).Round(time.Millisecond))
		r.has(r.queue, n)
		r.inOrder(r.queue, n, all)
	})
}

func TestALookOfALargeQueueIsBounded(t *testing.T) {
	onEach(t, func(r *room) {
		r.fill(r.queue, 300)
		live, err := desk.NewLive(r.conn, r.queue, desk.LiveConfig{Journal: r.journal, Window: 100})
		must(r.T, err)
		for range 30 {
			list, err := live.Peek(r.Context(), 5)
			must(r.T, err)
			if len(list.Letters) != 5 || list.Seen.Seen != 100 || list.Total != 300 || list.Bound == "" {
				r.Fatalf("%d letters, %d of %d seen, %q", len(list.Letters), list.Seen.Seen, list.Total, list.Bound)
			}
		}
		r.has(r.queue, 300)
		r.inOrder(r.queue, 300, all)
	})
}

// Each look takes all that any look before it has handed back, of whatever process.
func TestLooksOfDifferentWindowsKeepTheOrder(t *testing.T) {
	onEach(t, func(r *room) {
		r.fill(r.queue, 200)
		for _, window := range []int{120, 16, 70, 1, 200, 30} {
			live, err := desk.NewLive(r.conn, r.queue, desk.LiveConfig{Journal: r.journal, Window: window})
			must(r.T, err)
			for range 3 {
				list, err := live.Peek(r.Context(), 200)
				must(r.T, err)
				if len(list.Letters) != window {
					r.Errorf("a window of %d: %d letters", window, len(list.Letters))
				}
			}
		}
		r.has(r.queue, 200)
		r.inOrder(r.queue, 200, all)
	})
}

// The letters that looks handed back are more than a look shows, and each look takes them all.
func TestLooksAtMoreLettersThanTheyShowKeepTheOrder(t *testing.T) {
	onEach(t, func(r *room) {
		const n = desk.MaxWindow + 300
		r.fill(r.queue, n)
		for range 2 { // a Live does not know what another took
			live, err := desk.NewLive(r.conn, r.queue, desk.LiveConfig{Journal: r.journal})
			must(r.T, err)
			for range 3 {
				list, err := live.Peek(r.Context(), 1)
				must(r.T, err)
				if want := fmt.Sprintf("the first %d of %d letters: one look takes no more", desk.MaxWindow, n); list.Bound != want {
					r.Errorf("%q, want %q", list.Bound, want)
				}
			}
		}
		r.has(r.queue, n)
		r.inOrder(r.queue, n, all)
	})
}

// Of more letters than a look takes an export writes none. Collected, all of them are in pages, and in an
// export.
func TestAllOfMoreLettersThanALookTakesAreSeenInPages(t *testing.T) {
	onNewest(t, func(r *room) {
		const window, n = 100, 150
		r.fill(r.queue, n)
		live, err := desk.NewLive(r.conn, r.queue, desk.LiveConfig{Journal: r.journal, Window: window})
		must(r.T, err)
		var out bytes.Buffer
		if n, err := live.Export(r.Context(), desk.Filter{}, 0, &out, desk.By{}); !errors.Is(err, desk.ErrNotWhole) || n+out.Len() > 0 || !strings.Contains(err.Error(), "collect them") {
			r.Errorf("of the queue: %d letters, %d bytes: %v", n, out.Len(), err)
		}
		_, store, _ := r.collected(n)
		seen, pages := map[string]bool{}, 0
		for page := (desk.Page{Limit: 40}); ; pages++ {
			list, err := store.List(r.Context(), desk.Filter{}, page)
			must(r.T, err)
			for _, l := range list.Letters {
				seen[l.Publishing.MessageId] = true
			}
			if page.After = list.Next; page.After == 0 {
				break
			}
		}
		written, err := store.Export(r.Context(), desk.Filter{}, 0, &out, desk.By{})
		if lines := bytes.Count(out.Bytes(), []byte("\n")); err != nil || written != n || lines != n || len(seen) != n {
			r.Errorf("%d letters in %d pages, %d written in %d lines: %v; want %d", len(seen), pages, written, lines, err, n)
		}
	})
}

// A look counts the bytes of the letters that it takes. The management API's number is up
// to 10 s old, and a mean.
func TestALookKeepsItsBytesAndTheOrder(t *testing.T) {
	onEach(t, func(r *room) {
		const small, large, bytes = 250, 30, 1 << 20
		r.fillSized(0, small, 4<<10)
		live, err := desk.NewLive(r.conn, r.queue, desk.LiveConfig{Journal: r.journal, WindowBytes: bytes})
		must(r.T, err)
		for round := range 3 {
			if round == 1 {
				r.fillSized(small, large, 200<<10)
			}
			list, err := live.Peek(r.Context(), 1000)
			must(r.T, err)
			if list.Bytes > bytes || list.Seen.Seen < 150 || list.Seen.Seen > small || list.Bound == "" {
				r.Errorf("round %d: %d letters of %d, %d bytes, %q", round, list.Seen.Seen, list.Total, list.Bytes, list.Bound)
			}
			if round == 1 {
				r.eventually(func(q desk.Queue) bool { return q.Ready == small+large }) // and so the API knows of the larger mean
			}
		}
		r.has(r.queue, small+large)
		r.inOrder(r.queue, small+large, all)
	})
}

func TestWithoutTheManagementAPILettersAreTakenByTheirSize(t *testing.T) {
	onEach(t, func(r *room) {
		r.fill(r.queue, 300)
		conn, err := connection.Open(r.Context(), connection.Config{URLs: []string{r.broker.AMQPURL()}})
		must(r.T, err)
		defer conn.Close()
		live := live(r.T, conn, r.queue, r.journal)
		for range 30 {
			list, err := live.Peek(r.Context(), 300)
			must(r.T, err)
			if len(list.Letters) != 300 || list.Letters[20].Publishing.MessageId != id(20) {
				r.Fatalf("%d letters", len(list.Letters))
			}
		}
		r.has(r.queue, 300)
		r.inOrder(r.queue, 300, all)
	})
}

// TestADeliveryLimitIsNotReachedByLooking: a queue with a limit is looked into up to
// half of it, and a person who goes on trying loses no letter.
func TestADeliveryLimitIsNotReachedByLooking(t *testing.T) {
	onEach(t, func(r *room) {
		if r.kind == topology.Classic {
			return // has no limit
		}
		queue := r.work + ".limited"
		r.declare(queue, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(20)})
		r.fill(queue, 50)
		live := live(r.T, r.conn, queue, r.journal)
		seen, refused := 0, 0
		for range 100 {
			_, err := live.Peek(r.Context(), 50)
			var refusal *desk.RefusedError
			switch {
			case errors.As(err, &refusal):
				refused++
			case err != nil:
				r.Fatal(err)
			case refused > 0:
				// Letters that were moved to the end begin anew.
			default:
				seen++
			}
		}
		if seen != 10 || refused == 0 {
			r.Errorf("%d looks, then %d refusals", seen, refused)
		}
		r.has(queue, 50)
		got := map[string]bool{}
		for _, d := range r.drain(queue) {
			got[d.MessageId] = true
		}
		if len(got) != 50 {
			r.Errorf("%d of 50 letters are left", len(got))
		}
	})
}

func TestAQueueThatALookWouldHarmIsRefused(t *testing.T) {
	onEach(t, func(r *room) {
		kind := string(r.kind)
		for name, args := range map[string]amqp.Table{
			"drops the oldest": {"x-max-length": int32(10)},
			"single active":    {"x-single-active-consumer": true},
			"bytes":            {"x-max-length-bytes": int32(1000), "x-overflow": "drop-head"},
		} {
			queue := r.work + "." + strings.ReplaceAll(name, " ", "-")
			args["x-queue-type"] = kind
			r.declare(queue, args)
			var refused *desk.RefusedError
			if _, err := live(r.T, r.conn, queue, r.journal).Peek(r.Context(), 1); !errors.As(err, &refused) {
				r.Errorf("%s: %v", name, err)
			}
		}
		full := r.work + ".refuses"
		r.declare(full, amqp.Table{"x-queue-type": kind, "x-max-length": int32(100), "x-overflow": "reject-publish"})
		if _, err := live(r.T, r.conn, full, r.journal).Peek(r.Context(), 1); err != nil {
			r.Errorf("a queue that refuses what is published: %v", err)
		}
		if r.kind == topology.Classic {
			return
		}
		conn, err := connection.Open(r.Context(), connection.Config{URLs: []string{r.broker.AMQPURL()}})
		must(r.T, err)
		defer conn.Close()
		limited := r.work + ".limited"
		r.declare(limited, amqp.Table{"x-queue-type": kind, "x-delivery-limit": int32(20)})
		var refused *desk.RefusedError
		if _, err := live(r.T, conn, limited, r.journal).Peek(r.Context(), 1); !errors.As(err, &refused) {
			r.Errorf("a delivery limit that policies may lower, without the management API: %v", err)
		}
		if _, err := live(r.T, conn, r.queue, r.journal).Peek(r.Context(), 1); err != nil {
			r.Errorf("rehop's own queue of dead letters, without the management API: %v", err)
		}
	})
}
