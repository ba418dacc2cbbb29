package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/producer"
)

// The first message of a channel to a queue whose process stands still waits
// within the broker's channel, with everything behind it. What goes elsewhere is
// confirmed all the same.
func TestAQueueThatDoesNotAnswerHoldsUpNoPublish(t *testing.T) {
	everywhere(t, func(e *env) {
		stuck, free := e.rawQueue(e.name("stuck"), nil), e.rawQueue(e.name("free"), nil)
		resume := e.suspend(stuck)
		p := e.newProducer(producer.Config{Timeout: 6 * patience})
		if _, err := p.Publish(e.Context(), producer.Message{RoutingKey: e.rawQueue(e.name("other"), nil)}); err != nil {
			e.Fatal(err) // the channel is open
		}
		var waiting sync.WaitGroup
		var stuckReceipts sync.Map // by the message
		for i := range 3 {
			waiting.Add(1)
			p.PublishAsync(e.Context(), producer.Message{RoutingKey: stuck, ID: fmt.Sprintf("stuck-%d", i)}, func(r producer.Receipt, err error) {
				defer waiting.Done()
				stuckReceipts.Store(r.ID, r)
				if err != nil || r.Place != producer.PlaceQueue {
					e.Errorf("Publish to the queue that stood still: %+v, %v", r, err)
				}
			})
		}
		copies := map[string]producer.Receipt{}
		var mu sync.Mutex
		var confirmed sync.WaitGroup
		for i := range 20 {
			confirmed.Go(func() {
				ctx, cancel := context.WithTimeout(e.Context(), patience/3) // it takes about a second; without end if held up
				defer cancel()
				r, err := p.Publish(ctx, producer.Message{RoutingKey: free, ID: fmt.Sprintf("free-%d", i)})
				if err != nil {
					e.Error(err)
				}
				mu.Lock()
				copies[r.ID] = r
				mu.Unlock()
			})
		}
		e.until("what goes elsewhere is confirmed", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(copies) == 20
		})
		confirmed.Wait()
		resume()
		waiting.Wait()
		there, since := 0, time.Now()
		e.until("every message is there, and no second copy comes any more", func() bool {
			if n := e.count(free); n != there {
				there, since = n, time.Now()
			}
			return e.count(stuck) >= 3 && there >= 20 && time.Since(since) > 2*time.Second
		})
		inStuck := map[string]int{}
		for _, d := range e.take(stuck, e.count(stuck)) {
			inStuck[d.MessageId]++
		}
		for i := range 3 {
			id := fmt.Sprintf("stuck-%d", i)
			r, _ := stuckReceipts.Load(id)
			if receipt, _ := r.(producer.Receipt); inStuck[id] == 0 || inStuck[id] > 1 && !receipt.MaybeDuplicate {
				e.Errorf("message %q is %d times in the queue that stood still, its receipt is %+v", id, inStuck[id], receipt)
			}
		}
		found := map[string]int{}
		for _, d := range e.take(free, there) {
			found[d.MessageId]++
		}
		for id, n := range found {
			if r, known := copies[id]; !known || n > 1 && !r.MaybeDuplicate {
				e.Errorf("message %q is in its queue %d times, its receipt is %+v", id, n, r)
			}
		}
		// Nothing is set apart any more, or soon will not be.
		if _, err := p.Publish(e.Context(), producer.Message{RoutingKey: stuck}); err != nil {
			e.Error(err)
		}
	}, "publish: a queue that does not answer holds no other up")
}

// A quorum queue of 3.10 that has refused a message of a channel goes on refusing
// what comes on that channel, when the reason is gone.
func TestAQueueThatRefusedIsPublishedToAgain(t *testing.T) {
	everywhere(t, func(e *env) {
		queue := e.rawQueue(e.name("q"), nil)
		clearPolicy := e.setPolicy("policies", "policy", "^"+quoted(queue)+"$", map[string]any{"max-length": 1, "overflow": "reject-publish"})
		p := e.newProducer(producer.Config{})
		publish := func() error {
			_, err := p.Publish(e.Context(), producer.Message{RoutingKey: queue})
			if err != nil && !errors.Is(err, producer.ErrNacked) {
				e.Fatal(err)
			}
			return err
		}
		e.until("the queue is full", func() bool { return publish() != nil })
		again, over := time.NewTicker(200*time.Millisecond), time.After(8*time.Second)
		defer again.Stop()
	refused:
		for {
			select {
			case <-again.C:
				_ = publish()
			case <-over:
				break refused
			}
		}
		clearPolicy()
		e.until("messages are confirmed without the policy", func() bool { return publish() == nil })
	}, "publish: a queue that refused is published to again")
}
