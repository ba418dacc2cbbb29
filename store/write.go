package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/producer"
)

// writer commits together what several callers write at a time: a database
// waits for its disk once for each commit, however much is in it. It runs goroutines
// while there is something to write: on a server a few, because one may have to wait
// for a row that a transaction of somebody else has locked.
type writer struct {
	transact func(context.Context, func(context.Context, Tx) error) error
	lightly  func(context.Context, func(context.Context, Tx) error) error // transact for light writes alone
	insert   func(context.Context, Tx, []*row) error
	rows     int // in one insert, at most
	abreast  int // transactions at a time, at most
	timeout  time.Duration

	mu      sync.Mutex
	waiting []*write
	running int
}

// write is the order of one caller: a row, or the statements of run.
type write struct {
	ctx   context.Context
	row   *row
	run   func(context.Context, Tx) error
	light bool       // a power cut may undo it
	ended func()     // if set, is called before the answer
	done  chan error // has room for the one answer
}

// answer tells the caller the result of a write. The caller may have left.
func (one *write) answer(err error) {
	if one.ended != nil {
		one.ended()
	}
	one.done <- err
}

// The bounds of one transaction.
const (
	maxTogether      = 512
	maxTogetherBytes = 4 << 20
)

// put returns nil once the row is committed. When ctx ends before, the row may
// be committed yet.
func (w *writer) put(ctx context.Context, r *row) error {
	return w.wait(ctx, &write{ctx: ctx, row: r, done: make(chan error, 1)})
}

// do returns nil once the statements of run are committed. It may call run more than
// once, and commits one call.
func (w *writer) do(ctx context.Context, light bool, run func(context.Context, Tx) error) error {
	return w.wait(ctx, &write{ctx: ctx, run: run, light: light, done: make(chan error, 1)})
}

func (w *writer) wait(ctx context.Context, one *write) error {
	if ctx.Err() != nil {
		return pause.Ended(ctx)
	}
	if begin, counted := ctx.Value(beginKey{}).(func() (end func())); counted {
		one.ended = begin()
	}
	w.mu.Lock()
	w.waiting = append(w.waiting, one)
	if w.running < w.abreast {
		w.running++
		go w.work()
	}
	w.mu.Unlock()
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		return pause.Ended(ctx)
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

// next takes the writes of the next transaction, in the order of their coming.
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
			one.answer(pause.Ended(one.ctx)) // its caller has left: it is not stored behind their back
			continue
		}
		batch = append(batch, one)
		bytes += one.size()
	}
	clear(w.waiting[:taken])
	if w.waiting = w.waiting[taken:]; len(w.waiting) == 0 {
		w.waiting = nil
	}
	if len(batch) == 0 {
		w.running--
	}
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
	transact := w.transact
	if !slices.ContainsFunc(batch, func(one *write) bool { return !one.light }) {
		transact = w.lightly
	}
	err := retryDeadlock(ctx, func() error {
		return transact(ctx, func(ctx context.Context, tx Tx) error { return w.run(ctx, tx, batch) })
	})
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
		one.answer(err)
	}
}

// retryDeadlock runs a transaction up to three times if the database ends it for the
// sake of another.
func retryDeadlock(ctx context.Context, transact func() error) error {
	err := transact()
	for tries := 1; tries < 3 && isDeadlock(err) && ctx.Err() == nil; tries++ {
		err = transact()
	}
	return err
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

// commitAgain writes a batch once more whose first commit, of which err tells, may have
// happened. Rows may be written over, and are marked, because their messages may have
// been published meanwhile. No other write may be done twice.
func (w *writer) commitAgain(ctx context.Context, batch []*write, err error) {
	var rows []*write
	for _, one := range batch {
		if one.row == nil {
			one.answer(err)
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
	again := w.transact(ctx, func(ctx context.Context, tx Tx) error { return w.run(ctx, tx, rows) })
	if again != nil {
		again = errors.Join(err, again) // the first one may have happened, even if the second has failed
	}
	for _, one := range rows {
		one.answer(again)
	}
}

// run writes a batch within a transaction. Neighbouring rows share an insert,
// unless they are the same.
func (w *writer) run(ctx context.Context, tx Tx, batch []*write) error {
	var rows []*row
	ids := map[rowKey]bool{}
	flush := func() error {
		if len(rows) == 0 {
			return nil
		}
		err := w.insert(ctx, tx, rows)
		rows = rows[:0]
		clear(ids)
		return err
	}
	for _, one := range batch {
		if one.row == nil || ids[one.row.key()] || len(rows) == w.rows {
			if err := flush(); err != nil {
				return err
			}
		}
		if one.row != nil {
			rows = append(rows, one.row)
			ids[one.row.key()] = true
			continue
		}
		if err := one.run(ctx, tx); err != nil {
			return err
		}
	}
	return flush()
}

// insert writes rows, or over those that are there already.
func (s *Store) insert(ctx context.Context, tx Tx, rows []*row) error {
	var args []any
	for _, r := range rows {
		args = append(args, r.values()...)
	}
	_, err := tx.ExecContext(ctx, s.insertStatement(len(rows)), args...)
	return err
}

func (s *Store) insertStatement(rows int) string {
	one := "(" + strings.Repeat("?,", len(columns)-1) + "?)"
	var b strings.Builder
	b.WriteString("INSERT INTO {letters} (" + strings.Join(columns, ", ") + ") VALUES ")
	b.WriteString(strings.Repeat(one+",", rows-1) + one)
	b.WriteString(s.dialect.upsert())
	// An entry that somebody has parked does not become ready: only Release and Replay end that.
	fmt.Fprintf(&b, "state = CASE WHEN {letters}.state = 'parked' AND %[1]s = 'ready' THEN 'parked' ELSE %[1]s END, ", s.dialect.incoming("state"))
	for _, column := range replaced {
		fmt.Fprintf(&b, "%s = %s, ", column, s.dialect.incoming(column))
	}
	fmt.Fprintf(&b, "unconfirmed = {letters}.unconfirmed + %s, ", s.dialect.incoming("unconfirmed"))
	fmt.Fprintf(&b, "first_failed = CASE WHEN {letters}.first_failed = 0 THEN %s ELSE {letters}.first_failed END", s.dialect.incoming("first_failed"))
	return s.sql(b.String())
}

// errNoEntry is for calls that name one entry.
var errNoEntry = errors.New("no such entry, or it is being published")
