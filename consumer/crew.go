package consumer

import (
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// job is a delivery in the hands of the consumer. From its start until it is
// settled it has one of the run's places.
type job struct {
	session *session
	raw     amqp.Delivery
	entry   *unsettled
}

// crew is the goroutines that handle deliveries. A job waits for no handler
// that is at work, only for a goroutine to begin.
//
// Workers are kept, and the one that was idle for the shortest time is called
// first, because a goroutine's stack has to grow at its first delivery and is
// taken away again while it is idle: that costs more than all else that is done
// for a message. And one is called at a time, which calls the next if there is
// more to do: where handlers are quick, two or three workers are enough for
// deliveries that come together, and the others need not be woken.
type crew struct {
	do func(job) // may end its goroutine

	mu      sync.Mutex
	jobs    chan job        // that wait, with room for all
	idle    []chan struct{} // one element wakes a worker
	called  bool            // a worker is on its way to take a job
	over    bool
	workers sync.WaitGroup
}

// newCrew returns a crew for so many jobs at a time.
func newCrew(jobs int, do func(job)) *crew { return &crew{do: do, jobs: make(chan job, jobs)} }

// hand gives a job to a worker.
func (c *crew) hand(j job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs <- j
	c.call()
}

// call sees to it that somebody comes for a job that waits. It needs c.mu held.
func (c *crew) call() {
	if c.called || len(c.jobs) == 0 {
		return
	}
	c.called = true
	if last := len(c.idle) - 1; last >= 0 {
		c.idle[last] <- struct{}{}
		c.idle = c.idle[:last]
		return
	}
	c.workers.Go(c.work)
}

// work does jobs until there are no more to come.
func (c *crew) work() {
	woken := make(chan struct{}, 1)
	for j, ok := c.next(woken, true); ok; j, ok = c.next(woken, false) {
		c.do(j)
	}
}

// next returns a job, or false if the worker is to end.
func (c *crew) next(woken chan struct{}, called bool) (job, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if called {
			c.called = false
		}
		if len(c.jobs) > 0 {
			j := <-c.jobs
			c.call()
			return j, true
		}
		if c.over || len(c.idle) == cap(c.jobs) {
			return job{}, false
		}
		c.idle = append(c.idle, woken)
		c.mu.Unlock()
		<-woken
		c.mu.Lock()
		called = true
	}
}

// dismiss ends the workers, each when its handler has returned.
func (c *crew) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, woken := range c.idle {
		woken <- struct{}{}
	}
	c.idle = nil
}
