package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/xdeath"
)

// index is a node with documents, that answers as Elasticsearch does: ids, versions, an
// order by stored and tie, and deletes of a version.
type index struct {
	mu    sync.Mutex
	docs  map[string]*indexed
	seqNo int64
	busy  func(r *http.Request, body []byte) (int, string) // if it returns a status, instead
	reads int                                              // bytes of the largest answer to a search
}

type indexed struct {
	source json.RawMessage
	fields document
	seqNo  int64
}

func (x *index) Perform(r *http.Request) (*http.Response, error) {
	n := node{answer: func(a *asked) (int, string) {
		if x.busy != nil {
			if status, text := x.busy(r, a.body); status != 0 {
				return status, text
			}
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		switch {
		case strings.HasSuffix(a.path, "/_bulk"):
			return 200, x.bulk(a.body)
		case strings.HasSuffix(a.path, "/_search"):
			text := x.search(a.body)
			x.reads = max(x.reads, len(text))
			return 200, text
		case r.Method == http.MethodHead:
			if x.docs[a.path[strings.LastIndex(a.path, "/")+1:]] == nil {
				return 404, ""
			}
			return 200, ""
		}
		return 200, `{"_shards":{"failed":0}}`
	}}
	return n.Perform(r)
}

func (x *index) put(id string, source any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	raw, err := json.Marshal(source)
	if err != nil {
		panic(err)
	}
	x.write(id, raw)
}

func (x *index) write(id string, raw json.RawMessage) {
	if x.docs == nil {
		x.docs = map[string]*indexed{}
	}
	x.seqNo++
	d := &indexed{source: slices.Clone(raw), seqNo: x.seqNo}
	_ = json.Unmarshal(raw, &d.fields) // a field of another type stays empty
	x.docs[id] = d
}

func (x *index) bulk(body []byte) string {
	var items []string
	lines := bytes.Split(bytes.TrimSpace(body), []byte("\n"))
	for i := 0; i < len(lines); i++ {
		var action map[string]struct {
			ID    string `json:"_id"`
			SeqNo *int64 `json:"if_seq_no"`
		}
		if err := json.Unmarshal(lines[i], &action); err != nil {
			panic(err)
		}
		if a, ok := action["index"]; ok {
			i++
			x.write(a.ID, lines[i])
			items = append(items, fmt.Sprintf(`{"index":{"_id":%q,"status":201}}`, a.ID))
			continue
		}
		a := action["delete"]
		d := x.docs[a.ID]
		switch {
		case d == nil, a.SeqNo != nil && *a.SeqNo != d.seqNo:
			items = append(items, fmt.Sprintf(`{"delete":{"_id":%q,%s}}`, a.ID, conflict))
		default:
			delete(x.docs, a.ID)
			items = append(items, fmt.Sprintf(`{"delete":{"_id":%q,"status":200,"result":"deleted"}}`, a.ID))
		}
	}
	return `{"items":[` + strings.Join(items, ",") + `]}`
}

func (x *index) search(body []byte) string {
	var q struct {
		Size  int
		Sort  []map[string]struct{ Order string }
		Query struct {
			Bool struct {
				Filter []struct {
					Terms map[string][]string
					Bool  struct{ Should []json.RawMessage }
				}
			}
		}
	}
	if err := json.Unmarshal(body, &q); err != nil {
		panic(err)
	}
	type place struct {
		id          string
		stored, tie int64
	}
	var all []place
	for id, d := range x.docs {
		p := place{id: id, stored: 1<<63 - 1, tie: d.fields.Tie}
		if d.fields.Stored != nil {
			p.stored = d.fields.Stored.UnixMilli()
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b place) int {
		return slices.Compare([]int64{a.stored, a.tie}, []int64{b.stored, b.tie})
	})
	if q.Sort[0]["stored"].Order == "desc" { // those without a date are last here too
		slices.Reverse(all)
		for len(all) > 0 && all[0].stored == 1<<63-1 {
			all = append(all[1:], all[0])
		}
	}
	var hits []string
	total := 0
	for _, p := range all {
		d, meets := x.docs[p.id], true
		for _, f := range q.Query.Bool.Filter {
			if ids, ok := f.Terms["message_id"]; ok {
				meets = meets && slices.Contains(ids, d.fields.MessageID)
			}
			if len(f.Bool.Should) == 2 {
				var later struct {
					Range struct{ Stored struct{ GT time.Time } }
				}
				var same struct {
					Bool struct {
						Filter []struct {
							Range struct{ Tie struct{ GT int64 } }
						}
					}
				}
				must := func(err error) {
					if err != nil {
						panic(err)
					}
				}
				must(json.Unmarshal(f.Bool.Should[0], &later))
				must(json.Unmarshal(f.Bool.Should[1], &same))
				at := later.Range.Stored.GT.UnixMilli()
				meets = meets && d.fields.Stored != nil && (p.stored > at || p.stored == at && p.tie > same.Bool.Filter[1].Range.Tie.GT)
			}
		}
		if !meets {
			continue
		}
		if total++; len(hits) < q.Size {
			hits = append(hits, fmt.Sprintf(`{"_index":"rehop-letters","_id":%q,"_seq_no":%d,"_primary_term":1,"sort":[%d,%d],"_source":%s}`, p.id, d.seqNo, p.stored, p.tie, d.source))
		}
	}
	return fmt.Sprintf(`{"timed_out":false,"_shards":{"failed":0},"hits":{"total":{"value":%d},"hits":[%s]}}`, total, strings.Join(hits, ","))
}

// fill puts n letters into an index, a second apart.
func (x *index) fill(t testing.TB, n int, change func(i int, m *producer.Message, queue *string)) {
	t.Helper()
	for i := range n {
		m, queue := message(fmt.Sprintf("m-%03d", i)), "orders"
		if change != nil {
			change(i, &m, &queue)
		}
		stored := time.Now().Add(-time.Hour + time.Duration(i)*time.Second)
		id := letter.Identity(m, queue)
		d, err := newDocument(id, letter.Letter{Message: m, Queue: queue, Cause: rehop.CauseExhausted, Failed: stored, Stored: stored})
		must(t, err)
		x.put(id, d)
	}
}

func storeIn(x *index, cfg Config) *Store { return newStore(x, cfg.withDefaults()) }

// A letter with the canary's message id that was there before is no alarm; the letter
// itself, dead again, is one.
func TestTheCanaryIsALetterThatIsNewOrHasChanged(t *testing.T) {
	for _, back := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			x := &index{}
			x.fill(t, 2, func(i int, m *producer.Message, queue *string) { m.ID = "fan-out"; *queue = fmt.Sprint("queue ", i) })
			x.fill(t, 3, nil)
			s := storeIn(x, Config{})
			p := &publisher{before: func() {
				if back {
					time.AfterFunc(10*time.Second, func() {
						_ = s.Collect(context.Background(), &consumer.Delivery{ID: "fan-out", RoutingKey: "k", History: xdeath.History{Queue: "queue 0"}})
					})
				}
			}}
			report, err := s.Replay(t.Context(), p, Query{All: true}, store.ReplayOptions{Canary: time.Minute})
			if errors.Is(err, store.ErrCanary) != back || !back && report.Sent != 5 || back && report.Sent != 1 {
				t.Errorf("it comes back: %v; %+v, %v", back, report, err)
			}
		})
	}
}

