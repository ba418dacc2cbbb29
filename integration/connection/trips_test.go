package connection_test

import (
	"sync"
	"time"
)

// trips are the ways of messages from the call of Publish to the end of their
// handlers. They are safe for concurrent use.
type trips struct {
	mu    sync.Mutex
	begun map[string]time.Time // by id
	ended []trip
}

type trip struct{ began, ended time.Time }

func (t *trips) begin(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun == nil {
		t.begun = map[string]time.Time{}
	}
	t.begun[id] = time.Now()
}

func (t *trips) end(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, trip{t.begun[id], time.Now()})
}

// after returns when the first message was handled whose Publish was called
// after t0.
func (t *trips) after(t0 time.Time) (ended time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.ended {
		if one.began.After(t0) {
			return one.ended, true
		}
	}
	return time.Time{}, false
}
