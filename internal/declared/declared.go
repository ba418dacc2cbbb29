// Package declared remembers, for each connection.Conn, the exact delays that
// were declared on it. A producer that is asked for a delay finds out without the
// network whether there is a way.
package declared

import (
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/internal/transport"
)

// Delays are the exact delays of one grain, as far as a process has declared them.
type Delays struct {
	Levels delay.Levels // with the defaults

	// Queues and Exchanges are the targets.
	Queues, Exchanges []string

	// Confirmed says that the broker confirms every hop.
	Confirmed bool

	// Classes says that messages of high priority have queues of their own.
	Classes bool
}

var (
	mu  sync.Mutex
	all = map[weak.Pointer[connection.Conn]][]Delays{}
)

// See notes delays that were declared on conn. What a Conn sees within
// connection.Config.OnUp, the Conn that it is part of knows as well.
func See(conn *connection.Conn, list ...Delays) {
	if len(list) == 0 {
		return
	}
	change(conn, func(have []Delays) []Delays {
		have = slices.Clone(have) // readers may hold the old one
		for _, d := range list {
			have = merge(have, d)
		}
		return have
	})
}

// Forget notes that the delays of a grain were deleted on conn.
func Forget(conn *connection.Conn, grain time.Duration) {
	change(conn, func(have []Delays) []Delays {
		return slices.DeleteFunc(slices.Clone(have), func(d Delays) bool { return d.Levels.Grain == grain })
	})
}

// On returns the delays that were declared on conn, the finest grain first. They
// must not be changed.
func On(conn *connection.Conn) []Delays {
	mu.Lock()
	defer mu.Unlock()
	return all[weak.Make(conn)]
}

func change(conn *connection.Conn, to func([]Delays) []Delays) {
	mu.Lock()
	defer mu.Unlock()
	set(conn, to)
	if whole := transport.Whole(conn).(*connection.Conn); whole != conn { // see Whole
		set(whole, to)
	}
}

func set(conn *connection.Conn, to func([]Delays) []Delays) {
	key := weak.Make(conn)
	have, known := all[key]
	if !known {
		runtime.AddCleanup(conn, forget, key)
	}
	all[key] = to(have)
}

func forget(key weak.Pointer[connection.Conn]) {
	mu.Lock()
	defer mu.Unlock()
	delete(all, key)
}

// merge adds delays to a list: those of one grain are one.
func merge(list []Delays, d Delays) []Delays {
	i, found := slices.BinarySearchFunc(list, d.Levels.Grain, func(have Delays, grain time.Duration) int {
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

// Reaches reports whether a message may be delayed to a target.
func (d Delays) Reaches(to levels.Target) bool {
	if to.Exchange == "" {
		return slices.Contains(d.Queues, to.Key)
	}
	return slices.Contains(d.Exchanges, to.Exchange)
}

// Way returns where a message is published to that is to reach a target after a
// delay, and how long it takes there: the delay rounded up to grains. The error is
// that of delay.Levels.Path.
func (d Delays) Way(to levels.Target, after time.Duration, priority uint8) (exchange, key string, takes time.Duration, err error) {
	path, err := d.Levels.Path(after)
	if err != nil {
		return "", "", 0, err
	}
	names := levels.Of(d.Levels.Grain)
	high := d.Classes && levels.IsHigh(priority)
	return names.Exchange(path.Entry()), levels.Key(path, high, to), path.Duration(d.Levels.Grain), nil
}