// A request that is too large is sent in halves, until the letters fit that fit alone.
func TestARequestThatIsTooLargeIsHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &index{busy: func(r *http.Request, body []byte) (int, string) {
			if strings.HasSuffix(r.URL.Path, "/_bulk") && len(body) > 20_000 {
				return 413, `{"error":"too large"}`
			}
			return 0, ""
		}}
		s := storeIn(x, Config{})
		var all sync.WaitGroup
		var mu sync.Mutex
		failed := map[int]error{}
		for i := range 60 {
			all.Go(func() {
				m := message(fmt.Sprint(i))
				m.Body = bytes.Repeat([]byte("x"), 4000)
				if i == 7 {
					m.Body = bytes.Repeat([]byte("x"), 40_000)
				}
				if err := s.Put(t.Context(), m, producer.ErrReturned); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed[i] = err
				}
			})
		}
		all.Wait()
		if len(failed) != 1 || failed[7] == nil || len(x.docs) != 59 {
			t.Errorf("%d stored, refused: %v", len(x.docs), failed)
		}
	})
}

// A letter that is refused by itself goes to Config.Refused and holds up no other.
func TestALetterThatIsRefusedHasAWayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &index{busy: func(r *http.Request, body []byte) (int, string) {
			if bytes.Contains(body, []byte("too large")) {
				return 413, `{"error":"too large"}`
			}
			if bytes.Contains(body, []byte("forbidden")) {
				return 403, `{"error":"no"}`
			}
			if bytes.Contains(body, []byte("misfit")) {
				var action struct {
					Index struct {
						ID string `json:"_id"`
					}
				}
				must(t, json.NewDecoder(bytes.NewReader(body)).Decode(&action))
				return 200, fmt.Sprintf(`{"items":[{"index":{"_id":%q,"status":400,"error":{"type":"mapper_parsing_exception","reason":"no date"}}}]}`, action.Index.ID)
			}
			return 0, ""
		}}
		var refused []string
		s := storeIn(x, Config{Refused: func(_ context.Context, d *consumer.Delivery) error { refused = append(refused, d.ID); return nil }})
		dead := func(id, body string) error {
			return s.Collect(t.Context(), &consumer.Delivery{ID: id, Body: []byte(body), History: xdeath.History{Queue: "q"}})
		}
		must(t, dead("large", "too large"))
		must(t, dead("misfit", "misfit"))
		must(t, dead("good", ""))
		if err := dead("held", "forbidden"); err == nil {
			t.Error("a letter that the user of the client may not write is gone")
		}
		if !slices.Equal(refused, []string{"large", "misfit"}) || len(x.docs) != 1 {
			t.Errorf("refused %q, %d stored", refused, len(x.docs))
		}
	})
}

