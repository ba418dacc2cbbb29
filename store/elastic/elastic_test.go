package elastic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/xdeath"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node answers as Elasticsearch documents it. It is a transport, so that a
// bubble can hold it.
type node struct {
	mu       sync.Mutex
	requests []*asked
	answer   func(*asked) (int, string)
}

// asked is one request.
type asked struct {
	method, path string
	body         []byte
	number       int // from 1
}

func (n *node) Perform(r *http.Request) (*http.Response, error) {
	a := &asked{method: r.Method, path: r.URL.Path}
	if r.Body != nil {
		a.body, _ = io.ReadAll(r.Body)
	}
	n.mu.Lock()
	n.requests = append(n.requests, a)
	a.number = len(n.requests)
	n.mu.Unlock()
	status, text := n.answer(a)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	w.WriteHeader(status)
	_, _ = w.WriteString(text)
	return w.Result(), nil
}

func (n *node) all() []*asked {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*asked{}, n.requests...)
}

// ids of the documents that a bulk request writes or deletes.
func (a *asked) ids(t testing.TB) (ids []string) {
	t.Helper()
	for lines := bufio.NewScanner(bytes.NewReader(a.body)); lines.Scan(); {
		var action map[string]struct {
			ID string `json:"_id"`
		}
		if json.Unmarshal(lines.Bytes(), &action) == nil {
			for _, one := range action {
				ids = append(ids, one.ID)
			}
		}
	}
	return ids
}

// items is the answer to a bulk request; answer is the rest of an item.
func (a *asked) items(t testing.TB, answer func(id string) string) string {
	var items []string
	for _, id := range a.ids(t) {
		items = append(items, fmt.Sprintf(`{"index":{"_index":"rehop-letters","_id":%q,%s}}`, id, answer(id)))
	}
	return `{"took":1,"errors":true,"items":[` + strings.Join(items, ",") + `]}`
}

const (
	created  = `"status":201,"result":"created"`
	full     = `"status":429,"error":{"type":"es_rejected_execution_exception","reason":"rejected execution of coordinating operation"}`
	unmapped = `"status":400,"error":{"type":"document_parsing_exception","reason":"failed to parse field [attempts]","caused_by":{"reason":"For input string"}}`
	conflict = `"status":409,"error":{"type":"version_conflict_engine_exception","reason":"required seqNo [7]"}`
)

func open(t testing.TB, n *node, cfg Config) *Store {
	t.Helper()
	return newStore(n, cfg.withDefaults())
}

func message(id string) producer.Message { return producer.Message{RoutingKey: "k", ID: id} }

// TestEachItemHasItsAnswer: of letters in one request each Put learns its own.
func TestEachItemHasItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		n := &node{}
		var poisoned string
		n.answer = func(a *asked) (int, string) {
			if a.number == 1 {
				<-hold // the others gather meanwhile
			}
			return 200, a.items(t, func(id string) string {
				if id == poisoned {
					return unmapped
				}
				return created
			})
		}
		s := open(t, n, Config{Requests: 1})
		poisoned = identityOf(message("m3"))
		errs := make([]error, 10)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = s.Put(t.Context(), message(fmt.Sprint("m", i)), producer.ErrReturned) })
			synctest.Wait()
		}
		close(hold)
		all.Wait()
		for i, err := range errs {
			var answered *responseError
			switch {
			case i != 3 && err != nil:
				t.Errorf("m%d: %v", i, err)
			case i == 3 && (!errors.As(err, &answered) || answered.Status != 400 || !strings.Contains(err.Error(), "For input string") || errors.Is(err, producer.ErrUnconfirmed) || rehop.ClassOf(err) != rehop.ClassConfiguration):
				t.Errorf("the poisoned one: %v", err)
			}
		}
		if got := len(n.all()); got != 2 {
			t.Errorf("%d requests, want 2: the first letter, and the others together", got)
		}
	})
}

