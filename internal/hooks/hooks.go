// Package hooks makes one hook of several: the hooks of one kind out of a list of
// Traces. They run in the order of the list, nil hooks are left out, and a panic
// in one is logged and keeps none of the others from running.
//
// The functions return nil if no Trace of the list has the hook. So a caller merges
// the list once, and a message pays for the hooks that there are.
//
// Logger does the same for a Logger: a panic in its handler harms nothing else.
package hooks

import (
	"context"
	"log/slog"
	"runtime/debug"
)

// Set is a list of Traces of type T.
type Set[T any] struct {
	traces []T
	log    *slog.Logger
	of     string
}

// Of returns the Set of a list. log gets the panics; of names the type in them, such
// as "producer.Trace".
func Of[T any](traces []T, log *slog.Logger, of string) Set[T] { return Set[T]{traces, log, of} }

// recovered is deferred around one hook.
func (s Set[T]) recovered(hook string) {
	if p := recover(); p != nil {
		s.log.Error("a hook of "+s.of+" panicked", "hook", hook, "panic", p, "stack", string(debug.Stack()))
	}
}

// merge protects the hooks that are there, and returns them.
func merge[T, F any](s Set[T], pick func(T) F, isNil func(F) bool, protect func(F) F) (fs []F) {
	for _, t := range s.traces {
		if f := pick(t); !isNil(f) {
			fs = append(fs, protect(f))
		}
	}
	return fs
}

// One merges hooks of one parameter.
func One[T, A any](s Set[T], hook string, pick func(T) func(A)) func(A) {
	fs := merge(s, pick, func(f func(A)) bool { return f == nil }, func(f func(A)) func(A) {
		return func(a A) {
			defer s.recovered(hook)
			f(a)
		}
	})
	if len(fs) < 2 {
		return only(fs)
	}
	return func(a A) {
		for _, f := range fs {
			f(a)
		}
	}
}

// Two merges hooks of two parameters.
func Two[T, A, B any](s Set[T], hook string, pick func(T) func(A, B)) func(A, B) {
	fs := merge(s, pick, func(f func(A, B)) bool { return f == nil }, func(f func(A, B)) func(A, B) {
		return func(a A, b B) {
			defer s.recovered(hook)
			f(a, b)
		}
	})
	if len(fs) < 2 {
		return only(fs)
	}
	return func(a A, b B) {
		for _, f := range fs {
			f(a, b)
		}
	}
}

// Begin merges hooks that begin something: each gets the ctx that the one before
// it has returned. A hook that returns nil, or panics, leaves ctx as it was.
func Begin[T, A any](s Set[T], hook string, pick func(T) func(context.Context, A) context.Context) func(context.Context, A) context.Context {
	type begin = func(context.Context, A) context.Context
	fs := merge(s, pick, func(f begin) bool { return f == nil }, func(f begin) begin {
		return func(ctx context.Context, a A) (begun context.Context) {
			begun = ctx
			defer s.recovered(hook)
			if own := f(ctx, a); own != nil {
				begun = own
			}
			return begun
		}
	})
	if len(fs) < 2 {
		return only(fs)
	}
	return func(ctx context.Context, a A) context.Context {
		for _, f := range fs {
			ctx = f(ctx, a)
		}
		return ctx
	}
}

// only returns the one function there is, or nil.
func only[F any](fs []F) (f F) {
	if len(fs) > 0 {
		f = fs[0]
	}
	return f
}
