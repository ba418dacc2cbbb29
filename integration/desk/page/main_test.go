// Package page_test opens the page of the desk in a real Chromium, over real brokers.
package page_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/web"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

var screenshots = flag.String("screenshots", "", "folder that screenshots are written to, docs/desk of the tree")

// chromium is the browser of all tests.
var chromium context.Context

// shared is the broker of the tests that do not break it.
var shared *broker.Broker

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	var endBrowser context.CancelFunc
	chromium, endBrowser = chromedp.NewContext(allocator)
	defer endBrowser()
	if _, err := chromedp.Run(chromium, chromedp.Navigate("about:blank")); err != nil {
		log.Printf("chromium: %v", err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	if shared, err = broker.Start(ctx, broker.Options{Version: os.Getenv("RABBITMQ_VERSIONS"), Name: "rehop-page"}); err != nil {
		log.Printf("broker: %v", err)
		return 1
	}
	defer shared.Close(context.Background())
	return m.Run()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is a desk over a broker.
type site struct {
	*testing.T
	broker  *broker.Broker
	conn    *connection.Conn
	journal *desk.Journal
	letters *store.Store // nil: none
	url     string
	handler *web.Handler
}

type siteConfig struct {
	broker    *broker.Broker
	collected bool
	readOnly  bool
	queues    []string
	specs     []topology.Spec
	lazy      bool
	access    web.Access
	around    func(http.Handler) http.Handler // what the server serves; nil: the desk as it is
}

func open(t *testing.T, cfg siteConfig) *site {
	t.Helper()
	s := &site{T: t, broker: cfg.broker}
	if s.broker == nil {
		s.broker = shared
	}
	connect := connection.Config{URLs: []string{s.broker.AMQPURL()}, ManagementURL: s.broker.ManagementURL(), Lazy: cfg.lazy}
	var err error
	s.conn, err = connection.Open(t.Context(), connect)
	must(t, err)
	t.Cleanup(func() { s.conn.Close() })
	s.journal, err = desk.OpenJournal(filepath.Join(t.TempDir(), "journal"))
	must(t, err)
	var sources []desk.Source
	if cfg.collected {
		db, err := sqlite.Open(filepath.Join(t.TempDir(), "letters.db"))
		must(t, err)
		t.Cleanup(func() { must(t, db.Close()) })
		s.letters, err = store.Open(t.Context(), db, store.SQLite, store.Config{})
		must(t, err)
		c, err := desk.NewCollected(s.letters, s.conn, desk.CollectedConfig{Journal: s.journal, Name: "store letters.db"})
		must(t, err)
		sources = append(sources, c)
	}
	s.handler, err = web.New(web.Config{
		Journal: s.journal, Conn: s.conn, Sources: sources, ReadOnly: cfg.readOnly, Queues: cfg.queues, Specs: cfg.specs,
		Who: func(r *http.Request) string { return cmp.Or(web.User(r), "ada") }, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(t, err)
	guarded, err := web.Guard(s.handler, cfg.access)
	must(t, err)
	if cfg.around != nil {
		guarded = cfg.around(guarded)
	}
	server := httptest.NewServer(guarded)
	s.url = server.URL + "/"
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.handler.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
		server.Close()
	})
	return s
}

// collect takes all letters of a queue into the store.
func (s *site) collect(queue string, n int) {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	defer stop()
	c, err := consumer.New(s.conn, topology.DeadLetterQueue{Name: queue}, s.letters.Collect, consumer.Config{Concurrency: 16})
	must(s.T, err)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	poll.Until(s.T, patience, "all letters are collected", func() bool {
		have, err := s.letters.Count(ctx, store.Query{})
		return err == nil && have >= n
	})
	stop()
	must(s.T, <-ended)
}

// tab is a browser with the desk open.
type tab struct {
	*testing.T
	ctx context.Context
	url string
}

func (s *site) browser() *tab {
	s.Helper()
	return s.tab(chromedp.NewContext(chromium, chromedp.WithNewBrowserContext()))
}

// tab opens a tab. Its first action runs in its own context, whose end is the tab's.
func (s *site) tab(ctx context.Context, end context.CancelFunc) *tab {
	s.Helper()
	s.Cleanup(end)
	b := &tab{s.T, ctx, s.url}
	_, err := chromedp.Run(ctx, chromedp.EmulateViewport(1280, 860))
	must(s.T, err)
	b.to("./")
	return b
}

const patience = time.Minute

// do runs an action, with an end.
func do[T any](b *tab, a chromedp.Action[T]) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		where, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.pathname + location.search + "\n" + document.body.innerText.slice(0, 1500)`))
		b.Fatalf("%v, at %s", err, where)
	}
	return v
}

// to opens a page of the desk.
func (b *tab) to(page string) {
	b.Helper()
	do(b, chromedp.Navigate(b.url+strings.TrimPrefix(page, "./")))
}

// js evaluates an expression, and waits for its value if that is a promise.
func js[T any](b *tab, expression string) T {
	b.Helper()
	return do(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// wait waits until an expression is true.
func (b *tab) wait(expression string) {
	b.Helper()
	poll.Until(b.T, patience, expression, func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		return err == nil && yes // an error: the page was just left
	})
}

// says waits until the page has a text.
func (b *tab) says(text string) {
	b.Helper()
	quoted, err := json.Marshal(strings.ToLower(text))
	must(b.T, err)
	b.wait(fmt.Sprintf(`document.body && document.body.innerText.toLowerCase().includes(%s)`, quoted))
}

// counts waits until the overview counts letters in a queue, and returns the text of its row.
func (b *tab) counts(queue, letters string) string {
	b.Helper()
	row := fmt.Sprintf(`[...document.querySelectorAll(".places tbody tr")].find(e => e.dataset.row === %q)`, queue)
	b.wait(fmt.Sprintf(`%s.querySelector(".letters").innerText === %q`, row, letters))
	return js[string](b, row+`.innerText`)
}

// click clicks the first button or link with a text, and waits for the next page.
func (b *tab) click(text string) {
	b.Helper()
	quoted, err := json.Marshal(text)
	must(b.T, err)
	b.wait(fmt.Sprintf(`[...document.querySelectorAll("main a, main button, main summary")].some(e => e.innerText.trim().startsWith(%s))`, quoted))
	b.leave(fmt.Sprintf(`[...document.querySelectorAll("main a, main button, main summary")].find(e => e.innerText.trim().startsWith(%s)).click()`, quoted))
}

// leave evaluates an expression that goes to another page, and waits for that.
func (b *tab) leave(expression string) {
	b.Helper()
	do(b, chromedp.Evaluate[chromedp.Void](`window.leaving = true; `+expression))
	b.wait(`!window.leaving && document.readyState === "complete"`)
}

// fill sets a field of a form.
func (b *tab) fill(name, value string) {
	b.Helper()
	quoted, err := json.Marshal(value)
	must(b.T, err)
	js[chromedp.Void](b, fmt.Sprintf(`document.querySelector("main [name=%s]").value = %s; undefined`, name, quoted))
}

// fillSearch searches from the top of the page.
func (b *tab) fillSearch(text string) {
	b.Helper()
	quoted, err := json.Marshal(text)
	must(b.T, err)
	b.leave(fmt.Sprintf(`document.querySelector(".find input").value = %s; document.querySelector(".find").submit()`, quoted))
}

// at waits until a page has come.
func (b *tab) at(path string) {
	b.Helper()
	b.wait(fmt.Sprintf(`location.pathname.endsWith(%q) && document.readyState === "complete"`, path))
}