// Pages are bounded in bytes, and what takes too long is read in halves: of large letters
// behind small ones the first page is too large, and no other.
func TestLargeLettersAreReadAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &index{}
		x.fill(t, 110, func(i int, m *producer.Message, _ *string) {
			if i >= 10 {
				m.Body = bytes.Repeat([]byte("x"), 256<<10)
			}
		})
		slow := &slowly{index: x, perSecond: 9 << 19}
		s := newStore(slow, Config{Timeout: 2 * time.Second}.withDefaults()) // 9 MiB within that
		letters, err := s.Find(t.Context(), Query{Limit: 1000})
		if len(letters) != 110 || err != nil || slow.late != 1 {
			t.Errorf("found %d, %v; %d answers came too late, want 1", len(letters), err, slow.late)
		}
		report, err := s.Replay(t.Context(), &publisher{}, Query{All: true}, store.ReplayOptions{})
		if report.Sent != 110 || err != nil || slow.late != 2 {
			t.Errorf("%+v, %v; %d answers came too late, want one more", report, err, slow.late-1)
		}
	})
}

// slowly answers at a rate.
type slowly struct {
	*index
	perSecond int
	late      int // answers that nobody waited for
}

func (s *slowly) Perform(r *http.Request) (*http.Response, error) {
	response, err := s.index.Perform(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	select {
	case <-time.After(time.Duration(len(body)) * time.Second / time.Duration(s.perSecond)):
		return response, nil
	case <-r.Context().Done():
		s.late++
		return nil, r.Context().Err()
	}
}

// Open refuses an index that was made without the template.
func TestOpenChecksTheMapping(t *testing.T) {
	dynamic := `{"rehop-letters":{"mappings":{"properties":{"message_id":{"type":"text","fields":{"keyword":{"type":"keyword"}}},"stored":{"type":"date"},"tie":{"type":"long"}}}}}`
	var good struct {
		Template struct{ Mappings json.RawMessage }
	}
	must(t, json.Unmarshal(template(Config{}.withDefaults()), &good))
	for rule, tt := range map[string]struct {
		status  int
		mapping string
		refused bool
	}{
		"made without the template": {200, dynamic, true},
		"made with it":              {200, `{"rehop-letters-000001":{"mappings":` + string(good.Template.Mappings) + `}}`, false},
		"not there":                 {404, `{"error":{"type":"index_not_found_exception"},"status":404}`, false},
		"the server is away":        {503, ``, true},
	} {
		n := &node{answer: func(a *asked) (int, string) {
			if strings.HasSuffix(a.path, "/_mapping") {
				return tt.status, tt.mapping
			}
			return 200, `{"acknowledged":true}`
		}}
		_, err := Open(t.Context(), n, Config{})
		if (err != nil) != tt.refused {
			t.Errorf("%s: %v", rule, err)
		}
		if rule == "made without the template" && (rehop.ClassOf(err) != rehop.ClassConfiguration || !strings.Contains(err.Error(), `rehop-letters.message_id is "text", want "keyword"`)) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// Each letter is sent once per Replay, whatever others delete and whatever comes back, with
// a later date or, by a clock that is behind, with one among those that are still to be sent.
func TestAReplaySendsEachLetterOnce(t *testing.T) {
	for _, behind := range []time.Duration{0, time.Hour - 75*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			x := &index{}
			x.fill(t, 100, nil)
			s, others := storeIn(x, Config{}), storeIn(x, Config{})
			others.now = func() time.Time { return time.Now().Add(-behind) }
			p := &publisher{}
			p.before = func() {
				for i := range 20 { // others delete some
					x.mu.Lock()
					delete(x.docs, letter.Identity(message(fmt.Sprintf("m-%03d", 99-i)), "orders"))
					x.mu.Unlock()
				}
				_ = others.Collect(context.Background(), &consumer.Delivery{ID: fmt.Sprint("new-", len(p.sent)), RoutingKey: "k", History: xdeath.History{Queue: "orders"}})
				for _, m := range p.sent { // all that was sent comes back
					_ = others.Collect(context.Background(), &consumer.Delivery{ID: m.ID, RoutingKey: "k", History: xdeath.History{Queue: "orders"}})
				}
			}
			_, err := s.Replay(t.Context(), p, Query{All: true}, store.ReplayOptions{})
			must(t, err)
			sent := map[string]int{}
			for _, m := range p.sent {
				if behind == 0 && strings.HasPrefix(m.ID, "new-") {
					t.Fatalf("%s was sent, which was stored after the Replay had begun", m.ID)
				}
				if sent[m.ID]++; sent[m.ID] > 1 {
					t.Fatalf("a clock %v behind: %s was sent %d times", behind, m.ID, sent[m.ID])
				}
			}
			if len(sent) < 80 {
				t.Errorf("a clock %v behind: %d letters were sent", behind, len(sent))
			}
		})
	}
}

// A document that cannot be read is reported, and the others are found and sent.
func TestADocumentThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &index{}
		x.fill(t, 20, nil)
		x.put("no letter", map[string]any{"level": "info"})
		x.put("no number", map[string]any{"stored": time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339), "attempts": "many", "tie": 3})
		x.put("no headers", map[string]any{"stored": time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339), "headers": "{", "tie": 4})
		s := storeIn(x, Config{})
		found, err := s.Find(t.Context(), Query{Limit: 50})
		faults := 0
		for _, l := range found {
			if l.Fault != nil {
				faults++
			}
		}
		if err != nil || len(found) < 22 || faults != len(found)-20 {
			t.Errorf("found %d, of which %d have a fault, %v", len(found), faults, err)
		}
		report, err := s.Replay(t.Context(), &publisher{}, Query{All: true}, store.ReplayOptions{})
		if err != nil || report.Sent != 20 || report.Failed < 2 {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// While the server has no room all letters wait for one pause, and one line says so.
func TestOnePauseForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		requests := 0
		began := time.Now()
		x := &index{busy: func(*http.Request, []byte) (int, string) {
			mu.Lock()
			defer mu.Unlock()
			if requests++; time.Since(began) < 20*time.Second {
				return 503, strings.Repeat("a page of a proxy ", 1000)
			}
			return 0, ""
		}}
		var log bytes.Buffer
		s := storeIn(x, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() { must(t, s.Put(t.Context(), message(fmt.Sprint(i)), producer.ErrReturned)) })
		}
		all.Wait()
		if took := time.Since(began); len(x.docs) != 1000 || requests > 60 || log.Len() > 5000 || took > 30*time.Second {
			t.Errorf("%d stored after %v, %d requests, a log of %d bytes", len(x.docs), took, requests, log.Len())
		}
		for id, d := range x.docs {
			if late := d.fields.Stored.Sub(began); late < 19*time.Second {
				t.Fatalf("letter %s was stored after 20 s, and says that it was after %v: behind the cursor of a reader", id, late)
			}
		}
	})
}

