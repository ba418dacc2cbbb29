package web

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/internal/webguard"
	"github.com/rehop/rehop/topology"
)

// Config is for [New]. Journal is required, and Conn or Sources.
type Config struct {
	Journal *desk.Journal

	// Conn is the connection to the broker whose queues are shown. With
	// connection.Config.ManagementURL the page finds all queues of dead letters;
	// without it, only those of Queues. Nil: only Sources are shown.
	Conn *connection.Conn

	// Queues are queues of dead letters that are shown although their names may not say
	// so.
	Queues []string

	// Sources are shown beside the queues: stores of collected letters.
	Sources []desk.Source

	// Specs are what services declare, such as topology.UnmarshalSpecs reads them. The page of a queue
	// of theirs shows a drawing of what is planned around it: exchanges with their keys, the work queue,
	// its waits and its dead letters. No specifications draw nothing.
	Specs []topology.Spec

	// ReadOnly refuses every change of a letter. A look is allowed.
	ReadOnly bool

	// Who names the person behind a request, for the audit: of each action, each look and
	// each letter that is shown. Defaults to [User], or "desk"
	// for a request without a login.
	Who func(*http.Request) string

	// PruneAfter is the age at which Run deletes redrives that have ended from the journal,
	// as Journal.Prune does, 1 hour or more; 0: never.
	PruneAfter time.Duration

	// Logger gets a record of everything that the page could not do. If nil, it is the
	// Logger of the Conn; without a Conn nothing is logged.
	Logger *slog.Logger
}

// Handler is the page. It is safe for concurrent use.
type Handler struct {
	cfg    Config
	broker broker
	pages  *pages
	mux    http.Handler

	sampled  sampled
	places   places
	redrives redrives
	messages messages
	plans    plans

	requests chan struct{} // a place for each page that is being made
	streams  chan struct{} // for each look and each download
	large    chan struct{} // and for each form with an edited body that is being read
}

const (
	// maxRequests bounds the pages that are made at a time, and so their memory.
	maxRequests = 16
	// maxStreams bounds the looks and downloads that go on at a time, each of which may wait.
	maxStreams = 100
	// askTimeout bounds each question to a source, but a look.
	askTimeout = 15 * time.Second
)

// openPages are the pages without an effect, which links on other sites lead to: that of a letter is
// in the audit, so such a link leads to it by a button. From formPages letters are changed.
var (
	openPages = map[string]bool{"/": true, "/groups": true, "/letters": true, "/letter": true, "/search": true, "/redrives": true, "/redrive": true, "/audit": true, "/plan": true}
	formPages = map[string]bool{"/send": true, "/edit": true, "/keep": true}
)

//go:embed static
var static embed.FS

// New returns a Handler. It starts nothing: see [Handler.Run].
func New(cfg Config) (*Handler, error) {
	var errs []error
	if cfg.Journal == nil {
		errs = append(errs, errors.New("web: Config.Journal is nil"))
	}
	if cfg.Conn == nil && len(cfg.Sources) == 0 {
		errs = append(errs, errors.New("web: Config has neither a Conn nor Sources"))
	}
	for i, s := range cfg.Sources {
		if s == nil {
			errs = append(errs, fmt.Errorf("web: Config.Sources[%d] is nil", i))
		}
	}
	if err := checkSpecs(cfg.Specs); err != nil {
		errs = append(errs, fmt.Errorf("web: Config.Specs: %w", err))
	}
	if cfg.PruneAfter != 0 && cfg.PruneAfter < pruneEvery {
		errs = append(errs, fmt.Errorf("web: Config.PruneAfter is %v, want %v or more, or 0 for never", cfg.PruneAfter, pruneEvery))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	if cfg.Who == nil {
		cfg.Who = func(r *http.Request) string { return cmp.Or(User(r), "desk") }
	}
	log, _ := transport.Inherited(cfg.Conn)
	cfg.Logger = cmp.Or(cfg.Logger, log, slog.New(slog.DiscardHandler))
	var b broker
	if cfg.Conn != nil {
		b = &realBroker{conn: cfg.Conn, journal: cfg.Journal}
	}
	return newHandler(cfg, b)
}

func newHandler(cfg Config, b broker) (*Handler, error) {
	p, err := readPages(cfg.named)
	if err != nil {
		return nil, err
	}
	h := &Handler{
		cfg: cfg, broker: b, pages: p,
		requests: make(chan struct{}, maxRequests), streams: make(chan struct{}, maxStreams), large: make(chan struct{}, maxLarge),
	}
	h.redrives.running = map[string]*running{}
	files, err := fs.Sub(static, "static")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /static/", cached(http.StripPrefix("/static/", http.FileServerFS(files))))
	for pattern, make := range map[string]func(*request) error{
		"GET /{$}": h.overview, "GET /groups": h.groups, "GET /letters": h.letters, "GET /letter": h.letter,
		"GET /search": h.search, "GET /redrives": h.listRedrives, "GET /redrive": h.redrive, "GET /audit": h.audit,
		"GET /send": h.askSend, "GET /edit": h.askEdit, "GET /keep": h.askKeep, "GET /body": h.body, "GET /events": h.events, "GET /drawing": h.draw, "GET /plan": h.plan,
		"POST /look": h.look, "POST /send": h.send, "POST /edit": h.edit, "POST /keep": h.keep,
		"POST /export": h.export, "POST /stop": h.stop, "POST /resume": h.resume,
	} {
		mux.HandleFunc(pattern, h.page(make))
	}
	mux.HandleFunc("/", h.page(func(*request) error { return errNoPage }))
	h.mux = headers(webguard.Sites(mux, func(r *http.Request) bool { return openPages[r.URL.Path] }))
	return h, nil
}

// Run watches the depths of the queues and carries out redrives, until ctx ends. Then it
// stops the redrives, which can be resumed, and returns nil when all have ended. Without it
// the page shows no depths and takes no redrives.
func (h *Handler) Run(ctx context.Context) error {
	end := h.begin(ctx)
	<-ctx.Done()
	end()
	return nil
}

// begin begins the work of Run. end is called after ctx has ended, and waits for the work.
func (h *Handler) begin(ctx context.Context) (end func()) {
	var all sync.WaitGroup
	h.redrives.begin(ctx, &all)
	all.Go(func() { h.sample(ctx) })
	if h.cfg.PruneAfter > 0 {
		all.Go(func() { h.prune(ctx) })
	}
	return func() {
		h.redrives.end()
		all.Wait()
	}
}

// ServeHTTP answers a request. The path of the page itself is "/".
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// headers sets what keeps a browser from doing what a letter tells it.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := w.Header().Set
		set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		set("X-Content-Type-Options", "nosniff")
		set("X-Frame-Options", "DENY")
		set("Referrer-Policy", "same-origin")
		set("Cross-Origin-Opener-Policy", "same-origin")
		set("Cross-Origin-Resource-Policy", "same-origin")
		set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// cached lets browsers keep files, whose names carry their version.
func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private, max-age=86400")
		next.ServeHTTP(w, r)
	})
}
