package store

import (
	"context"
	"strings"
	"sync"
	"time"
)

// uncommitted are messages of PutTx that nobody has seen in the table yet. Their
// transactions are the callers', who commit them and tell nobody. So an idle Forwarder looks
// for them with pauses of milliseconds, and publishes what it finds without waiting for
// ForwardConfig.Poll. A look reads, and locks nothing.
type uncommitted struct {
	added chan struct{} // has an element when there is a new one

	mu   sync.Mutex
	rows []uncommittedRow
}

// uncommittedRow is the last row of one PutTx.
type uncommittedRow struct {
	key   rowKey
	until time.Time
}

const (
	// watchFor is how long the Forwarder looks for a message of PutTx. If its transaction
	// takes longer, the message waits for ForwardConfig.Poll.
	watchFor = 5 * time.Second

	// maxWatched bounds the transactions that one look asks for.
	maxWatched = 100

	// The pauses between looks, doubled with each.
	firstLook   = time.Millisecond
	longestLook = 20 * time.Millisecond
)

func (u *uncommitted) add(key rowKey, now time.Time) {
	u.mu.Lock()
	u.rows = append(u.rows, uncommittedRow{key, now.Add(watchFor)})
	if over := len(u.rows) - maxWatched; over > 0 {
		u.rows = append(u.rows[:0], u.rows[over:]...)
	}
	u.mu.Unlock()
	select {
	case u.added <- struct{}{}:
	default:
	}
}

// watched are the rows to look for.
func (u *uncommitted) watched(now time.Time) []rowKey {
	u.mu.Lock()
	defer u.mu.Unlock()
	var keys []rowKey
	rest := u.rows[:0]
	for _, row := range u.rows {
		if now.Before(row.until) {
			rest = append(rest, row)
			keys = append(keys, row.key)
		}
	}
	u.rows = rest
	return keys
}

// forget drops rows that were found.
func (u *uncommitted) forget(found map[rowKey]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	rest := u.rows[:0]
	for _, row := range u.rows {
		if !found[row.key] {
			rest = append(rest, row)
		}
	}
	u.rows = rest
}

// look reports whether a message of PutTx has been committed since the last look, and
// whether others are left to look for.
func (s *Store) look(ctx context.Context) (committed, left bool) {
	keys := s.uncommitted.watched(s.now())
	if len(keys) == 0 {
		return false, false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	found := map[rowKey]bool{}
	args := make([]any, 0, 2*len(keys))
	for _, key := range keys {
		args = append(args, key.messageID, key.id)
	}
	const one = "(message_id = ? AND id = ?)"
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT message_id, id FROM {letters} WHERE "+strings.Repeat(one+" OR ", len(keys)-1)+one), args...)
	if err != nil {
		return false, true
	}
	defer rows.Close()
	for rows.Next() {
		var key rowKey
		if rows.Scan(&key.messageID, &key.id) == nil {
			found[key] = true
		}
	}
	s.uncommitted.forget(found)
	return len(found) > 0, len(found) < len(keys)
}