func identityOf(m producer.Message) string {
	s := &Store{cfg: Config{}.withDefaults(), now: time.Now}
	var id string
	s.bulk = newBulk(s.cfg, func(_ context.Context, all []*action) []error { id = all[0].id; return make([]error, len(all)) })
	_ = s.Put(context.Background(), m, producer.ErrReturned)
	return id
}

// TestSentAgain: 429 and 503, of the request or of an item, are sent again, and
// nothing else is.
func TestSentAgain(t *testing.T) {
	rows := []struct {
		rule      string
		status    int
		item      string // of a request with status 200
		again     bool
		maybe     bool
		wantClass rehop.Class
	}{
		{"the request with 429", 429, "", true, false, rehop.ClassTransient},
		{"the request with 503", 503, "", true, true, rehop.ClassTransient},
		{"an item with 429", 200, full, true, false, rehop.ClassTransient},
		{"an item with 503", 200, `"status":503,"error":{"type":"unavailable_shards_exception","reason":"primary shard is not active"}`, true, true, rehop.ClassTransient},
		{"a refused item", 200, unmapped, false, false, rehop.ClassConfiguration},
		{"no permission", 403, "", false, false, rehop.ClassConfiguration},
		{"too large", 413, "", false, false, rehop.ClassConfiguration},
		{"a gateway without an answer", 504, "", false, true, rehop.ClassTransient},
		{"an item of another document", 200, `"_id":"other","status":201`, false, true, rehop.ClassTransient},
	}
	for _, row := range rows {
		t.Run(row.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &node{}
				failures := 3
				n.answer = func(a *asked) (int, string) {
					if a.number > failures {
						return 200, a.items(t, func(string) string { return created })
					}
					return row.status, a.items(t, func(string) string { return row.item })
				}
				if row.item == "" {
					answer := n.answer
					n.answer = func(a *asked) (int, string) {
						if a.number <= failures {
							return row.status, `{"error":{"type":"x","reason":"y"},"status":1}`
						}
						return answer(a)
					}
				}
				s := open(t, n, Config{})
				err := s.Put(t.Context(), message("m"), producer.ErrReturned)
				if row.again != (err == nil) || row.again && len(n.all()) != failures+1 || !row.again && len(n.all()) != 1 {
					t.Errorf("%v after %d requests", err, len(n.all()))
				}
				failures = 1 << 30
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err = s.Put(ctx, message("m"), producer.ErrReturned)
				if err == nil || errors.Is(err, producer.ErrUnconfirmed) != row.maybe {
					t.Errorf("after all tries: %v; want that it may be stored: %v", err, row.maybe)
				}
				if row.again && (!errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute) {
					t.Errorf("ended after %v with %v", time.Since(began), err)
				}
				if !row.again && rehop.ClassOf(err) != row.wantClass {
					t.Errorf("class %v, want %v", rehop.ClassOf(err), row.wantClass)
				}
			})
		})
	}
}

// TestBounds: no more requests and no more bytes are on their way than the Config
// says, and no request is larger.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 10_000
		n := &node{}
		var mu sync.Mutex
		var requests, bytes, mostRequests, mostBytes, mostLetters, largest int
		n.answer = func(a *asked) (int, string) {
			ids := a.ids(t)
			mu.Lock()
			requests, bytes = requests+1, bytes+len(a.body)
			mostRequests, mostBytes = max(mostRequests, requests), max(mostBytes, bytes)
			mostLetters, largest = max(mostLetters, len(ids)), max(largest, len(a.body))
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			requests, bytes = requests-1, bytes-len(a.body)
			mu.Unlock()
			return 200, a.items(t, func(string) string { return created })
		}
		s := open(t, n, Config{Requests: 3, BatchLetters: 7, BatchBytes: 6 * size, Bytes: 14 * size})
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				m := message(fmt.Sprint(i))
				m.Body = make([]byte, size*2/3) // base64, or escaped
				m.Body[0] = 0xff
				must(t, s.Put(t.Context(), m, producer.ErrReturned))
			})
		}
		large := message("large")
		large.Body = []byte(strings.Repeat("x", 20*size))
		must(t, s.Put(t.Context(), large, producer.ErrReturned))
		all.Wait()
		if mostRequests != 3 && mostRequests != 2 || mostBytes > 21*size || mostLetters > 7 || mostLetters < 2 || largest < 20*size {
			t.Errorf("%d requests, %d bytes at once; up to %d letters and %d bytes in one", mostRequests, mostBytes, mostLetters, largest)
		}
	})
}

