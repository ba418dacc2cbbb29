package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rehop/rehop/producer"
)

// TestACommitWithoutAnAnswer: rows are written once more and marked, other writes
// are not, and what stays open is unconfirmed.
func TestACommitWithoutAnAnswer(t *testing.T) {
	broken := errors.New("broken pipe")
	for rule, tt := range map[string]struct {
		answers []error // of each commit
		isRow   bool
		commits int
		ok      bool
		unknown bool // whether it is written
	}{
		"a row: written again":                {[]error{&commitError{broken}, nil}, true, 2, true, false},
		"a row, lost twice: unconfirmed":      {[]error{&commitError{broken}, &commitError{broken}}, true, 2, false, true},
		"a row, then refused: unconfirmed":    {[]error{&commitError{broken}, broken}, true, 2, false, true},
		"a row, refused: not written":         {[]error{broken}, true, 1, false, false},
		"another write: not done once more":   {[]error{&commitError{broken}}, false, 1, false, true},
		"another write, refused: not written": {[]error{broken}, false, 1, false, false},
	} {
		t.Run(rule, func(t *testing.T) {
			commits, marked := 0, 0
			w := &writer{rows: 8, abreast: 1, timeout: time.Minute}
			w.insert = func(_ context.Context, _ Tx, rows []*row) error { marked = rows[0].l.Unconfirmed; return nil }
			w.transact = func(ctx context.Context, do func(context.Context, Tx) error) error {
				if err := do(ctx, nil); err != nil {
					return err
				}
				commits++
				return tt.answers[commits-1]
			}
			var err error
			if tt.isRow {
				err = w.put(t.Context(), &row{})
			} else {
				err = w.do(t.Context(), false, func(context.Context, Tx) error { return nil })
			}
			if (err == nil) != tt.ok || errors.Is(err, producer.ErrUnconfirmed) != tt.unknown || commits != tt.commits {
				t.Errorf("%d commits, %v", commits, err)
			}
			if tt.isRow && marked != commits-1 {
				t.Errorf("written as unconfirmed %d times, want %d", marked, commits-1)
			}
		})
	}
}

// TestADeadlockIsNoError: the database has ended one transaction for the sake of
// another, and it is tried again.
func TestADeadlockIsNoError(t *testing.T) {
	tries := 0
	w := &writer{rows: 8, abreast: 1, timeout: time.Minute}
	w.insert = func(context.Context, Tx, []*row) error { return nil }
	w.transact = func(ctx context.Context, do func(context.Context, Tx) error) error {
		if tries++; tries < 3 {
			return errors.New("Error 1213 (40001): Deadlock found when trying to get lock; try restarting transaction")
		}
		return do(ctx, nil)
	}
	if err := w.put(t.Context(), &row{id: "a"}); err != nil || tries != 3 {
		t.Errorf("%v after %d tries", err, tries)
	}
}
