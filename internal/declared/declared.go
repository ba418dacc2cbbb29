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

// of returns the delays of a Conn. A list that it holds is never changed.
func of(conn *connection.Conn) *atomic.Pointer[[]levels.Delays] {
	return transport.Inside.Conn(conn).Keep(key{}, func() any { return new(atomic.Pointer[[]levels.Delays]) }).(*atomic.Pointer[[]levels.Delays])
}

// See notes delays that were declared on conn. Delays that a Conn sees within
// connection.Config.OnConnect are known to the Conn that it is part of as well.
func See(conn *connection.Conn, list ...levels.Delays) {
	if len(list) == 0 {
		return
	}
	change(conn, func(have []levels.Delays) []levels.Delays {
		have = slices.Clone(have) // readers may hold the old one
		for _, d := range list {
			have = merge(have, d)
		}
		return have
	})
}

// Forget notes that the delays of a grain were deleted on conn.
func Forget(conn *connection.Conn, grain time.Duration) {
	change(conn, func(have []levels.Delays) []levels.Delays {
		return slices.DeleteFunc(slices.Clone(have), func(d levels.Delays) bool { return d.Levels.Grain == grain })
	})
}

// On returns the delays that were declared on conn, the finest grain first. They
// must not be changed.
func On(conn *connection.Conn) []levels.Delays {
	if list := of(conn).Load(); list != nil {
		return *list
	}
	return nil
}

func change(conn *connection.Conn, to func([]levels.Delays) []levels.Delays) {
	set(conn, to)
	if whole := transport.Inside.Conn(conn).Whole().(*connection.Conn); whole != conn { // see Whole
		set(whole, to)
	}
}

func set(conn *connection.Conn, to func([]levels.Delays) []levels.Delays) {
	for {
		have := of(conn).Load()
		var list []levels.Delays
		if have != nil {
			list = *have
		}
		list = to(list)
		if of(conn).CompareAndSwap(have, &list) {
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
	have.Exchanges = union(have.Exchanges, d.Exchanges)
	have.Confirmed, have.Classes = d.Confirmed, d.Classes // of the broker as it is now
	list[i] = have
	return list
}

func union(a, b []string) []string {
	both := slices.Concat(a, b)
	slices.Sort(both)
	return slices.Compact(both)
}
