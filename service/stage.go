package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// stage is the parts that stop side by side, while they run.
type stage struct {
	stop  context.CancelFunc
	ended chan struct{} // closed when all parts have returned

	mu      sync.Mutex
	errs    []error
	running map[int]Part // by their place in the stage
}

// start runs the parts. The first that returns an error calls failed.
func start(ctx, bound context.Context, parts []Part, failed func()) *stage {
	s := &stage{ended: make(chan struct{}), running: map[int]Part{}}
	ctx, s.stop = context.WithCancel(ctx)
	for i, part := range parts {
		s.running[i] = part
	}
	var all sync.WaitGroup
	for i, part := range parts {
		all.Go(func() {
			run := part.Run
			if srv, ok := part.(*server); ok {
				run = func(ctx context.Context) error { return srv.run(ctx, bound) }
			}
			err := run(ctx)
			s.returned(i, err)
			if err != nil {
				failed()
			}
		})
	}
	go func() {
		all.Wait()
		s.stop()
		close(s.ended)
	}()
	return s
}

func (s *stage) returned(i int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, i)
	s.errs = append(s.errs, err)
}

// result returns the errors of the parts, and one for each that has not returned.
func (s *stage) result() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := append([]error(nil), s.errs...)
	for i, part := range s.running {
		errs = append(errs, fmt.Errorf("service: part %d of its stage (%T) has not returned in time", i, part))
	}
	return errors.Join(errs...)
}
