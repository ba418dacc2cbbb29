package main

import (
	"context"
	"sync"
)

// sessions counts those of a consumer by the ctx of its handlers, which ends
// with the session: runs belong to the same one until then. It is safe for
// concurrent use.
type sessions struct {
	mu    sync.Mutex
	ctx   context.Context // of the first run in the latest session
	count int
}

// of returns the number of the session that ctx is of, from 1, and 0 if that
// session has ended.
func (s *sessions) of(ctx context.Context) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return 0
	}
	if s.ctx == nil || s.ctx.Err() != nil {
		s.ctx = ctx
		s.count++
	}
	return s.count
}

func (s *sessions) sum() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}
