package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// call makes a request and returns the status and the body of the answer.
func call(h http.Handler, method, path, body string, headers ...string) (int, string) {
	r := httptest.NewRequest(method, "http://localhost:8080"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestOperatorsSeeWhatIsInHand(t *testing.T) {
	onNewest(t, func(w *fixture) {
		orders, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			if d.ID == id(0) {
				return consumer.Hold(errBroken)
			}
			<-ctx.Done()
			return ctx.Err()
		}, consumer.Config{Concurrency: 2, Prefetch: 150, DrainTimeout: time.Second})
		lanes := topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}}
		w.declare(lanes)
		sms, stopSMS := w.startOn(lanes, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		ops := http.StripPrefix("/ops", operator(t, orders, sms))
		w.publish(1)
		time.Sleep(time.Second)
		w.publish(119, func(m *rehoptest.Message) { m.Body = []byte("secret") })
		w.publish(1, func(m *rehoptest.Message) { m.MessageId = "\n<b>"; m.Priority = 0 })
		time.Sleep(10 * time.Second)

		code, text := call(ops, "GET", "/ops/", "")
		for _, want := range []string{"orders: healthy", "queue orders: 121 in hand, 1 with handlers", "held     \"m0\"", "handled  \"m1\"", "waiting  \"m2\"",
			"and 21 more", "sms: healthy", "queue sms.bulk: 0 in hand"} {
			if !strings.Contains(text, want) {
				w.Errorf("%d: no %q in\n%s", code, want, text)
			}
		}
		if strings.Contains(text, "secret") || strings.Contains(text, "share") || strings.Count(text, "waiting") != 98 {
			w.Errorf("a body, or %d messages that wait, want 98 and no body\n%s", strings.Count(text, "waiting"), text)
		}
		code, body := call(ops, "GET", "/ops/", "", "Accept", "application/json")
		var got struct {
			Consumers []struct {
				Name, Health string
				Queues       []struct {
					Queue, Lane     string
					InHand, Handled int
					Messages        []struct {
						ID, State  string
						AgeSeconds float64
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK {
			w.Fatalf("%d, %v: %s", code, err, body)
		}
		queues := append(got.Consumers[0].Queues, got.Consumers[1].Queues...)
		if q := queues[0]; got.Consumers[1].Name != "sms" || queues[2].Lane != "bulk" || q.InHand != 121 || q.Handled != 1 || len(q.Messages) != 100 ||
			q.Messages[1].ID != id(1) || q.Messages[1].State != "handled" || q.Messages[1].AgeSeconds != 10 {
			w.Errorf("%s", body)
		}
		w.stopped(stop)
		w.stopped(stopSMS)
		if _, text = call(ops, "GET", "/ops/", ""); !strings.Contains(text, "orders: unhealthy since ") || !strings.Contains(text, "Run is not running") {
			w.Errorf("after the stop: %s", text)
		}
	})
}

func TestOperatorsSeeTheKeyAndTheNextTryOfAHeldMessage(t *testing.T) {
	onNewest(t, func(w *fixture) {
		orders, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			if d.OrderKey == "away" {
				return consumer.HoldFor(2*time.Minute, errBroken)
			}
			<-ctx.Done()
			return ctx.Err()
		}, consumer.Config{Concurrency: 4, KeyLimit: 1, DrainTimeout: time.Second})
		ops := operator(t, orders)
		w.publish(3, keyed("away"))
		w.publish(2, keyed("busy"))
		w.publish(1, keyed("\n<b>"))
		time.Sleep(time.Second)
		_, body := call(ops, "GET", "/", "", "Accept", "application/json")
		var got struct {
			Consumers []struct {
				Queues []struct {
					Messages []struct {
						ID, State, Key string
						Next           *time.Time
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			w.Fatalf("%v: %s", err, body)
		}
		var seen []string
		for _, m := range got.Consumers[0].Queues[0].Messages {
			next := "-"
			if m.Next != nil {
				next = time.Until(*m.Next).String()
			}
			seen = append(seen, fmt.Sprintf("%s %s %q %s", m.ID, m.State, m.Key, next))
		}
		want := []string{`m0 held "away" 1m59s`, `m1 waiting "away" -`, `m2 waiting "away" -`, `m3 handled "busy" -`, `m4 waiting "busy" -`, `m5 handled "\n<b>" -`}
		if !slices.Equal(seen, want) {
			w.Errorf("%q\nwant %q", seen, want)
		}
		_, text := call(ops, "GET", "/", "")
		for _, want := range []string{`held     "m0"  key "away", next try 2000-01-01T00:02:00Z`, `handled  "m5"  key "\n<b>"`} {
			if !strings.Contains(text, want) {
				w.Errorf("no %q in\n%s", want, text)
			}
		}
		w.stopped(stop)
	})
}

func TestOperatorsPauseAndResume(t *testing.T) {
	onNewest(t, func(w *fixture) {
		handle := func(context.Context, *consumer.Delivery) error { return nil }
		orders, stop := w.start(handle, consumer.Config{})
		other := topology.WorkQueue{Name: "other"}
		w.declare(other)
		others, stopOthers := w.startOn(other, handle, consumer.Config{})
		time.Sleep(time.Second)
		ops := operator(t, orders, others)
		state := func() string {
			a, _ := health(orders)
			b, _ := health(others)
			return a + " " + b
		}
		for _, tt := range []struct {
			method, path, body, origin string
			code                       int
			says, state                string
		}{
			{"GET", "/pause", "", "", 405, "", "healthy healthy"},
			{"POST", "/pause?queue=unknown", "", "", 404, "there are: orders, other", "healthy healthy"},
			{"POST", "/pause?que=orders", "", "", 400, "one queue", "healthy healthy"},
			{"POST", "/pause?queue=", "", "", 400, "one queue", "healthy healthy"},
			{"POST", "/pause?queue=orders", "queue=other", "", 400, "one queue", "healthy healthy"},
			{"POST", "/pause", "queue=" + strings.Repeat("x", 5000), "", 400, "cannot be read", "healthy healthy"},
			{"POST", "/pause", "", "https://evil.example", 403, "cross-origin", "healthy healthy"},
			{"POST", "/pause?queue=other", "", "http://localhost:8080", 200, `Z: "consumer: queue \"other\": paused by Pause"`, "healthy degraded"},
			{"POST", "/resume", "queue=other", "", 200, "other: healthy", "healthy healthy"},
			{"POST", "/pause", "", "", 200, "paused since ", "degraded degraded"},
			{"POST", "/resume?queue=orders", "", "", 200, "orders: healthy", "healthy degraded"},
			{"POST", "/resume", "", "", 200, "", "healthy healthy"},
		} {
			headers := []string{"Origin", tt.origin}
			if tt.origin == "" {
				headers = nil
			}
			code, text := call(ops, tt.method, tt.path, tt.body, headers...)
			if got := state(); code != tt.code || !strings.Contains(text, tt.says) || got != tt.state {
				w.Errorf("%s %s %q: %d %q, then %s; want %d, %q and %s", tt.method, tt.path, tt.body, code, text, got, tt.code, tt.says, tt.state)
			}
		}
		if code, _ := call(ops, "POST", "/pause", "{}", "Content-Type", "application/json"); code != 415 || state() != "healthy healthy" {
			w.Errorf("a body that is no form: %d, then %s", code, state())
		}
		w.stopped(stop)
		w.stopped(stopOthers)
	})
}

// operator returns the http.Handler that operates consumers.
func operator(t *testing.T, consumers ...*consumer.Consumer) http.Handler {
	t.Helper()
	ops, err := consumer.Operator(consumers...)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// A page whose name a stranger's DNS points at the service reaches nothing, and no other
// page sees the state.
func TestOperatorsAreAskedByTheirOwnPagesOnly(t *testing.T) {
	onNewest(t, func(w *fixture) {
		orders, stop := w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		time.Sleep(time.Second)
		anywhere, named := http.NewServeMux(), http.NewServeMux()
		anywhere.Handle("/ops/", http.StripPrefix("/ops", operator(t, orders)))
		named.Handle("shop.example/ops/", http.StripPrefix("/ops", operator(t, orders)))
		for _, tt := range []struct {
			rule         string
			mux          *http.ServeMux
			method, host string
			headers      []string
			code         int
		}{
			{"a stranger's name, in a browser", anywhere, "POST", "attacker.example", []string{"Origin", "http://attacker.example", "Sec-Fetch-Site", "same-origin"}, 403},
			{"a stranger's name, in a browser over http", anywhere, "POST", "attacker.example:8080", []string{"Origin", "http://attacker.example:8080"}, 403},
			{"a stranger's name reads nothing", anywhere, "GET", "attacker.example", nil, 403},
			{"a stranger's name where another is named", named, "POST", "attacker.example", nil, 404},
			{"an image of another site", anywhere, "GET", "localhost:8080", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
			{"the name that the program gives", named, "POST", "shop.example", []string{"Origin", "http://shop.example"}, 200},
			{"an address", anywhere, "POST", "10.1.2.3:8080", nil, 200},
			{"a link", anywhere, "GET", "localhost:8080", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		} {
			path := "/ops/pause"
			if tt.method == "GET" {
				path = "/ops/"
			}
			r := httptest.NewRequest(tt.method, "http://"+tt.host+path, nil)
			for i := 0; i < len(tt.headers); i += 2 {
				r.Header.Set(tt.headers[i], tt.headers[i+1])
			}
			answer := httptest.NewRecorder()
			tt.mux.ServeHTTP(answer, r)
			state, _ := health(orders)
			if paused := state == "degraded"; answer.Code != tt.code || paused != (tt.code == 200 && tt.method == "POST") {
				w.Errorf("%s: %d, then %s; want %d", tt.rule, answer.Code, state, tt.code)
			}
			orders.Resume()
		}
		w.stopped(stop)
	})
}

func TestOperatorNamesEachConsumerThatIsNil(t *testing.T) {
	_, err := consumer.Operator(nil, &consumer.Consumer{}, nil)
	const want = "consumer: Operator: consumer 0 is nil, want one that New or NewBatch has made\nconsumer: Operator: consumer 2 is nil, want one that New or NewBatch has made"
	if err == nil || err.Error() != want || rehop.ClassOf(err) != rehop.ClassBug {
		t.Errorf("Operator = %v\nwant %s", err, want)
	}
}

// The page of the operator is looked at while workers take messages. For the race detector.
func TestTheOperatorLooksWhileWorkersTakeMessages(t *testing.T) {
	onNewest(t, func(w *fixture) {
		c, stop := w.start(func(context.Context, *consumer.Delivery) error {
			time.Sleep(time.Microsecond)
			return nil
		}, consumer.Config{Concurrency: 4})
		w.begun()
		var looks sync.WaitGroup
		ops := operator(t, c)
		looks.Go(func() {
			for range 300 {
				call(ops, "GET", "/", "")
				time.Sleep(time.Microsecond)
			}
		})
		for range 30 {
			w.publish(100)
			time.Sleep(10 * time.Microsecond)
		}
		looks.Wait()
		time.Sleep(time.Minute)
		w.stopped(stop)
	})
}
