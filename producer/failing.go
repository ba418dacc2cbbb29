package producer

import (
	"context"
	"sync"
)

// failing carries on with messages whose first try has failed: it sends them again, or
// gives them to a sink. It works on at most most of them at a time, each on a
// goroutine of its own, so that they do not wait for each other.
type failing struct {
	most int

	mu      sync.Mutex
	running int
	waiting []*failed
}

// failed is a message that waits for a goroutine.
type failed struct {
	finish func() // nil: somebody has taken it
	unwait func() bool
}

// run has finish called, which carries on with a message. It calls finish itself if ctx has
// ended, because nothing that takes time is done for the message then. A message whose ctx
// ends while it waits for a goroutine waits no longer.
func (f *failing) run(ctx context.Context, finish func()) {
	if ctx.Err() != nil {
		finish()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running < f.most {
		f.running++
		go f.work(finish) // counted in the window
		return
	}
	m := &failed{finish: finish}
	m.unwait = context.AfterFunc(ctx, func() {
		if finish := f.take(m); finish != nil {
			finish()
		}
	})
	f.waiting = append(f.waiting, m)
}

func (f *failing) work(finish func()) {
	defer func() {
		if finish != nil { // it has ended the goroutine
			go f.work(f.next())
		}
	}()
	for finish != nil {
		finish()
		finish = f.next()
	}
}

// next returns nil at the end of the goroutine.
func (f *failing) next() func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.waiting) > 0 {
		m := f.waiting[0]
		f.waiting[0] = nil
		f.waiting = f.waiting[1:]
		if finish := m.finish; finish != nil {
			m.finish = nil
			m.unwait()
			return finish
		}
	}
	f.waiting = nil
	f.running--
	return nil
}

// take returns nil if somebody else has taken the message.
func (f *failing) take(m *failed) (finish func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	finish, m.finish = m.finish, nil
	return finish
}
