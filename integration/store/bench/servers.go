package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rehop/rehop/integration/store/database"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// onServers runs do with a store on a MariaDB and on a PostgreSQL of its own, which have
// 1 GiB for their caches.
func (b *bench) onServers(ctx context.Context, do func(store.Dialect, *database.Server, *sql.DB, *store.Store) error) error {
	for _, one := range []struct {
		dialect store.Dialect
		kind    database.Kind
		args    []string
	}{
		{store.MySQL, database.MariaDB, []string{"--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G"}},
		{store.PostgreSQL, database.PostgreSQL, []string{"-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB"}},
	} {
		if !strings.Contains(b.on, string(one.dialect)) {
			continue
		}
		if err := onServer(ctx, one.dialect, one.kind, one.args, do); err != nil {
			return err
		}
	}
	return nil
}

func onServer(ctx context.Context, dialect store.Dialect, kind database.Kind, args []string, do func(store.Dialect, *database.Server, *sql.DB, *store.Store) error) (err error) {
	server, err := database.Start(ctx, kind, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	driver, source, err := server.Create(ctx, "bench")
	if err != nil {
		return err
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxIdleConns(2 * callers)
	s, err := store.Open(ctx, db, dialect, store.Config{})
	if err != nil {
		return err
	}
	return do(dialect, server, db, s)
}

// servers measures Put and Forward on servers, and the processor time that the server
// takes for them, which the machine's other work changes little.
func (b *bench) servers(ctx context.Context) error {
	return b.onServers(ctx, func(dialect store.Dialect, server *database.Server, _ *sql.DB, s *store.Store) error {
		before := server.CPU()
		body := make([]byte, 256)
		const long = 5 * time.Second
		rate, err := together(long, func(c, i int) error {
			return s.Put(ctx, producer.Message{Exchange: "shop", RoutingKey: fmt.Sprint("order.", i%10), ID: fmt.Sprint(c, "-", i), Body: body}, errAway)
		})
		if err != nil {
			return err
		}
		n := rate * long.Seconds()
		row(fmt.Sprint(dialect, ": Put of 256 B, 64 goroutines"), "%.0f/s, %.0f µs of the server's CPU each", rate, float64((server.CPU()-before).Microseconds())/n)
		before = server.CPU()
		took, err := forward(ctx, s, taken{}, store.ForwardConfig{}, func() {})
		row(fmt.Sprint(dialect, ": Forward of the same, without a broker"), "%.0f/s, %.0f µs of the server's CPU each", n/took.Seconds(), float64((server.CPU()-before).Microseconds())/n)
		return err
	})
}
