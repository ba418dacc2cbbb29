package store_test

import (
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/integration/store/database"
	"github.com/rehop/rehop/integration/tempdir"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

// servers are started when first asked for.
var servers = map[database.Kind]func() (*database.Server, error){
	database.MariaDB:    sync.OnceValues(func() (*database.Server, error) { return start(database.MariaDB) }),
	database.PostgreSQL: sync.OnceValues(func() (*database.Server, error) { return start(database.PostgreSQL) }),
}

// kinds are the servers that the dialects are tested on.
var kinds = map[store.Dialect]database.Kind{store.MySQL: database.MariaDB, store.PostgreSQL: database.PostgreSQL}

var started []*database.Server
var startedMu sync.Mutex

func start(kind database.Kind) (*database.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, err := database.Start(ctx, kind)
	if err == nil {
		startedMu.Lock()
		started = append(started, s)
		startedMu.Unlock()
	}
	return s, err
}

func TestMain(m *testing.M) {
	child.Main(work)
	flag.Parse()
	tempdir.InMemory()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	if _, err := chosen(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	code := m.Run()
	for _, s := range started {
		if err := s.Close(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	closeBrokers()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// place is an empty database.
type place struct {
	dialect        store.Dialect
	driver, source string // source is the path of SQLite's file
}

func (p place) connect() (*sql.DB, error) {
	if p.dialect == store.SQLite {
		return sqlite.Open(p.source)
	}
	db, err := sql.Open(p.driver, p.source)
	if err == nil {
		db.SetMaxIdleConns(10)
	}
	return db, err
}

// open opens the database; twice makes two handles, as two processes have.
func (p place) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := p.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func (p place) store(t testing.TB, cfg store.Config) *store.Store {
	t.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute) // on a busy machine a transaction takes seconds
	s, err := store.Open(t.Context(), p.open(t), p.dialect, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// databases are the names that STORE_DATABASES takes, in the order of the tests.
var databases = []struct {
	name    string
	dialect store.Dialect
}{
	{"sqlite", store.SQLite},
	{"mariadb", store.MySQL},
	{"postgresql", store.PostgreSQL},
}

// chosen returns the dialects of the databases that STORE_DATABASES names, and all
// without it.
func chosen() (dialects []store.Dialect, err error) {
	list := os.Getenv("STORE_DATABASES")
	var all, unknown []string
	for _, d := range databases {
		all = append(all, d.name)
	}
	named := all
	if list != "" {
		named = strings.Split(list, ",")
	}
	for _, name := range named {
		if i := slices.Index(all, name); i >= 0 {
			dialects = append(dialects, databases[i].dialect)
		} else {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("STORE_DATABASES is %q, and %q is not among %s", list, unknown, strings.Join(all, ", "))
	}
	return dialects, nil
}

// each returns the dialects of this run. Tests ask it themselves: go test remembers a
// result together with the variables that its tests have read, and does not watch TestMain.
func each(t testing.TB) []store.Dialect {
	t.Helper()
	dialects, err := chosen()
	if err != nil {
		t.Fatal(err)
	}
	return dialects
}

// eachServer returns those of each that are servers. A test of servers alone has no row
// where a run is on SQLite alone.
func eachServer(t testing.TB) []store.Dialect {
	t.Helper()
	return slices.DeleteFunc(each(t), func(d store.Dialect) bool { return d == store.SQLite })
}

var created atomic.Int64

func newPlace(t testing.TB, dialect store.Dialect) place {
	t.Helper()
	if dialect == store.SQLite {
		return place{dialect: dialect, source: filepath.Join(t.TempDir(), "letters.db")}
	}
	server, err := servers[kinds[dialect]]()
	if err != nil {
		t.Fatal(err)
	}
	driver, source, err := server.Create(t.Context(), fmt.Sprintf("t%d", created.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	return place{dialect, driver, source}
}

// onEach runs a test on an empty database of each chosen dialect, beside other tests: most
// of them wait most of their time.
func onEach(t *testing.T, test func(t *testing.T, p place)) {
	t.Parallel()
	for _, dialect := range each(t) {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, dialect))
		})
	}
}

// onOnly runs a test that is about one dialect, if it is chosen.
func onOnly(t *testing.T, dialect store.Dialect, test func(t *testing.T, p place)) {
	t.Parallel()
	if !slices.Contains(each(t), dialect) {
		t.Logf("STORE_DATABASES does not name the database of %v", dialect)
		return
	}
	test(t, newPlace(t, dialect))
}
