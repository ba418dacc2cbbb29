package confirm

import (
	"context"
	"errors"
	"reflect"
)

// ofMessage returns the outcome of a message whose caller's ctx may have ended. The cause of
// such a ctx may be the outcome of another message, as an errgroup sets it: that says
// nothing about this one.
func ofMessage(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	cause := context.Cause(ctx)
	if !isOutcome(cause) || !reflect.TypeOf(cause).Comparable() {
		return err
	}
	return &callersError{err, cause}
}

// isOutcome reports whether err tells of a message that was sent.
func isOutcome(err error) bool {
	return errors.Is(err, ErrReturned) || errors.Is(err, ErrRefused) || errors.Is(err, ErrNacked) || errors.Is(err, ErrUnconfirmed)
}

// callersError is an error that wraps the cause of a caller's ctx. It matches what the rest of
// it matches, and the cause itself.
type callersError struct{ err, cause error }

func (e *callersError) Error() string { return e.err.Error() }

// Is reports whether the error matches target.
func (e *callersError) Is(target error) bool {
	return target == e.cause || e.rest(e.err, func(err error) bool {
		if reflect.TypeOf(target).Comparable() && err == target {
			return true
		}
		is, ok := err.(interface{ Is(target error) bool })
		return ok && is.Is(target)
	})
}

// As sets target to the first error of its type.
func (e *callersError) As(target any) bool {
	to := reflect.ValueOf(target).Elem()
	return e.rest(e.err, func(err error) bool {
		if reflect.TypeOf(err).AssignableTo(to.Type()) {
			to.Set(reflect.ValueOf(err))
			return true
		}
		as, ok := err.(interface{ As(target any) bool })
		return ok && as.As(target)
	})
}

// rest calls match with the errors that err wraps, but not with the cause, until it returns
// true.
func (e *callersError) rest(err error, match func(error) bool) bool {
	if err == nil || reflect.TypeOf(err).Comparable() && err == e.cause { //nolint:errorlint // what wraps it may match
		return false
	}
	if match(err) {
		return true
	}
	switch wraps := err.(type) { //nolint:errorlint // of this one alone
	case interface{ Unwrap() error }:
		return e.rest(wraps.Unwrap(), match)
	case interface{ Unwrap() []error }:
		for _, one := range wraps.Unwrap() {
			if e.rest(one, match) {
				return true
			}
		}
	}
	return false
}
