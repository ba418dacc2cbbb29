// Command bench measures the store on SQLite: how fast messages are stored
// beside what the disk and the database can do at best, forwarded beside plain
// publishing, and found, whether memory stays flat over many letters, and what
// callers notice of an outage.
//
//	go run ./integration/store/bench [-only put,forward] [-rows 1000000] [-outage 30s]
//
// It starts a broker of its own, unless AMQP_URL names one, which is never
// stopped: there is no outage then. It prints a Markdown table.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

// bench is one run.
type bench struct {
	dir     string
	rows    int
	outage  time.Duration
	profile string
	on      string         // dialects
	broker  *broker.Broker // once one is needed
}

// measures in the order in which they run.
var measures = []struct {
	name string
	do   func(*bench, context.Context) error
}{
	{"disk", (*bench).appends},
	{"insert", (*bench).inserts},
	{"put", (*bench).puts},
	{"rate", (*bench).paced},
	{"own", (*bench).own},
	{"forward", (*bench).forwarding},
	{"once", (*bench).once},
	{"batch", (*bench).batches},
	{"flat", (*bench).flat},
	{"large", (*bench).large},
	{"desk", (*bench).desk},
	{"servers", (*bench).servers},
	{"indices", (*bench).indices},
	{"open", (*bench).openTransaction},
	{"orders", (*bench).orders},
	{"outage", (*bench).away},
}

func main() {
	var b bench
	flag.IntVar(&b.rows, "rows", 1_000_000, "letters of the measure large, and messages of flat")
	flag.DurationVar(&b.outage, "outage", 30*time.Second, "how long the broker is away")
	flag.StringVar(&b.profile, "cpuprofile", "", "folder for CPU profiles of Put and Forward")
	dir := flag.String("dir", "/var/tmp", "folder on the disk to measure")
	var names []string
	for _, m := range measures {
		names = append(names, m.name)
	}
	flag.StringVar(&b.on, "on", "SQLite,MySQL,PostgreSQL", "databases of the measures that know several")
	only := flag.String("only", strings.Join(names, ","), "what to measure")
	flag.Parse()
	if err := b.run(*dir, strings.Split(*only, ",")); err != nil {
		log.Fatal(err)
	}
}

func (b *bench) run(parent string, only []string) (err error) {
	ctx := context.Background()
	if b.dir, err = os.MkdirTemp(parent, "rehop-store-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	defer func() {
		if b.broker != nil {
			err = errors.Join(err, b.broker.Close(ctx))
		}
	}()
	fmt.Println("| What | Figure |\n|---|---|")
	for _, m := range measures {
		if slices.Contains(only, m.name) {
			if err := m.do(b, ctx); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
	}
	return nil
}

func row(what, format string, args ...any) {
	fmt.Printf("| %s | %s |\n", what, fmt.Sprintf(format, args...))
}

// open opens a new store.
func (b *bench) open(ctx context.Context, name string) (*sql.DB, *store.Store, error) {
	db, err := sqlite.Open(filepath.Join(b.dir, name))
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(ctx, db, store.SQLite, store.Config{})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, s, nil
}

// connect connects to the broker, which it starts if there is none yet.
func (b *bench) connect(ctx context.Context) (*connection.Conn, error) {
	if b.broker == nil {
		started, err := broker.Start(ctx, broker.Options{Name: "rehop-store-bench"})
		if err != nil {
			return nil, err
		}
		b.broker = started
	}
	return connection.Open(ctx, connection.Config{URLs: []string{b.broker.AMQPURL()}})
}

// profiled runs do, and writes its profile if one is wanted.
func (b *bench) profiled(name string, do func() error) (err error) {
	if b.profile == "" {
		return do()
	}
	f, err := os.Create(filepath.Join(b.profile, name+".cpu"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return do()
}

// callers is how many goroutines publish or store at a time.
const callers = 64

// together runs do from all callers for a time and returns the calls per second.
func together(long time.Duration, do func(caller, i int) error) (rate float64, err error) {
	var all sync.WaitGroup
	var calls atomic.Int64
	errs := make(chan error, callers)
	began := time.Now()
	for c := range callers {
		all.Go(func() {
			for i := 0; time.Since(began) < long; i++ {
				if err := do(c, i); err != nil {
					errs <- err
					return
				}
				calls.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	select {
	case err = <-errs:
	default:
	}
	return float64(calls.Load()) / took.Seconds(), err
}

// latencies are how long calls took.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) add(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, took)
}

func (l *latencies) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return "none"
	}
	slices.Sort(l.all)
	at := func(of int) time.Duration { return l.all[len(l.all)*of/1000].Round(10 * time.Microsecond) }
	return fmt.Sprintf("%v, %v, %v of %d", at(500), at(990), l.all[len(l.all)-1].Round(10*time.Microsecond), len(l.all))
}
