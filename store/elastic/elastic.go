package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/hooks"
	"github.com/rehop/rehop/internal/transport"
)

// Config of a Store. Its zero value is usable.
type Config struct {
	// Index that letters are written to, or an alias with a write index. Up to
	// 200 lower-case letters, digits, underscores, hyphens and dots, the first of
	// them a letter or digit. Defaults to "rehop-letters".
	Index string

	// Name of the Store as a [producer.Sink], as it appears in a Receipt.
	// Defaults to "elastic".
	Name string

	// Policy is the name of the ILM policy of new indices. If empty, they have
	// none.
	Policy string

	// Analyzer of errors, headers and bodies. Defaults to "standard".
	Analyzer string

	// NoTemplate leaves the index template to somebody else, see [Template].
	NoTemplate bool

	// WaitForRefresh makes Put return only when the letter can be found. If false, Put
	// returns earlier, and the letter can be found after the next refresh of the
	// index, by default within a second.
	WaitForRefresh bool

	// BatchLetters and BatchBytes bound one bulk request. A letter that is
	// larger than BatchBytes has a request of its own. They default to 500 and
	// 5 MiB.
	BatchLetters int
	BatchBytes   int

	// Requests is how many bulk requests are in flight at a time, and Bytes the size of
	// the letters that are in them or wait for them. Put waits until there is room.
	// They default to 2 and 64 MiB.
	Requests int
	Bytes    int

	// Timeout bounds each request. Defaults to 10 s.
	Timeout time.Duration

	// Refused gets the dead letters of Collect that Elasticsearch refuses by
	// themselves: letters that are too large, or do not fit the mapping. If it returns
	// nil, the letter is safe elsewhere and leaves its queue; store.Store.Collect of a
	// SQL database is such a handler. If nil, such letters are held.
	Refused consumer.Handler

	// Conn gives the Store the Logger of the service, where Logger is nil. The Store uses
	// the Conn for nothing else.
	Conn *connection.Conn

	// Logger gets a record of requests that are tried again. If nil, it is the Logger of
	// Conn; without a Conn nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Index = cmp.Or(c.Index, "rehop-letters")
	c.Name = cmp.Or(c.Name, "elastic")
	c.Analyzer = cmp.Or(c.Analyzer, "standard")
	c.BatchLetters = cmp.Or(c.BatchLetters, 500)
	c.BatchBytes = cmp.Or(c.BatchBytes, 5<<20)
	c.Requests = cmp.Or(c.Requests, 2)
	c.Bytes = cmp.Or(c.Bytes, 64<<20)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	log, _ := transport.Inherited(c.Conn)
	c.Logger = hooks.Logger(cmp.Or(c.Logger, log))
	return c
}

var indexName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,199}$`)

func (c Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("elastic: Config."+format, args...))
		}
	}
	check(indexName.MatchString(c.Index), "Index is %q, want up to 200 lower-case letters, digits, underscores, hyphens and dots that begin with a letter or digit", c.Index)
	check(c.BatchLetters > 0, "BatchLetters is %d, want more than 0", c.BatchLetters)
	check(c.BatchBytes > 0, "BatchBytes is %d, want more than 0", c.BatchBytes)
	check(c.Requests > 0, "Requests is %d, want more than 0", c.Requests)
	check(c.Bytes > 0, "Bytes is %d, want more than 0", c.Bytes)
	check(c.Timeout > 0, "Timeout is %v, want more than 0", c.Timeout)
	return errors.Join(errs...)
}

// Store keeps letters in an index. It is safe for concurrent use, also by several
// processes. It runs up to Config.Requests goroutines while something is written,
// and needs no closing. The client belongs to the caller.
type Store struct {
	client esapi.Transport
	cfg    Config
	bulk   *bulk
	now    func() time.Time
}

// Open returns a Store that uses client, an *elasticsearch.Client or an
// *elasticsearch.TypedClient. It writes the index template, unless Config.NoTemplate is
// set, and checks the mapping of the index if that is there: letters cannot be found in
// an index that was made without the template. So Open fails if Elasticsearch is away
// or refuses the client. ctx bounds the opening.
func Open(ctx context.Context, client esapi.Transport, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	if client == nil {
		errs = append(errs, errors.New("elastic: client is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	s := newStore(client, cfg)
	if !cfg.NoTemplate {
		if err := s.writeTemplate(ctx); err != nil {
			return nil, fmt.Errorf("elastic: writing the index template: %w", err)
		}
	}
	if err := s.checkMapping(ctx); err != nil {
		return nil, fmt.Errorf("elastic: %w", err)
	}
	return s, nil
}

func newStore(client esapi.Transport, cfg Config) *Store {
	s := &Store{client: client, cfg: cfg, now: time.Now}
	s.bulk = newBulk(cfg, s.send)
	return s
}

// Name returns Config.Name.
func (s *Store) Name() string { return s.cfg.Name }