// A delete whose answer was lost is no change, unless the document is another one now.
func TestADeleteWhoseAnswerWasLost(t *testing.T) {
	for _, changed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			x := &index{}
			x.fill(t, 3, nil)
			lost := false
			x.busy = func(r *http.Request, body []byte) (int, string) {
				if strings.HasSuffix(r.URL.Path, "/_bulk") && !lost {
					lost = true
					x.mu.Lock()
					x.bulk(body)
					x.mu.Unlock()
					if changed {
						x.fill(t, 1, nil)
					}
					return 504, ""
				}
				return 0, ""
			}
			report, err := storeIn(x, Config{}).Replay(t.Context(), &publisher{}, Query{All: true}, store.ReplayOptions{})
			if want := map[bool]int{true: 1}[changed]; report.Sent != 3 || report.Changed != want || err != nil {
				t.Errorf("%+v, %v; want %d changed", report, err, want)
			}
		})
	}
}

// A refresh of which shards have failed is an error: letters that it does not show would
// be counted as sent.
func TestARefreshOfWhichShardsFailed(t *testing.T) {
	n := &node{answer: func(a *asked) (int, string) {
		if strings.HasSuffix(a.path, "/_refresh") {
			return 200, `{"_shards":{"total":2,"successful":1,"failed":1}}`
		}
		return 200, `{"hits":{"total":{"value":0},"hits":[]}}`
	}}
	if _, err := open(t, n, Config{}).Replay(t.Context(), &publisher{}, Query{All: true}, store.ReplayOptions{}); rehop.ClassOf(err) != rehop.ClassTransient {
		t.Errorf("%v", err)
	}
}

