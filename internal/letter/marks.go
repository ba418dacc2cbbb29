package letter

import "context"

// Marked returns the Marks of letters of a *store.Store. Package store sets it.
var Marked func(ctx context.Context, store any, numbers []int64) (Marks, error)

// Marks tell whether letters have changed.
type Marks interface {
	// Delete deletes those of the letters that nobody has changed since they were
	// marked, and that nobody is publishing. It returns how many.
	Delete(ctx context.Context, numbers []int64) (int, error)
}
