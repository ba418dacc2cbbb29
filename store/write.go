package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/producer"
)

// writer commits together what several callers write at a time: a database
// waits for its disk once for each commit, whatever is in it. It runs a
// goroutine while there is something to write.
type writer struct {
	transact func(context.Context, func(context.Context, querier) error) error
	insert   func(context.Context, querier, []*row) error
	rows     int // in one insert, at most
	timeout  time.Duration

	mu      sync.Mutex
	waiting []*write
	running bool
}

// write is what one caller wants written: a row, or what run does.
type write struct {
	ctx  context.Context
	row  *row
	run  func(context.Context, querier) error
	done chan error // has room for the one answer
}

// What goes into one transaction.
const (
	maxTogether      = 512
	maxTogetherBytes = 4 << 20
)

// put returns nil once the row is committed. When ctx ends before, the row may
// be committed yet.
func (w *writer) put(ctx context.Context, r *row) error {
	return w.wait(ctx, &write{ctx: ctx, row: r, done: make(chan error, 1)})
}

// do returns nil once what run has done is committed. It may run more than
// once, of which one is committed.
func (w *writer) do(ctx context.Context, run func(context.Context, querier) error) error {
	return w.wait(ctx, &write{ctx: ctx, run: run, done: make(chan error, 1)})
}

func (w *writer) wait(ctx context.Context, one *write) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.mu.Lock()
	w.waiting = append(w.waiting, one)
	if !w.running {
		w.running = true
		go w.work()
	}
	w.mu.Unlock()
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// work commits until nothing waits.
func (w *writer) work() {
	for {
		batch := w.next()
		if batch == nil {
			return
		}
		w.commit(batch)
	}
}

// next takes what goes into the next transaction, in the order of its coming.
func (w *writer) next() []*write {
	w.mu.Lock()
	defer w.mu.Unlock()
	var batch []*write
	bytes, taken := 0, 0
	for _, one := range w.waiting {
		if len(batch) == maxTogether || len(batch) > 0 && bytes+one.size() > maxTogetherBytes {
			break
		}
		taken++
		if one.ctx.Err() != nil {
			one.done <- context.Cause(one.ctx) // its caller has left: it is not stored behind their back
			continue
		}
		batch = append(batch, one)
		bytes += one.size()
	}
	clear(w.waiting[:taken])
	if w.waiting = w.waiting[taken:]; len(w.waiting) == 0 {
		w.waiting = nil
	}
	w.running = len(batch) > 0
	return batch
}

func (one *write) size() int {
	if one.row == nil {
		return 0
	}
	return one.row.size
}

// commit writes a batch. None in it waits longer than the timeout for the
// transactions of all.
func (w *writer) commit(batch []*write) {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	w.together(ctx, batch)
}

// together writes a batch in one transaction; if that fails, in several, because
// something in it may be what the database does not take.
func (w *writer) together(ctx context.Context, batch []*write) {
	err := w.transact(ctx, func(ctx context.Context, q querier) error { return w.run(ctx, q, batch) })
	for tries := 1; tries < 3 && isDeadlock(err) && ctx.Err() == nil; tries++ {
		err = w.transact(ctx, func(ctx context.Context, q querier) error { return w.run(ctx, q, batch) })
	}
	switch {
	case errors.Is(err, producer.ErrUnconfirmed):
		w.commitAgain(ctx, batch, err)
		return
	case err != nil && len(batch) > 1 && ctx.Err() == nil:
		for _, part := range parts(batch) {
			w.together(ctx, part)
		}
		return
	case err != nil && len(batch) > 1:
		err = fmt.Errorf("%w (transaction of %d writes)", err, len(batch))
	}
	for _, one := range batch {
		one.done <- err
	}
}

// isDeadlock reports whether a database has ended a transaction for the sake of
// another, and it may be tried again. MySQL and PostgreSQL say so in these words; their
// drivers' types are not known here.
func isDeadlock(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "deadlock")
}

// parts divides a batch that has failed. Rows stay together, and are halved if they
// fail by themselves: they are seldom at fault, and a transaction for each would
// take the time that all of them have. Other writes fail for reasons of their
// callers.
func parts(batch []*write) [][]*write {
	var rows []*write
	var all [][]*write
	for i, one := range batch {
		if one.row == nil {
			all = append(all, batch[i:i+1])
		} else {
			rows = append(rows, one)
		}
	}
	switch half := len(rows) / 2; {
	case len(rows) == len(batch):
		return [][]*write{rows[:half], rows[half:]}
	case len(rows) > 0:
		return append([][]*write{rows}, all...)
	}
	return all
}

// commitAgain writes a batch once more whose first commit, of which err tells, may
// have happened. Rows may be written over, and are marked, because their messages
// may have been published meanwhile. What else was written may not be done twice.
func (w *writer) commitAgain(ctx context.Context, batch []*write, err error) {
	var rows []*write
	for _, one := range batch {
		if one.row == nil {
			one.done <- err
			continue
		}
		marked := *one.row
		marked.l.Unconfirmed++
		one.row = &marked
		rows = append(rows, one)
	}
	if len(rows) == 0 {
		return
	}
	again := w.transact(ctx, func(ctx context.Context, q querier) error { return w.run(ctx, q, rows) })
	if again != nil {
		again = errors.Join(err, again) // the first one may have happened, whatever the second says
	}
	for _, one := range rows {
		one.done <- again
	}
}

// run writes a batch within a transaction. Neighbouring rows share an insert,
// unless they are the same.
func (w *writer) run(ctx context.Context, q querier, batch []*write) error {
	var rows []*row
	ids := map[identity]bool{}
	flush := func() error {
		if len(rows) == 0 {
			return nil
		}
		err := w.insert(ctx, q, rows)
		rows = rows[:0]
		clear(ids)
		return err
	}
	for _, one := range batch {
		if one.row == nil || ids[one.row.identity()] || len(rows) == w.rows {
			if err := flush(); err != nil {
				return err
			}
		}
		if one.row != nil {
			rows = append(rows, one.row)
			ids[one.row.identity()] = true
			continue
		}
		if err := one.run(ctx, q); err != nil {
			return err
		}
	}
	return flush()
}

// insert writes rows, or over those that are there already.
func (s *Store) insert(ctx context.Context, q querier, rows []*row) error {
	var args []any
	for _, r := range rows {
		args = append(args, r.values()...)
	}
	_, err := q.ExecContext(ctx, s.insertStatement(len(rows)), args...)
	return err
}

func (s *Store) insertStatement(rows int) string {
	one := "(" + strings.Repeat("?,", len(columns)-1) + "?)"
	var b strings.Builder
	b.WriteString("INSERT INTO {letters} (" + strings.Join(columns, ", ") + ") VALUES ")
	b.WriteString(strings.Repeat(one+",", rows-1) + one)
	b.WriteString(s.dialect.upsert())
	for _, column := range replaced {
		fmt.Fprintf(&b, "%s = %s, ", column, s.dialect.incoming(column))
	}
	fmt.Fprintf(&b, "unconfirmed = {letters}.unconfirmed + %s, ", s.dialect.incoming("unconfirmed"))
	fmt.Fprintf(&b, "first_failed = CASE WHEN {letters}.first_failed = 0 THEN %s ELSE {letters}.first_failed END", s.dialect.incoming("first_failed"))
	return s.sql(b.String())
}

// errIsNoLetter is for calls that name one letter.
var errIsNoLetter = errors.New("no such letter, or it is being published")
