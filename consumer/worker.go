package consumer

import amqp "github.com/rabbitmq/amqp091-go"

// job is a delivery in the hands of a worker.
type job struct {
	session *session
	raw     amqp.Delivery
	entry   *unsettled
}

// hand gives a job, which has its place, to an idle worker or to a new one.
// Workers are kept because the stack of a new goroutine has to grow at each
// delivery, which costs more than all else that is done for a message.
func (r *run) hand(j job) {
	select {
	case r.jobs <- j:
		return
	default:
	}
	if int(r.workers.Load()) < cap(r.places) {
		r.hire(j)
		return
	}
	// As many workers as places, one of which this job has: one worker has
	// given its place back and is about to receive.
	r.jobs <- j
}

// hire is apart from hand because its closure puts the job on the heap.
func (r *run) hire(j job) {
	r.workers.Add(1)
	r.ended.Go(func() { r.work(j) })
}

// work does jobs until there are no more to come.
func (r *run) work(j job) {
	for ok := true; ok; j, ok = <-r.jobs {
		r.do(j)
	}
}

func (r *run) do(j job) {
	alive := false
	defer func() {
		if !alive { // runtime.Goexit: before the place is free, see hand
			r.workers.Add(-1)
		}
		<-r.places
		r.handlers.Done()
	}()
	j.session.handle(j.raw, j.entry)
	alive = true
}
