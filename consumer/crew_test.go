package consumer

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"
)

func numbered(n uint64) job { return job{raw: amqp.Delivery{DeliveryTag: n}} }

func TestAJobWaitsForNoHandlerThatIsAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 50
		var started sync.WaitGroup
		started.Add(jobs)
		c := newCrew(jobs, func(job) {
			started.Done()
			started.Wait() // until all others have started too; synctest notices if they do not
		})
		for round := range 3 { // of new workers, then of idle ones
			if round > 0 {
				started.Add(jobs)
			}
			for n := range uint64(jobs) {
				c.hand(numbered(n))
			}
			synctest.Wait()
			if len(c.jobs) > 0 || len(c.idle) == 0 {
				t.Errorf("round %d: %d jobs are left, %d workers idle", round, len(c.jobs), len(c.idle))
			}
		}
		c.dismiss()
		c.workers.Wait()
	})
}

func TestAJobIsDoneOnceWhateverBecameOfTheWorkerBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs, atATime = 200, 10
		var mu sync.Mutex
		done := map[uint64]int{}
		c := newCrew(atATime, func(j job) {
			mu.Lock()
			done[j.raw.DeliveryTag]++
			mu.Unlock()
			switch j.raw.DeliveryTag % 3 {
			case 0:
				runtime.Goexit()
			case 1:
				runtime.Gosched()
			}
		})
		for n := range uint64(jobs) {
			c.hand(numbered(n))
			if n%atATime == atATime-1 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		for n := range uint64(jobs) {
			if done[n] != 1 {
				t.Errorf("job %d was done %d times", n, done[n])
			}
		}
		c.dismiss()
		c.workers.Wait()
	})
}

func TestNoMoreWorkersStayIdleThanThereAreJobsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atATime, workers = 2, 6
		all := make(chan struct{})
		var c *crew
		c = newCrew(atATime, func(j job) {
			if j.raw.DeliveryTag == workers {
				close(all)
			} else {
				c.hand(numbered(j.raw.DeliveryTag + 1)) // needs one more worker
			}
			<-all
		})
		c.hand(numbered(1))
		synctest.Wait()
		if len(c.idle) != atATime {
			t.Errorf("%d workers are idle, want %d of %d", len(c.idle), atATime, workers)
		}
		c.dismiss()
		c.workers.Wait()
	})
}

func TestADismissedWorkerEndsWhenItsHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		c := newCrew(2, func(job) { <-hold })
		c.hand(numbered(1))
		c.hand(numbered(2))
		synctest.Wait()
		c.dismiss()
		ended := make(chan struct{})
		go func() {
			c.workers.Wait()
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("workers have ended while their handlers run")
		default:
		}
		close(hold)
		<-ended
	})
}
