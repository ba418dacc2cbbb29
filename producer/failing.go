package producer

import "sync"

// failing carries on with messages whose first try has failed: it sends them again, or
// gives them to a sink. It works on at most most of them at a time, each on a
// goroutine of its own, so that they do not wait for each other.
type failing struct {
	most int

	mu      sync.Mutex
	running int
	waiting []func()
}

func (f *failing) run(finish func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == f.most {
		f.waiting = append(f.waiting, finish)
		return
	}
	f.running++
	go f.work(finish) // counted in the window
}

func (f *failing) work(finish func()) {
	for finish != nil {
		finish()
		finish = f.next()
	}
}

// next returns nil at the end of the goroutine.
func (f *failing) next() func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) == 0 {
		f.waiting = nil
		f.running--
		return nil
	}
	finish := f.waiting[0]
	f.waiting[0] = nil
	f.waiting = f.waiting[1:]
	return finish
}