// TestCallerLeaves: a Put whose ctx ends says whether its letter may have been sent.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		n := &node{}
		n.answer = func(a *asked) (int, string) {
			<-hold
			return 200, a.items(t, func(string) string { return created })
		}
		s := open(t, n, Config{Requests: 1, Bytes: 2000})
		put := func(id string, size int) <-chan error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			got := make(chan error, 1)
			go func() {
				defer cancel()
				m := message(id)
				m.Body = []byte(strings.Repeat("x", size))
				got <- s.Put(ctx, m, producer.ErrReturned)
			}()
			synctest.Wait()
			return got
		}
		inFlight, waiting, outside := put("1", 10), put("2", 10), put("3", 1900)
		for name, ch := range map[string]<-chan error{"in flight": inFlight, "waiting": waiting, "outside": outside} {
			err := <-ch
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, producer.ErrUnconfirmed) != (name == "in flight") {
				t.Errorf("%s: %v", name, err)
			}
		}
		close(hold)
		must(t, <-put("4", 1900)) // all bytes were given back
		if got := len(n.all()); got != 2 {
			t.Errorf("%d requests, want 2", got)
		}
	})
}

func TestHeldDeadLetter(t *testing.T) {
	n := &node{answer: func(*asked) (int, string) {
		return 403, `{"error":{"type":"security_exception","reason":"no"},"status":403}`
	}}
	err := open(t, n, Config{}).Collect(t.Context(), &consumer.Delivery{ID: "d", History: xdeath.History{Queue: "q"}})
	if consumer.OutcomeOf(err) != consumer.OutcomeOf(consumer.Hold(errors.New("x"))) || !strings.Contains(err.Error(), "security_exception") {
		t.Errorf("%v", err)
	}
}

// publisher confirms everything.
type publisher struct {
	sent   []producer.Message
	before func()
}

func (p *publisher) PublishAll(_ context.Context, all []producer.Message) ([]producer.Receipt, error) {
	if p.before != nil {
		p.before()
	}
	p.sent = append(p.sent, all...)
	receipts := make([]producer.Receipt, len(all))
	for i, m := range all {
		receipts[i] = producer.Receipt{ID: m.ID, Place: producer.PlaceQueue}
	}
	return receipts, nil
}

// TestReplayDeletesWhatItRead: a letter is deleted as the version that was read.
// One that was changed stays; what cannot be deleted is an error, and what is refused
// is not asked again.
func TestReplayDeletesWhatItRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		var deletes []string
		answers := map[string]string{"a": `"status":200,"result":"deleted"`, "b": conflict, "c": `"status":404,"result":"not_found"`, "d": full,
			"e": `"status":403,"error":{"type":"security_exception","reason":"no delete"}`, "f": `"status":404,"error":{"type":"index_not_found_exception","reason":"no such index"}`, "g": `"status":200,"result":"deleted","error":{}`}
		n.answer = func(a *asked) (int, string) {
			switch {
			case strings.HasSuffix(a.path, "/_refresh"):
				return 200, `{"_shards":{"failed":0}}`
			case strings.HasSuffix(a.path, "/_bulk"):
				deletes = append(deletes, string(a.body))
				return 200, a.items(t, func(id string) string { return answers[id] })
			}
			var asks struct {
				Size    int  `json:"size"`
				Version bool `json:"seq_no_primary_term"`
			}
			must(t, json.Unmarshal(a.body, &asks))
			if !asks.Version {
				t.Error("the search does not ask for the version")
			}
			var hits []string
			if !bytes.Contains(a.body, []byte(`"tie":{"gt"`)) && asks.Size > 0 {
				for i, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
					hits = append(hits, fmt.Sprintf(`{"_index":"rehop-letters-000001","_id":%q,"_seq_no":%d,"_primary_term":2,"_source":{"message_id":%q,"routing_key":"k","unconfirmed":%t,"stored":"2026-11-22T08:00:00.000Z","tie":%d}}`, id, i, id, id == "c", i))
				}
			}
			return 200, `{"timed_out":false,"_shards":{"failed":0},"hits":{"total":{"value":7},"hits":[` + strings.Join(hits, ",") + `]}}`
		}
		s := open(t, n, Config{})
		p := &publisher{}
		report, err := s.Replay(t.Context(), p, Query{All: true}, store.ReplayOptions{})
		if err == nil || !strings.Contains(err.Error(), "3 letters were published and could not be deleted") || !strings.Contains(err.Error(), "es_rejected") || !strings.Contains(err.Error(), "status 200: {}") {
			t.Errorf("err: %v", err)
		}
		if report.Matched != 7 || report.Sent != 7 || report.MaybeDuplicate != 1 || report.Changed != 1 || report.Failed != 0 || len(p.sent) != 7 || p.sent[0].Replays != 1 {
			t.Errorf("%+v", report)
		}
		if len(deletes) < 2 || !strings.Contains(deletes[0], `{"delete":{"_id":"b","_index":"rehop-letters-000001","if_primary_term":2,"if_seq_no":1}}`) || strings.Count(deletes[1], "\n") != 1 || !strings.Contains(deletes[1], `"d"`) {
			t.Errorf("deletes: %q", deletes)
		}
	})
}

