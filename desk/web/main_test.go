package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fake is a source with letters in memory.
type fake struct {
	desk.Source // nil: a fake has all its methods that are exported

	name    string
	live    bool
	journal *desk.Journal

	mu       sync.Mutex
	letters  []desk.Letter
	looked   int
	total    int   // letters of the place, if a look does not see all
	refuse   error // what Execute returns
	err      error
	redrives []desk.Redrive
	kept     []string
	hold     chan struct{} // a redrive waits for it
	bytes    int           // of a look
	bound    string
	aside    []desk.Letter // letters in other states
	gone     int           // letters that redrives took since the look
	scanned  int           // letters that a page of a list is looked for among; 0: among all
	looking  func(context.Context)
}

func (f *fake) About() desk.About {
	a := desk.About{Name: f.name, Live: f.live, Keeper: !f.live}
	if f.live {
		a.Queue = strings.TrimPrefix(f.name, "queue ")
	}
	return a
}

func (f *fake) matching(filter desk.Filter) (found []desk.Letter, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if f.live && f.looked == 0 {
		return nil, desk.ErrNotLooked
	}
	for _, l := range f.letters {
		if filter.Matches(l) {
			found = append(found, l)
		}
	}
	return found, nil
}

func (f *fake) List(ctx context.Context, filter desk.Filter, p desk.Page) (desk.List, error) {
	if p.Look {
		if f.looking != nil {
			f.looking(ctx)
		}
		f.mu.Lock()
		f.looked++
		f.mu.Unlock()
	}
	found, err := f.matching(filter)
	list := desk.List{Matched: len(found), Seen: desk.Seen{At: time.Now(), Seen: len(found), Total: len(found), Bytes: f.bytes, Bound: f.bound, Gone: f.gone}}
	for _, l := range f.aside {
		if filter.Matches(l) {
			list.Aside = "1 archived"
		}
	}
	if f.total > 0 {
		list.Total, list.Bound = f.total, "the first letters"
	}
	for _, l := range found {
		switch {
		case l.Place <= p.After:
		case len(list.Letters) < p.Limit:
			list.Letters = append(list.Letters, l)
		case list.Next == 0 && p.Limit > 0:
			list.Next = list.Letters[p.Limit-1].Place
		}
	}
	if f.scanned > 0 && len(list.Letters) == 0 {
		list.Next = p.After + int64(f.scanned)
	}
	return list, err
}

func (f *fake) Groups(_ context.Context, filter desk.Filter) (desk.Groups, error) {
	found, err := f.matching(filter)
	g := desk.Groups{Seen: desk.Seen{At: time.Now(), Gone: f.gone, Bound: f.bound, Seen: len(found), Total: max(f.total, len(found))}}
	for _, l := range found {
		i := slices.IndexFunc(g.Groups, func(g desk.Group) bool { return g.Fingerprint == l.Fingerprint })
		if i < 0 {
			g.Groups = append(g.Groups, desk.Group{Fingerprint: l.Fingerprint, Example: l, First: l.Failed, Last: l.Failed})
			i = len(g.Groups) - 1
		}
		g.Groups[i].Count++
	}
	return g, err
}

func (f *fake) Targets(_ context.Context, filter desk.Filter) (t desk.Targets, err error) {
	found, err := f.matching(filter)
	for _, l := range found {
		to, known := l.Target()
		i := slices.IndexFunc(t.Targets, func(c desk.TargetCount) bool { return c.To == to })
		switch {
		case l.Doubt != "":
			t.Doubted++
		case !known:
			t.Unknown++
		case i < 0:
			t.Targets = append(t.Targets, desk.TargetCount{To: to, Count: 1})
		default:
			t.Targets[i].Count++
		}
	}
	return t, err
}

func (f *fake) Trend(context.Context, desk.Filter, time.Time, time.Time, int) ([]int, bool, error) {
	return []int{0, 3, 1}, false, nil
}

func (f *fake) Letter(_ context.Context, id string) (desk.Letter, error) {
	found, err := f.matching(desk.Filter{IDs: []string{id}})
	if err == nil && len(found) == 0 {
		err = desk.ErrNoLetter
	}
	if err != nil {
		return desk.Letter{}, err
	}
	return found[0], nil
}

func (f *fake) Execute(ctx context.Context, r desk.Redrive, tell func(desk.Progress)) (desk.Progress, error) {
	f.mu.Lock()
	f.redrives = append(f.redrives, r)
	f.mu.Unlock()
	if f.refuse != nil {
		return desk.Progress{}, f.refuse
	}
	p := desk.Progress{Redrive: r, State: desk.Running, Matched: 2, Began: time.Now(), Updated: time.Now()}
	tell(p)
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return p, desk.ErrRedriveStopped
		}
	}
	if r.Filter.IsZero() && !r.All {
		return desk.Progress{}, errors.New("desk: Redrive.Filter is empty")
	}
	return p, nil
}

func (f *fake) Resume(ctx context.Context, id string, by desk.By, tell func(desk.Progress)) (desk.Progress, error) {
	return f.Execute(ctx, desk.Redrive{ID: id, All: true, By: by}, tell)
}

func (f *fake) Export(_ context.Context, filter desk.Filter, _ int, w io.Writer, by desk.By) (int, error) {
	found, err := f.matching(filter)
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, "export by "+by.Who)
	for _, l := range found {
		fmt.Fprintf(w, "{%q:1}\n", l.ID)
	}
	return len(found), err
}

func (f *fake) Journal() *desk.Journal { return f.journal }

func (f *fake) keep(action string, filter desk.Filter) (int, error) {
	found, err := f.matching(filter)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, fmt.Sprintf("%s %s", action, filter))
	return len(found), err
}

