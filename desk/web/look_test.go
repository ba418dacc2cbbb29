package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/desk"
)

// Looks that wait for their turn keep nobody from a page.
func TestLooksThatWaitKeepNobodyFromAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		turn := make(chan struct{})
		r.queue.looking = func(context.Context) { <-turn }
		r.settle = func() {}
		var all sync.WaitGroup
		for range 2 * maxRequests {
			all.Go(func() { r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303) })
		}
		synctest.Wait()
		r.has(r.get("/"), 200, "orders.dlq")
		close(turn)
		all.Wait()
		synctest.Wait()
	})
}

// A look would wait for the end of a redrive, so the desk names the redrive at once.
func TestALookDoesNotWaitForARedriveOfTheDesk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, nil)
		r.queue.hold = make(chan struct{})
		redrive := url.Values{"queue": {"orders.dlq"}, "there": {"3"}, "all": {"1"}, "redrive": {"slow"}}
		r.has(r.post("/send", redrive), 303)
		for _, page := range []string{"/look", "/export"} {
			r.has(r.post(page, url.Values{"queue": {"orders.dlq"}}), 409, "A redrive is at this queue", `href="redrive?id=slow"`)
		}
		if r.queue.looked > 0 || len(r.queue.kept) > 0 {
			t.Errorf("%d looks, %q", r.queue.looked, r.queue.kept)
		}
		r.has(r.post("/export", url.Values{"store": {"store letters.db"}}), 200)
		close(r.queue.hold)
		synctest.Wait()
		r.has(r.post("/look", url.Values{"queue": {"orders.dlq"}}), 303)
	})
}

// deadlines notes until when a server lets an answer be written.
type deadlines struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.until = t
	return nil
}

// The answer of a look that lasts is written, also where a server gives a page less time.
func TestTheServerWaitsForALook(t *testing.T) {
	for _, page := range []string{"/look", "/export"} {
		synctest.Test(t, func(t *testing.T) {
			r := enter(t, nil)
			r.queue.err = errors.Join(desk.ErrNotWhole)
			req := httptest.NewRequest(http.MethodPost, page, strings.NewReader("queue=orders.dlq"))
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			r.h.ServeHTTP(w, req)
			synctest.Wait()
			if in := time.Until(w.until); in <= lookTimeout {
				t.Errorf("%s has to be answered within %v, and looks for up to %v", page, in, lookTimeout)
			}
		})
	}
}
