// Package declared remembers in each connection.Conn the exact delays that were
// declared on it. A producer that is asked for a delay finds out without the
// network whether there is a way.
package declared

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/internal/transport"
)

// ErrUndeclared is matched by the error of a message whose Delay no declared delay can
// bring about.
var ErrUndeclared = errors.New("no such delay is declared")

// key is that of the delays in a Conn.
type key struct{}

// seen is what was declared on a Conn. It is never changed: readers may hold it.
type seen struct {
	delays   []levels.Delays // the finest grain first
	bindings []levels.Binding
}

func of(conn *connection.Conn) *atomic.Pointer[seen] {
	return transport.Inside.Conn(conn).Keep(key{}, func() any { return new(atomic.Pointer[seen]) }).(*atomic.Pointer[seen])
}

// See notes delays that were declared on conn, and bindings of users, with or without
// delays. What a Conn sees within connection.Config.OnConnect is known to the Conn that
// it is part of as well.
func See(conn *connection.Conn, bindings []levels.Binding, list ...levels.Delays) {
	if len(list) == 0 && len(bindings) == 0 {
		return
	}
	change(conn, func(have seen) seen {
		have.delays = slices.Clone(have.delays)
		for _, d := range list {
			have.delays = merge(have.delays, d)
		}
		have.bindings = union(have.bindings, bindings)
		return have
	})
}

// Forget notes that the delays of a grain were deleted on conn.
func Forget(conn *connection.Conn, grain time.Duration) {
	change(conn, func(have seen) seen {
		have.delays = slices.DeleteFunc(slices.Clone(have.delays), func(d levels.Delays) bool { return d.Levels.Grain == grain })
		return have
	})
}

// ForgetBindings notes that queues or lanes were deleted on conn, and all bindings to them
// with them.
func ForgetBindings(conn *connection.Conn, to ...string) {
	gone := func(b levels.Binding) bool { return slices.Contains(to, b.To) }
	change(conn, func(have seen) seen {
		have.bindings = slices.DeleteFunc(slices.Clone(have.bindings), gone)
		have.delays = slices.Clone(have.delays)
		for i := range have.delays {
			have.delays[i].Bound = slices.DeleteFunc(slices.Clone(have.delays[i].Bound), gone)
		}
		return have
	})
}

// ForgetTargets notes that queues and exchanges were deleted on conn: a message that is
// delayed to one of them would be stranded.
func ForgetTargets(conn *connection.Conn, queues, exchanges []string) {
	change(conn, func(have seen) seen {
		have.delays = slices.Clone(have.delays)
		for i := range have.delays {
			d := &have.delays[i]
			d.Queues = slices.DeleteFunc(slices.Clone(d.Queues), func(name string) bool { return slices.Contains(queues, name) })
			d.Exchanges = slices.DeleteFunc(slices.Clone(d.Exchanges), func(x levels.Exchange) bool { return slices.Contains(exchanges, x.Name) })
		}
		return have
	})
}

// On returns the delays that were declared on conn, the finest grain first. They
// must not be changed.
func On(conn *connection.Conn) []levels.Delays {
	if have := of(conn).Load(); have != nil {
		return have.delays
	}
	return nil
}

func change(conn *connection.Conn, to func(seen) seen) {
	set(conn, to)
	if whole := transport.Inside.Conn(conn).Whole().(*connection.Conn); whole != conn { // see Whole
		set(whole, to)
	}
}

func set(conn *connection.Conn, to func(seen) seen) {
	for {
		have := of(conn).Load()
		var next seen
		if have != nil {
			next = *have
		}
		next = to(next)
		for i, d := range next.delays {
			next.delays[i] = d.Among(next.bindings)
		}
		if of(conn).CompareAndSwap(have, &next) {
			return
		}
	}
}

// merge adds delays to a list: those of one grain are one.
func merge(list []levels.Delays, d levels.Delays) []levels.Delays {
	i, found := slices.BinarySearchFunc(list, d.Levels.Grain, func(have levels.Delays, grain time.Duration) int {
		return int(have.Levels.Grain - grain)
	})
	if !found {
		return slices.Insert(list, i, d)
	}
	have := list[i]
	have.Levels.Max = max(have.Levels.Max, d.Levels.Max)
	have.Queues = union(have.Queues, d.Queues)
	have.Exchanges = slices.Concat(d.Exchanges, slices.DeleteFunc(slices.Clone(have.Exchanges), func(x levels.Exchange) bool {
		return slices.ContainsFunc(d.Exchanges, func(now levels.Exchange) bool { return now.Name == x.Name })
	}))
	have.Bound = union(have.Bound, d.Bound)
	have.Confirmed, have.Classes = d.Confirmed, d.Classes // of the broker as it is now
	list[i] = have
	return list
}

// union returns a, and after it what b has besides.
func union[T comparable](a, b []T) []T {
	both := slices.Clip(a)
	for _, v := range b {
		if !slices.Contains(both, v) {
			both = append(both, v)
		}
	}
	return both
}
