package pause

import (
	"context"
	"errors"
	"fmt"
)

// Ended says why ctx has ended: its error, which callers test for, and its cause, which may be
// another one. A limit of ours is the cause alone: the error of ctx beside it would look like the
// caller's.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if _, ours := cause.(interface{ OwnLimit() }); ours || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Own returns err as the cause of a ctx that a limit of ours ends, and not the caller. A type of errors that are
// such causes has the method OwnLimit.
func Own(err error) error { return &own{err} }

type own struct{ error }

func (o *own) Unwrap() error { return o.error }

// OwnLimit marks the cause.
func (*own) OwnLimit() {}
