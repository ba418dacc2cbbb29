package model

import (
	"slices"
	"time"
)

// ready holds the messages that nobody has, in the order in which the queue
// hands them out.
type ready interface {
	push(*entry)
	// giveBack takes a message that a consumer had.
	giveBack(e *entry, w why)
	pop() *entry
	// drop removes what pop would return, for no consumer.
	drop() *entry
	// dropExpired removes what has expired as far as the queue looks.
	dropExpired(expired func(*entry) bool) []*entry
	// nextExpiry returns the earliest time at which dropExpired may find more.
	nextExpiry() time.Time
	len() int
	bytes() int
	all() []*entry
	clear()
}

// fifo is a list that is read from the front.
type fifo struct {
	list  []*entry
	start int
	size  int
}

func (f *fifo) len() int { return len(f.list) - f.start }

func (f *fifo) bytes() int { return f.size }

func (f *fifo) all() []*entry { return slices.Clone(f.list[f.start:]) }

func (f *fifo) clear() { *f = fifo{} }

func (f *fifo) push(e *entry) {
	f.list = append(f.list, e)
	f.size += e.size()
}

func (f *fifo) head() *entry {
	if f.len() == 0 {
		return nil
	}
	return f.list[f.start]
}

func (f *fifo) pop() *entry {
	e := f.list[f.start]
	f.list[f.start] = nil
	f.start++
	f.size -= e.size()
	if f.start == len(f.list) {
		f.list, f.start = f.list[:0], 0
	} else if f.start > 1024 && f.start > len(f.list)/2 {
		n := copy(f.list, f.list[f.start:])
		clear(f.list[n:])
		f.list, f.start = f.list[:n], 0
	}
	return e
}

func (f *fifo) drop() *entry { return f.pop() }

// insert puts a message back where it was by its position.
func (f *fifo) insert(e *entry) {
	f.size += e.size()
	live := f.list[f.start:]
	i, _ := slices.BinarySearchFunc(live, e.position, func(e *entry, position uint64) int {
		switch {
		case e.position < position:
			return -1
		case e.position > position:
			return 1
		}
		return 0
	})
	if f.start > 0 && i <= len(live)/2 {
		copy(f.list[f.start-1:], live[:i])
		f.start--
		f.list[f.start+i] = e
		return
	}
	f.list = slices.Insert(f.list, f.start+i, e)
}

func (f *fifo) dropExpired(expired func(*entry) bool) (dropped []*entry) {
	for f.len() > 0 && expired(f.head()) {
		dropped = append(dropped, f.pop())
	}
	return dropped
}

func (f *fifo) nextExpiry() time.Time {
	if e := f.head(); e != nil {
		return e.expires
	}
	return time.Time{}
}

// ordered is a classic queue: what comes back goes where it was.
type ordered struct{ fifo }

func (o *ordered) giveBack(e *entry, _ why) { o.insert(e) }

// classicLevels is a classic queue with x-max-priority: the highest level
// first.
type classicLevels struct{ levels []ordered }

func (c *classicLevels) push(e *entry)            { c.levels[e.level].push(e) }
func (c *classicLevels) giveBack(e *entry, _ why) { c.levels[e.level].insert(e) }

func (c *classicLevels) top() *ordered {
	for i := len(c.levels) - 1; i >= 0; i-- {
		if c.levels[i].len() > 0 {
			return &c.levels[i]
		}
	}
	return &c.levels[0]
}

func (c *classicLevels) pop() *entry           { return c.top().pop() }
func (c *classicLevels) drop() *entry          { return c.top().pop() }
func (c *classicLevels) nextExpiry() time.Time { return c.top().nextExpiry() }

// dropExpired stops at the first level that has a live head.
func (c *classicLevels) dropExpired(expired func(*entry) bool) (dropped []*entry) {
	for {
		gone := c.top().dropExpired(expired)
		if len(gone) == 0 {
			return dropped
		}
		dropped = append(dropped, gone...)
	}
}

func (c *classicLevels) len() (n int) {
	for i := range c.levels {
		n += c.levels[i].len()
	}
	return n
}

func (c *classicLevels) bytes() (n int) {
	for i := range c.levels {
		n += c.levels[i].bytes()
	}
	return n
}

func (c *classicLevels) all() (list []*entry) {
	for i := len(c.levels) - 1; i >= 0; i-- {
		list = append(list, c.levels[i].all()...)
	}
	return list
}

func (c *classicLevels) clear() {
	for i := range c.levels {
		c.levels[i].clear()
	}
}
