package store

import (
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// A transaction with entries of PutTx whose Commit is forgotten holds up nobody on a
// server: nothing fails, and its entries are never published. So a Store remembers some
// transactions, and says of one that is open for long that it is.
const (
	openLong = time.Minute // may be slow, but is hardly meant
	lookLeap = time.Second // between two looks
	mostOpen = 64          // that are remembered
)

// openTxs are transactions that PutTx was given.
type openTxs struct {
	mu     sync.Mutex
	since  map[*sql.Tx]time.Time
	looked time.Time
}

// note remembers a transaction, and warns of those that are open for long, once of each.
func (o *openTxs) note(tx Tx, now time.Time, log *slog.Logger) {
	own, ok := tx.(*sql.Tx)
	if !ok {
		return // it cannot be asked
	}
	for tx, since := range o.add(own, now) {
		open := !ended(tx) // not under the lock: it waits for a statement that a Commit cuts off
		if open && now.Sub(since) < openLong {
			continue
		}
		o.mu.Lock()
		_, remembered := o.since[tx]
		delete(o.since, tx)
		o.mu.Unlock()
		if open && remembered {
			log.Warn("a transaction with entries of PutTx is still open, and they are not published before it ends: is its Commit forgotten?", "since", since)
		}
	}
}

// add remembers a transaction. If it is time to look, it returns those of before.
func (o *openTxs) add(tx *sql.Tx, now time.Time) (before map[*sql.Tx]time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.looked) >= lookLeap {
		o.looked, before = now, maps.Clone(o.since)
	}
	if _, known := o.since[tx]; known || len(o.since) >= mostOpen {
		return before
	}
	if o.since == nil {
		o.since = map[*sql.Tx]time.Time{}
	}
	o.since[tx] = now
	return before
}

// ended reports whether a transaction is committed or rolled back. It asks database/sql
// alone: a statement of no database is refused before anything is sent, and first of
// all because the transaction has ended.
func ended(tx *sql.Tx) bool {
	_, err := tx.Stmt(&sql.Stmt{}).Exec() //nolint:noctx // nothing is sent
	return errors.Is(err, sql.ErrTxDone)
}
