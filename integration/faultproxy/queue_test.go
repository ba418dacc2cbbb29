package faultproxy

import (
	"testing"
	"testing/synctest"
	"time"
)

// A receiver that takes nothing is felt by the sender; latency is not.
func TestQueueWaitsOnlyForReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		late := time.Now().Add(time.Second)
		puts := 0
		go func() {
			for q.put(chunk{data: make([]byte, window), due: late}) {
				if puts++; puts == 10 {
					time.Sleep(2 * time.Second) //nolint:forbidigo // moves the bubble's clock until all are overdue
				}
			}
		}()
		synctest.Wait()
		if puts != 10 {
			t.Errorf("%d windows put before they are due, want 10", puts)
		}
		start := time.Now()
		if _, ok := q.take(); !ok || time.Since(start) != time.Second {
			t.Errorf("took a chunk after %v, %t, want 1s, true", time.Since(start), ok)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if puts != 10 {
			t.Errorf("%d windows put while 9 are overdue, want 10", puts)
		}
		for range 9 {
			q.take()
		}
		synctest.Wait()
		if puts != 11 {
			t.Errorf("%d windows put when all were taken, want 11", puts)
		}
		q.close()
		if _, ok := q.take(); ok {
			t.Error("a closed queue gives a chunk")
		}
	})
}
