// Package errortype names the type of an error: in the letter of a message that failed,
// and in the label of a metric, by one rule.
package errortype

import (
	"errors"
	"fmt"
)

// Of returns the result of the first method ErrorType along the chain of err, as
// OpenTelemetry does. Without one, or if it returns "", Of returns the Go type of the
// innermost error, since a wrapper says less; of joined errors, that of the first. Of
// nil it returns "".
//
// The methods of err are the user's code. If one of them panics, Of returns the type of the
// error that it has come to.
func Of(err error) (name string) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			name = fmt.Sprintf("%T", err)
		}
	}()
	if name := said(err); name != "" {
		return name
	}
	for {
		var inner error
		switch e := err.(type) { //nolint:errorlint // this is the walk down the chain
		case interface{ Unwrap() error }:
			inner = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, branch := range e.Unwrap() {
				if branch != nil {
					inner = branch
					break
				}
			}
		}
		if inner == nil {
			return fmt.Sprintf("%T", err)
		}
		err = inner
	}
}

// said returns what err says of its type. A method that panics says nothing.
func said(err error) (name string) {
	defer func() {
		if recover() != nil {
			name = ""
		}
	}()
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) {
		return typed.ErrorType()
	}
	return ""
}