func (f *fake) Park(_ context.Context, filter desk.Filter, _ desk.By) (int, error) {
	return f.keep("park", filter)
}

func (f *fake) Archive(_ context.Context, filter desk.Filter, _ desk.By) (int, error) {
	return f.keep("archive", filter)
}

func (f *fake) Release(_ context.Context, filter desk.Filter, _ desk.By) (int, error) {
	return f.keep("release", filter)
}

func (f *fake) Edit(_ context.Context, id string, e desk.Edit, _ desk.By) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, fmt.Sprintf("edit %s %q %v %v", id, *e.Body, e.Set, e.Remove))
	return nil
}

func (f *fake) Collect(context.Context, []string, desk.By, func(int)) (int, error) { return 0, nil }

// live is a fake without the methods of a keeper.
type live struct{ desk.Source }

// fakeBroker has one queue of dead letters.
type fakeBroker struct {
	source desk.Source
	mu     sync.Mutex
	queues []desk.Queue
	err    error
	silent error // of the management API
	block  *connection.BlockedError
	each   map[string]*fake // instead of source
	opens  int

	release string // its version; empty: 4.3.6
}

func (b *fakeBroker) list(context.Context) ([]desk.Queue, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := slices.Clone(b.queues)
	for i := range now {
		now[i].At = time.Now()
	}
	return now, errors.Join(b.err, b.silent)
}

func (b *fakeBroker) byName(_ context.Context, name string) (desk.Queue, error) {
	return desk.Queue{Name: name, Ready: 7}, nil
}

func (b *fakeBroker) open(queue string) (desk.Source, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opens++
	if b.each != nil {
		if b.each[queue] == nil {
			b.each[queue] = &fake{name: "queue " + queue, live: true}
		}
		return live{b.each[queue]}, nil
	}
	return b.source, nil
}

func (b *fakeBroker) health() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(b.err, desk.ErrNoManagement) {
		return nil
	}
	return b.err
}

func (b *fakeBroker) alarm() *connection.BlockedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.block
}

func (b *fakeBroker) answers(context.Context, time.Duration) error { return b.health() }

func (b *fakeBroker) version() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return cmp.Or(b.release, "4.3.6")
}

// room is a desk with a queue orders.dlq and a store.
type room struct {
	*testing.T
	h      *Handler
	folder string // of the journal
	settle func() // waits for what a request leaves behind, where that can be known
	queue  *fake
	store  *fake
	broker *fakeBroker
}

func letter(i int) desk.Letter {
	return desk.Letter{
		ID: fmt.Sprint("id", i), Place: int64(i), Queue: "orders", Exchange: "shop", RoutingKey: "order.paid", Cause: rehop.CauseExhausted,
		Error: "no stock", Fingerprint: "f1", Attempts: 5, Failed: time.Now().Add(-time.Hour),
		Publishing: amqp.Publishing{MessageId: fmt.Sprint("m-", i), ContentType: "application/json", Body: []byte(`{"order":1}`)},
	}
}

// enter returns a room in a bubble, whose depths are known.
func enter(t *testing.T, change func(*Config)) *room {
	t.Helper()
	r := newRoom(t, change)
	r.settle = synctest.Wait
	r.settle()
	return r
}

func newRoom(t *testing.T, change func(*Config)) *room {
	t.Helper()
	folder := t.TempDir()
	journal, err := desk.OpenJournal(folder)
	must(t, err)
	r := &room{T: t, settle: func() {}, folder: folder, queue: &fake{name: "queue orders.dlq", live: true, journal: journal}, store: &fake{name: "store letters.db", journal: journal}}
	for i := range 3 {
		r.queue.letters = append(r.queue.letters, letter(i+1))
		r.store.letters = append(r.store.letters, letter(i+1))
	}
	r.broker = &fakeBroker{source: live{r.queue}, queues: []desk.Queue{{Name: "orders.dlq", Ready: 3, IsDeadLetters: true}, {Name: "orders", DeadLetters: "orders.dlq", Letters: 3}}}
	cfg := Config{Journal: journal, Sources: []desk.Source{r.store}, Who: func(*http.Request) string { return "ada" }}
	if change != nil {
		change(&cfg)
	}
	cfg.Logger = quiet
	r.h, err = newHandler(cfg, r.broker)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	end := r.h.begin(ctx)
	t.Cleanup(func() { stop(); end() })
	return r
}

// write writes a file of the journal.
func (r *room) write(name, text string) {
	r.Helper()
	name = filepath.Join(r.folder, name)
	must(r.T, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)))
}

// ask sends a request and returns the answer. In a bubble what the request has left behind has ended by then, so that
// a test may change the fakes.
func (r *room) ask(req *http.Request) *httptest.ResponseRecorder {
	r.Helper()
	w := httptest.NewRecorder()
	r.h.ServeHTTP(w, req)
	r.settle()
	return w
}

func (r *room) get(path string) *httptest.ResponseRecorder {
	r.Helper()
	return r.ask(httptest.NewRequest(http.MethodGet, path, nil))
}

func (r *room) post(path string, form url.Values) *httptest.ResponseRecorder {
	r.Helper()
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r.ask(req)
}

// has checks status and texts of an answer.
func (r *room) has(w *httptest.ResponseRecorder, status int, texts ...string) {
	r.Helper()
	if w.Code != status {
		r.Errorf("status is %d, want %d: %.600s", w.Code, status, w.Body)
	}
	for _, text := range texts {
		if !strings.Contains(w.Body.String(), text) {
			r.Errorf("the page does not have %q", text)
		}
	}
}
