package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store/sqlite"
)

const bodySize = 1024

var errAway = errors.New("the broker is away")

// appends is the limit of the disk for who waits for each message.
func (b *bench) appends(context.Context) error {
	f, err := os.Create(filepath.Join(b.dir, "append"))
	if err != nil {
		return err
	}
	defer f.Close()
	body := make([]byte, bodySize)
	n := 0
	began := time.Now()
	for ; time.Since(began) < 3*time.Second; n++ {
		if _, err := f.Write(body); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	row("append and fsync of 1 KiB, one writer", "%.0f/s", float64(n)/time.Since(began).Seconds())
	return nil
}

// inserts is the plain way: a transaction for each message.
func (b *bench) inserts(ctx context.Context) error {
	db, err := sqlite.Open(filepath.Join(b.dir, "plain.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // more would only wait for each other, and give up after 5 s
	if _, err := db.ExecContext(ctx, "CREATE TABLE messages (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, body BLOB)"); err != nil {
		return err
	}
	body := make([]byte, bodySize)
	rate, err := together(3*time.Second, func(c, i int) error {
		_, err := db.ExecContext(ctx, "INSERT INTO messages (id, body) VALUES (?, ?)", fmt.Sprint(c, "-", i), body)
		return err
	})
	row("INSERT in a transaction each, 64 goroutines", "%.0f/s", rate)
	return err
}

func (b *bench) puts(ctx context.Context) error {
	db, s, err := b.open(ctx, "puts.db")
	if err != nil {
		return err
	}
	defer db.Close()
	body := make([]byte, bodySize)
	var rate float64
	err = b.profiled("put", func() (err error) {
		rate, err = together(5*time.Second, func(c, i int) error {
			return s.Put(ctx, producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: fmt.Sprint(c, "-", i), Body: body}, errAway)
		})
		return err
	})
	if err != nil {
		return err
	}
	row("Put of 1 KiB, 64 goroutines", "%.0f/s", rate)

	var took latencies
	_, err = together(5*time.Second, func(c, i int) error {
		if i == 0 { // not all at the same moment
			<-time.After(time.Duration(c) * time.Millisecond)
		}
		began := time.Now()
		err := s.Put(ctx, producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: fmt.Sprint("paced ", c, "-", i), Body: body}, errAway)
		took.add(time.Since(began))
		<-time.After(callers*time.Millisecond - time.Since(began))
		return err
	})
	row("Put at 1,000/s, 64 goroutines: p50, p99, max", "%v", &took)
	return err
}
