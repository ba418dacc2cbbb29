package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rehop/rehop/internal/letter"
)

func init() {
	letter.Marked = func(ctx context.Context, s any, numbers []int64) (letter.Marks, error) {
		return s.(*Store).marked(ctx, numbers)
	}
}

// marks are the values of entries by which a change of them is known: Edit gives an entry
// another id, and one that comes again has failed at another time.
type marks struct {
	store *Store
	of    map[int64]mark
}

type mark struct {
	id     string
	failed int64
}

func (s *Store) marked(ctx context.Context, numbers []int64) (letter.Marks, error) {
	m := &marks{s, map[int64]mark{}}
	if len(numbers) == 0 {
		return m, nil
	}
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT seq, id, failed FROM {letters} WHERE "+s.dialect.among("seq", numbers)))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var number int64
		var one mark
		if err := rows.Scan(&number, &one.id, &one.failed); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		m.of[number] = one
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return m, nil
}

// Delete is that of letter.Marks.
func (m *marks) Delete(ctx context.Context, numbers []int64) (deleted int, err error) {
	for some := range slices.Chunk(numbers, 100) { // a database bounds the length of a condition
		same := make([]string, len(some))
		args := []any{m.store.now().UnixMilli()}
		for i, number := range some {
			same[i] = "seq = ? AND id = ? AND failed = ?"
			args = append(args, number, m.of[number].id, m.of[number].failed)
		}
		n, err := m.store.exec(ctx, "DELETE FROM {letters by number} WHERE "+m.store.dialect.among("seq", some)+
			" AND (lease = '' OR next_try <= ?) AND ("+strings.Join(same, " OR ")+")", args...)
		deleted += n
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}
