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
	most int       // workers to keep idle
	do   func(job) // may end its goroutine

	mu      sync.Mutex
	jobs    []job // from first on
	first   int
	idle    []chan struct{} // one element wakes a worker
	called  bool            // a worker is on its way to take a job
	over    bool
	workers sync.WaitGroup
}

// hand gives a job to a worker.
func (c *crew) hand(j job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, j)
	c.call()
}

// call sees to it that somebody comes for a job that waits. It needs c.mu held.
func (c *crew) call() {
	if c.called || c.first == len(c.jobs) {
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
		if c.first < len(c.jobs) {
			j := c.jobs[c.first]
			c.jobs[c.first] = job{}
			if c.first++; c.first == len(c.jobs) {
				c.jobs, c.first = c.jobs[:0], 0
			}
			c.call()
			return j, true
		}
		if c.over || len(c.idle) == c.most {
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
