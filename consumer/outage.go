package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

// Outage says when the handlers' [Hold] outcomes count as an outage. In an
// outage the consumer gives the messages that no handler has begun back to the queue,
// so that other consumers can have them. After growing pauses it tries one message at a
// time: in turn a message that it holds and, if a handler is free, the next message of
// the queue. The outage ends with the first other outcome, and all handlers go on at
// once. An outage spends no attempt. Health is degraded while it lasts, but not after
// MaxPause without a message to try, such as when other consumers have handled them
// all. The next message that comes is tried alone, and Health is degraded again if the
// handler says Hold. Each lane of topology.Lanes has its own outages.
//
// Messages that are held go back to the queue after 15 minutes, or after half of the
// consumer timeout if that is less. Where returns count towards the delivery limit,
// before broker 4.3, a message that has used up half of it goes to the end of the queue
// instead, as a confirmed copy. While the broker confirms no copies either, as in an
// alarm, the consumer then consumes nothing. With a Config.KeyLimit of 1, and on a queue with a
// single active consumer, all messages in hand go back together, to their places, and
// none before that time has passed.
type Outage struct {
	// Off says that there is no outage, whatever the other fields are.
	Off bool

	// Share of the last Runs that must be Hold, more than 0 and up to 1.
	// Defaults to 0.5. If Concurrency is at least
	// 2 and less than that share of Runs, as many Hold runs as Concurrency are
	// enough. An outage also begins when such messages, of all lanes together, have taken
	// every slot of a Concurrency of at least 2, or those of one lane every slot of a
	// LaneLimits.Concurrency of at least 2, or if two or more are held and all other messages in
	// hand wait for keys, see Config.KeyLimit: no other message can be handled then.
	Share float64

	// Runs is how many of the latest runs of the handler count. Only the first run
	// for each message, or batch, counts. Up to 1,000; defaults to 10. A run for a
	// batch counts as Hold if at least Share of its messages are. A message that is held
	// keeps its slot for up to 15 minutes. So with a Concurrency of 1 the runs for an outage
	// come that slowly, and 2 or more find it at once.
	Runs int

	// MaxPause is the longest pause between two tries, while there are messages. At least
	// 1 s; defaults to 10 s.
	MaxPause time.Duration
}

func (o Outage) withDefaults() Outage {
	o.Share = cmp.Or(o.Share, 0.5)
	o.Runs = cmp.Or(o.Runs, 10)
	o.MaxPause = cmp.Or(o.MaxPause, durations.OutageMaxPause)
	return o
}

func (o Outage) validate() error {
	var errs []error
	if !(o.Share > 0 && o.Share <= 1) { // nor NaN
		errs = append(errs, fmt.Errorf("consumer: Config.Outage.Share is %v, want more than 0, up to 1, or 0 for 0.5", o.Share))
	}
	if o.Runs < 1 || o.Runs > 1000 {
		errs = append(errs, fmt.Errorf("consumer: Config.Outage.Runs is %d, want 1 to 1000, or 0 for 10", o.Runs))
	}
	if o.MaxPause < time.Second {
		errs = append(errs, fmt.Errorf("consumer: Config.Outage.MaxPause is %v, want 1s or more, or 0 for 10s", o.MaxPause))
	}
	return errors.Join(errs...)
}

// from returns how many of the last runs make an outage, 0 for never.
func (o Outage) from(slots int) int {
	from := int(math.Ceil(o.Share * float64(o.Runs)))
	switch {
	case o.Off:
		return 0
	case slots > 1:
		return min(from, slots)
	}
	return from
}

// noteRun notes how the handler has fared with messages. The run counts as Hold if such a share
// of them is.
func (h *handling) noteRun(results []result) {
	if h.in.Working.Err() != nil {
		return // the handler was told to end, and may say anything
	}
	r, w, held := h.run, h.worker, 0
	for i := range results {
		if results[i].outcome.Action == ActionHold {
			held++
			text := results[i].text
			r.latestHold.Store(&text)
		}
	}
	isHold := held > 0 && float64(held) >= r.cfg.Outage.Share*float64(len(results))
	changed := r.lane.Note(h.grant, isHold, time.Now(), &w.Out)
	r.pool.Do(&w.Out) // a batch may have other runs, and they take their time
	switch {
	case changed && isHold:
		r.OutageBegan()
	case changed:
		r.log.Info("outage over", "queue", r.queue)
	}
}

// holdText returns the text of the latest error of Hold.
func (r *run) holdText() string {
	if text := r.latestHold.Load(); text != nil {
		return *text
	}
	return ""
}

// OutageBegan says that an outage has begun. It is called by package work, too.
func (r *run) OutageBegan() {
	r.log.Warn("outage, one message at a time is handled until it is over", "queue", r.queue, "error", r.holdText())
}