// TestNothingStoredYet: an index that is not there has no letters. A 404 of something
// else is an error.
func TestNothingStoredYet(t *testing.T) {
	rows := []struct {
		rule   string
		status int
		answer string
		none   bool
	}{
		{"Elasticsearch", 404, `{"error":{"root_cause":[],"type":"index_not_found_exception","reason":"no such index [rehop-letters]"},"status":404}`, true},
		{"ZincSearch", 400, `{"error":"index rehop-letters does not exists"}`, true},
		{"another index", 400, `{"error":"index letters does not exists"}`, false},
		{"a proxy that knows no such path", 404, `<html>404 page not found</html>`, false},
		{"a proxy that says nothing", 404, ``, false},
	}
	for _, row := range rows {
		for path := range map[string]bool{"/_search": true, "/_refresh": true} {
			n := &node{answer: func(a *asked) (int, string) {
				if strings.HasSuffix(a.path, path) {
					return row.status, row.answer
				}
				return 200, `{"hits":{"total":{"value":0},"hits":[]}}`
			}}
			report, err := open(t, n, Config{}).Replay(t.Context(), &publisher{}, Query{All: true}, store.ReplayOptions{})
			if report.Matched != 0 || row.none != (err == nil) {
				t.Errorf("%s, %s: %+v, %v", row.rule, path, report, err)
			}
		}
	}
}