// A connection that was refused has carried nothing.
func TestARefusedConnectionStoresNothing(t *testing.T) {
	s := newStore(unreachable{}, Config{}.withDefaults())
	if err := s.Put(t.Context(), message("m"), producer.ErrReturned); err == nil || errors.Is(err, producer.ErrUnconfirmed) {
		t.Errorf("%v", err)
	}
}

type unreachable struct{}

func (unreachable) Perform(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

// A message with the user id of somebody else is sent alone, so that the broker's refusal
// cuts off no other.
func TestAForeignUserIDIsSentAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &index{}
		x.fill(t, 10, func(i int, m *producer.Message, _ *string) {
			if i == 4 {
				m.UserID = "somebody else"
			}
		})
		p := &batches{}
		report, err := storeIn(x, Config{}).Replay(t.Context(), p, Query{All: true}, store.ReplayOptions{})
		if err != nil || report.Sent != 10 || len(p.with) != 1 || p.with[0] != 1 {
			t.Errorf("%+v, %v; the message with a user id was sent together with %v", report, err, p.with)
		}
	})
}

// batches notes how many messages a message with a user id was sent with.
type batches struct {
	publisher
	with []int
}

func (b *batches) PublishAll(ctx context.Context, all []producer.Message) ([]producer.Receipt, error) {
	if slices.ContainsFunc(all, func(m producer.Message) bool { return m.UserID != "" }) {
		b.with = append(b.with, len(all))
	}
	return b.publisher.PublishAll(ctx, all)
}

// closing confirms the first messages, and is closed then.
type closing struct{ publisher }

func (c *closing) PublishAll(ctx context.Context, all []producer.Message) ([]producer.Receipt, error) {
	if len(c.sent) > 0 {
		return nil, errors.New("the Producer is closed")
	}
	return c.publisher.PublishAll(ctx, all)
}

func TestConfirmedLettersAreDeletedWhenThePublisherCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &index{}
		x.fill(t, 10, func(i int, m *producer.Message, _ *string) {
			if i < 5 {
				m.UserID = "guest" // these go first, on channels of their own
			}
		})
		p := &closing{}
		report, err := storeIn(x, Config{}).Replay(t.Context(), p, Query{All: true}, store.ReplayOptions{})
		if err == nil || !strings.Contains(err.Error(), "the Producer is closed") || report.Sent != 5 || report.Failed != 5 {
			t.Errorf("%+v, %v; want 5 sent", report, err)
		}
		if len(p.sent) != 5 || len(x.docs) != 5 {
			t.Errorf("%d letters were confirmed, and %d of 10 are left", len(p.sent), len(x.docs))
		}
	})
}

// Nothing is selected by nothing.
func TestNothingIsSelectedByNothing(t *testing.T) {
	x := &index{}
	s := storeIn(x, Config{})
	for rule, q := range map[string]Query{"nothing": {}, "a time": {Before: time.Now()}, "names that are empty": {Queue: "", Text: ""}} {
		if _, err := s.Replay(t.Context(), &publisher{}, q, store.ReplayOptions{}); rehop.ClassOf(err) != rehop.ClassBug {
			t.Errorf("%s: %v", rule, err)
		}
	}
	if clause, _ := json.Marshal(Query{MessageIDs: []string{}}.clause()); !bytes.Contains(clause, []byte(`"message_id":[]`)) {
		t.Errorf("a list of nothing asks for %s", clause)
	}
}
