package account

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestRest(t *testing.T) {
	const silence = 10 * time.Second
	tests := map[string]struct {
		life  func(book)
		ready func(calls int) (int, error)
		after time.Duration // at least, and less than a second more
		err   bool
	}{
		"all ended, queues empty":      {func(b book) { b.handle(1, nil, done) }, nil, 2 * restFor, false},
		"a message in a queue":         {func(b book) { b.handle(1, nil, done) }, func(int) (int, error) { return 1, nil }, silence, false},
		"a queue that does not answer": {func(b book) { b.handle(1, nil, done) }, func(int) (int, error) { return 0, errFailed }, silence, false},
		"queues that are empty later": {func(b book) { b.handle(1, nil, done) }, func(calls int) (int, error) {
			return max(0, 20-calls), nil
		}, 2*restFor + 20*restEvery - restEvery, false},
		"a message on its way from one queue to another": {func(b book) { b.handle(1, nil, done) }, func(calls int) (int, error) {
			return map[int]int{6: 1}[calls], nil
		}, 2*restFor + 6*restEvery, false},
		"a message that ended nowhere": {func(b book) {}, nil, silence, false},
		"a delivery that is not settled": {func(b book) {
			b.Received(b.id)
			b.run(Run{Attempt: 1, Call: 1}, nil)
		}, nil, silence, false},
		"a handler that runs":  {func(b book) { b.Begin(b.id, Run{Attempt: 1}) }, nil, time.Minute, true},
		"a call in the making": {func(b book) { b.Calling(b.id) }, nil, time.Minute, true},
		"a delivery while the queues are counted": {func(b book) { b.handle(1, nil, done) }, func(calls int) (int, error) {
			return -calls, nil // see below
		}, 3 * restFor, false},
		"a late success": {func(b book) {
			time.AfterFunc(5*time.Second, func() { b.handle(1, nil, done) })
		}, nil, 5*time.Second + 2*restFor, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBook()
				tt.life(b)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				calls := 0
				began := time.Now()
				err := b.Rest(ctx, silence, func(context.Context) (int, error) {
					if tt.ready == nil {
						return 0, nil
					}
					calls++
					n, err := tt.ready(calls)
					if n == -1 {
						b.handle(1, nil, done)
					}
					return max(n, 0), err
				})
				if (err != nil) != tt.err {
					t.Errorf("Rest = %v", err)
				}
				if took := time.Since(began); took < tt.after || took > tt.after+restEvery {
					t.Errorf("it took %v, want %v", took, tt.after)
				}
			})
		})
	}
}
