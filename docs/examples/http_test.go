package examples

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer"
)

// begin http

// meaning returns the error of a handler that has called a service over HTTP with ctx.
func meaning(ctx context.Context, answer *http.Response, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return err // the call was cut off: HandlerTimeout spends an attempt, a stop spends none
	case err != nil:
		return consumer.Hold(err) // nobody answers
	case answer.StatusCode < 300:
		return nil
	}
	code, err := answer.StatusCode, fmt.Errorf("the service has answered %s", answer.Status)
	switch code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return consumer.HoldFor(retryAfter(answer.Header.Get("Retry-After"), time.Now()), err) // later, and in the same place
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return consumer.Hold(err) // the service is away for all messages
	}
	if code >= 400 && code < 500 {
		return consumer.DeadLetter(err) // the same request will never succeed
	}
	return err // a failed attempt: this message may be the reason
}

// retryAfter returns the time that a Retry-After asks for, in seconds or as a date; 0 if it asks for none.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, _ := http.ParseTime(header) // long ago if it is none
	return max(at.Sub(now), 0)
}

// end http

func TestMeaningOfAnAnswer(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		rule   string
		ctx    context.Context
		status int // 0: no answer
		header string
		want   consumer.Outcome
	}{
		{"done", t.Context(), 200, "", consumer.Outcome{Action: consumer.ActionDone}},
		{"done without a body", t.Context(), 204, "", consumer.Outcome{Action: consumer.ActionDone}},
		{"not modified: a failed attempt", t.Context(), 304, "", consumer.Outcome{Action: consumer.ActionRetry}},
		{"a bad request: a letter", t.Context(), 400, "", consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{"unknown: a letter", t.Context(), 404, "7", consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{"the service has waited for the request", t.Context(), 408, "", consumer.Outcome{Action: consumer.ActionHoldFor}},
		{"a conflict: a letter", t.Context(), 409, "", consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{"too early", t.Context(), 425, "2", consumer.Outcome{Action: consumer.ActionHoldFor, After: 2 * time.Second}},
		{"too many", t.Context(), 429, "120", consumer.Outcome{Action: consumer.ActionHoldFor, After: 2 * time.Minute}},
		{"too many, until a date", t.Context(), 429, "Sat, 01 Jan 2000 00:00:10 GMT", consumer.Outcome{Action: consumer.ActionHoldFor, After: 10 * time.Second}},
		{"too many, and no time", t.Context(), 429, "", consumer.Outcome{Action: consumer.ActionHoldFor}},
		{"a fault of the service: a failed attempt", t.Context(), 500, "", consumer.Outcome{Action: consumer.ActionRetry}},
		{"not implemented: a failed attempt", t.Context(), 501, "", consumer.Outcome{Action: consumer.ActionRetry}},
		{"a proxy without its service: an outage", t.Context(), 502, "", consumer.Outcome{Action: consumer.ActionHold}},
		{"unavailable: an outage", t.Context(), 503, "30", consumer.Outcome{Action: consumer.ActionHold}},
		{"a proxy whose service does not answer: an outage", t.Context(), 504, "", consumer.Outcome{Action: consumer.ActionHold}},
		{"nobody answers: an outage", t.Context(), 0, "", consumer.Outcome{Action: consumer.ActionHold}},
		{"cut off: a failed attempt, but at a stop", ended, 0, "", consumer.Outcome{Action: consumer.ActionRetry}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // it is the year 2000
				var answer *http.Response
				err := io.ErrUnexpectedEOF
				if tt.status > 0 {
					answer, err = &http.Response{StatusCode: tt.status, Status: fmt.Sprint(tt.status), Header: http.Header{}}, nil
					answer.Header.Set("Retry-After", tt.header)
				}
				if got := consumer.OutcomeOf(meaning(tt.ctx, answer, err)); got != tt.want {
					t.Errorf("the outcome is %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestRetryAfterHeader(t *testing.T) {
	now := time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC)
	for _, tt := range []struct {
		rule, header string
		want         time.Duration
	}{
		{"none", "", 0},
		{"seconds", "120", 2 * time.Minute},
		{"no second", "0", 0},
		{"the most seconds", "2147483647", 2147483647 * time.Second},
		{"more seconds than a Duration has: none", "99999999999999999999", 0},
		{"a number below zero: none", "-1", 0},
		{"a fraction: none", "1.5", 0},
		{"words: none", "soon", 0},
		{"a date", "Wed, 21 Oct 2026 07:30:00 GMT", 2 * time.Minute},
		{"a date of RFC 850", "Wednesday, 21-Oct-26 07:30:00 GMT", 2 * time.Minute},
		{"a date of asctime", "Wed Oct 21 07:30:00 2026", 2 * time.Minute},
		{"a date that has passed", "Wed, 21 Oct 2026 07:27:59 GMT", 0},
		{"a date far ahead", "Fri, 31 Dec 9999 23:59:59 GMT", 1<<63 - 1},
		{"a date of another zone: none", "Wed, 21 Oct 2026 07:30:00 +0200", 0},
	} {
		if got := retryAfter(tt.header, now); got != tt.want {
			t.Errorf("%s: %q is %v, want %v", tt.rule, tt.header, got, tt.want)
		}
	}
}

// Five answers 429 in order: the messages of the customer keep their order, and none is a letter.
func TestAnswersOfAService(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.declare(orders)
		var calls atomic.Int32
		service := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case calls.Add(1) <= 5:
				w.Header().Set("Retry-After", "20")
				w.WriteHeader(http.StatusTooManyRequests)
			case strings.HasSuffix(r.URL.Path, "order-8"):
				w.WriteHeader(http.StatusUnprocessableEntity)
			}
		})
		client := &http.Client{Transport: inProcess{service}}
		// begin call
		handler := func(ctx context.Context, d *consumer.Delivery) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://printer/tickets/"+d.ID, nil)
			if err != nil {
				return consumer.DeadLetter(err)
			}
			answer, err := client.Do(r)
			if err == nil {
				defer answer.Body.Close()
			}
			return meaning(ctx, answer, err)
		}
		worker, err := consumer.New(conn, orders, handler, consumer.Config{Concurrency: 16, KeyLimit: 1})
		// end call
		check(err)
		for _, id := range []string{"order-7", "order-8", "order-9"} {
			m := message(id)
			m.OrderKey = "customer-7"
			s.publish(m)
		}
		s.run(worker)
		after(99 * time.Second)
		if n := calls.Load(); n != 5 {
			s.Errorf("%d calls within 99 s, want 5", n)
		}
		after(10 * time.Second)
		s.ready("orders", 0)
		s.ready("orders.dlq", 1)
		if n := calls.Load(); n != 8 {
			s.Errorf("%d calls, want 8", n)
		}
		if worker.Health() != nil {
			s.Error(worker.Health())
		}
	})
}

// inProcess calls a handler as if over the network.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), nil
}