// TestDeletesThatDoNotArrive: a 404 of something else than the index deletes nothing.
func TestDeletesThatDoNotArrive(t *testing.T) {
	for _, answer := range []string{``, `not_found`, `{"error":"no route"}`} {
		n := &node{answer: func(a *asked) (int, string) {
			if strings.HasSuffix(a.path, "/_bulk") {
				return 404, answer
			}
			return 200, `{"hits":{"total":{"value":1},"hits":[{"_index":"i","_id":"a","_source":{"routing_key":"k","stored":"2026-11-22T08:00:00.000Z"}}]}}`
		}}
		_, err := open(t, n, Config{}).Replay(t.Context(), &publisher{}, Query{All: true}, store.ReplayOptions{Limit: 1})
		if err == nil || !strings.Contains(err.Error(), "1 letters were published and could not be deleted") {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

func TestFitting(t *testing.T) {
	rows := []struct {
		rule          string
		sizes         []int
		letters, size int
		want          int
	}{
		{"nothing waits", nil, 3, 10, 0},
		{"all", []int{3, 3, 4}, 3, 10, 3},
		{"one letter too many", []int{1, 1, 1, 1}, 3, 10, 3},
		{"one byte too many", []int{3, 3, 5}, 3, 10, 2},
		{"a large one alone", []int{11, 1}, 3, 10, 1},
		{"a large one waits", []int{1, 11}, 3, 10, 1},
	}
	for _, row := range rows {
		var all []*action
		for _, size := range row.sizes {
			all = append(all, &action{lines: make([]byte, size)})
		}
		if got := fitting(all, row.letters, row.size); got != row.want {
			t.Errorf("%s: %d, want %d", row.rule, got, row.want)
		}
	}
}

func TestReplayOfWhatIsNoLetter(t *testing.T) {
	n := &node{answer: func(a *asked) (int, string) {
		return 200, `{"hits":{"total":{"value":1},"hits":[{"_index":"i","_id":"alien","_source":{"level":"info"}}]}}`
	}}
	report, err := open(t, n, Config{}).Replay(t.Context(), &publisher{}, Query{All: true}, store.ReplayOptions{})
	if err != nil || report.Failed != 1 || report.Last == nil || !strings.Contains(report.Last.Error(), `"alien"`) {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestShardsThatFail(t *testing.T) {
	n := &node{answer: func(a *asked) (int, string) {
		return 200, `{"timed_out":false,"_shards":{"total":2,"failed":1},"hits":{"total":{"value":1},"hits":[]}}`
	}}
	if _, err := open(t, n, Config{}).Find(t.Context(), Query{}); rehop.ClassOf(err) != rehop.ClassTransient {
		t.Errorf("half of the letters: %v", err)
	}
}

func TestTemplate(t *testing.T) {
	raw, err := Template(Config{Index: "letters", Policy: "90d", Analyzer: "english"})
	must(t, err)
	for _, want := range []string{`"index_patterns":["letters","letters-*"]`, `"index.lifecycle.name":"90d"`, `"index.lifecycle.rollover_alias":"letters"`, `"body":{"analyzer":"english","type":"text"}`} {
		if !bytes.Contains(raw, []byte(want)) {
			t.Errorf("%s is not in %s", want, raw)
		}
	}
	if raw, err = Template(Config{}); err != nil || bytes.Contains(raw, []byte("lifecycle")) {
		t.Errorf("without a policy: %s, %v", raw, err)
	}
	n := &node{answer: func(a *asked) (int, string) {
		if a.method == "GET" {
			return 404, `{"error":{"type":"index_not_found_exception","reason":"no such index"},"status":404}`
		}
		return 200, `{"acknowledged":true}`
	}}
	if _, err := Open(t.Context(), n, Config{}); err != nil || len(n.all()) != 2 || n.all()[0].method != "PUT" || n.all()[0].path != "/_index_template/rehop-letters" || !bytes.Equal(n.all()[0].body, raw) {
		t.Errorf("Open: %v", err)
	}
}

func TestRefused(t *testing.T) {
	_, err := Open(t.Context(), nil, Config{Index: "Letters", BatchLetters: -1, BatchBytes: -1, Requests: -1, Bytes: -1, Timeout: -1})
	for _, want := range []string{`Index is "Letters"`, "BatchLetters is -1", "BatchBytes is -1", "Requests is -1", "Bytes is -1", "Timeout is -1ns", "client is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	n := &node{answer: func(*asked) (int, string) { t.Error("asked"); return 500, "" }}
	s := open(t, n, Config{})
	_, err = s.Replay(t.Context(), nil, Query{Limit: -1, Clause: json.RawMessage("{"), After: "x"}, store.ReplayOptions{Rate: -1, Limit: -1, Canary: -1})
	for _, want := range []string{"Query.Limit is -1", "Query.Clause", "Query.After", "Rate is -1", "Limit is -1", "Canary is -1", "Publisher is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if rehop.ClassOf(err) != rehop.ClassBug {
		t.Errorf("class %v", rehop.ClassOf(err))
	}
	m := message("m")
	m.Headers = map[string]any{"a": struct{}{}}
	if err := s.Put(t.Context(), m, producer.ErrReturned); rehop.ClassOf(err) != rehop.ClassBug {
		t.Errorf("a header of no type: %v", err)
	}
}
