package faultproxy

import (
	"sync"
	"time"
)

// window is how many bytes may wait for a receiver that does not take them.
const window = 64 << 10

// queue delays chunks and keeps their order. One goroutine puts, one takes.
type queue struct {
	mu     sync.Mutex
	moved  *sync.Cond
	chunks []chunk
	size   int           // bytes in chunks
	done   chan struct{} // closed with the queue
	closed bool
}

// chunk is some bytes of a stream, or its end.
type chunk struct {
	data []byte
	end  error
	due  time.Time
}

func newQueue() *queue {
	q := &queue{done: make(chan struct{})}
	q.moved = sync.NewCond(&q.mu)
	return q
}

// put waits while a window of bytes is overdue. Bytes that are not due never
// make it wait, or latency would limit throughput. It reports false when the
// queue is closed.
func (q *queue) put(c chunk) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && q.size >= window && !q.chunks[0].due.After(time.Now()) {
		q.moved.Wait()
	}
	if q.closed {
		return false
	}
	q.chunks = append(q.chunks, c)
	q.size += len(c.data)
	q.moved.Signal()
	return true
}

// take waits for the next chunk to be due. It reports false when the queue is
// closed.
func (q *queue) take() (chunk, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && len(q.chunks) == 0 {
		q.moved.Wait()
	}
	if !q.closed {
		q.waitUntil(q.chunks[0].due)
	}
	if q.closed {
		return chunk{}, false
	}
	c := q.chunks[0]
	q.chunks = q.chunks[1:]
	q.size -= len(c.data)
	q.moved.Signal()
	return c, true
}

// waitUntil lets go of mu meanwhile. It ends early when the queue is closed.
func (q *queue) waitUntil(due time.Time) {
	wait := time.Until(due)
	if wait <= 0 {
		return
	}
	q.mu.Unlock()
	defer q.mu.Lock()
	select {
	case <-time.After(wait):
	case <-q.done:
	}
}

// close drops what is in the queue. Call it once.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.chunks = nil
	close(q.done)
	q.moved.Broadcast()
}
