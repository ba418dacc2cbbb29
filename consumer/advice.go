package consumer

import (
	"context"
	"sync/atomic"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/route"
)

// warnOfPrefetch logs each prefetch that handlers or priorities cannot use.
func (c *Consumer) warnOfPrefetch() {
	sum := 0
	for _, p := range c.parts {
		inHand := p.cfg.Concurrency * p.cfg.Batch.size()
		sum += p.cfg.Prefetch
		if p.source.ByPriority && p.cfg.Prefetch > inHand {
			p.cfg.Logger.Warn("the prefetch defeats the priorities: messages that were sent ahead are handled before one of higher priority that comes later",
				"queue", p.queue, "prefetch", p.cfg.Prefetch, "concurrency", p.cfg.Concurrency, "batch", p.cfg.Batch.size())
		}
	}
	if inHand := c.cfg.Concurrency * c.cfg.Batch.size(); sum > 0 && sum < inHand {
		c.cfg.Logger.Warn("the prefetch leaves handlers idle: fewer messages are sent than the handlers take; set Config.Prefetch to at least Concurrency (of batches: times Batch.Size), or to 0",
			"queue", c.parts[0].queue, "prefetch", c.cfg.Prefetch, "concurrency", c.cfg.Concurrency, "batch", c.cfg.Batch.size())
	}
}

// keyAdvice warns, once, where the keys of messages and the Config do not go together.
type keyAdvice struct {
	over    atomic.Bool  // it has warned, or there is no reason to
	keyless atomic.Int64 // messages so far; none had a key
}

// manyKeyless is how many messages without a key are no chance: where keys are in use, most
// messages have one.
const manyKeyless = 100

// note notes a message whose handler is about to run: key is the one that KeyLimit goes by.
func (k *keyAdvice) note(r *run, key, orderKey string) {
	if k.over.Load() {
		return
	}
	switch {
	case r.cfg.KeyLimit > 0 && key == "":
		if k.keyless.Add(1) == manyKeyless && k.over.CompareAndSwap(false, true) {
			r.log.Warn("Config.KeyLimit has no effect so far: no message has had a key; producers set Message.OrderKey, or Config.Key returns one", "queue", r.queue, "messages", manyKeyless)
		}
	case r.cfg.KeyLimit == 0 && orderKey != "" && r.cfg.Concurrency > 1 && (r.cfg.RetryInPlace || r.source.Single):
		if k.over.CompareAndSwap(false, true) {
			r.log.Warn("messages of one OrderKey are handled side by side: set Config.KeyLimit to 1 to handle them one after the other", "queue", r.queue, "concurrency", r.cfg.Concurrency)
		}
	case key != "":
		k.over.Store(true)
	}
}

// look asks for the consumers and the messages of a queue before a session begins to consume it, if the answer
// matters. Where other consumers would break the order of keys, look waits for those that are just ending: their
// messages come back when they have gone. The answer to a channel.close does not say so, because a quorum queue
// learns of the end of a channel later. look warns of consumers that stay. It reports whether another process may be
// declaring the queue, on a broker that would end the connection if the queue were consumed then.
func (s *session) look(first bool) (mayBeNew bool) {
	r, found := s.run, s.terms.route
	delicate := first && !s.channel.Server().Version.AtLeast(4, 0) && (found.DeliveryLimit != 0 || found.Kind == route.Letters)
	inOrder := r.cfg.KeyLimit == 1 && !found.Single
	if !delicate && !inOrder {
		return false
	}
	aside := ask.Aside{Conn: r.conn}
	defer aside.Close()
	depth, err := aside.DepthOf(r.stop, r.queue)
	if err != nil {
		return false
	}
	mayBeNew = delicate && depth.Ready == 0 && depth.Consumers == 0
	if !inOrder {
		return mayBeNew
	}
	ctx, end := context.WithTimeout(r.stop, durations.OthersLeave)
	defer end()
	for depth.Consumers > r.others && pause.For(ctx, durations.OthersAsked) {
		later, err := aside.DepthOf(ctx, r.queue)
		if err != nil || later.Unknown {
			break
		}
		depth = later
	}
	if first && depth.Consumers > 0 {
		r.log.Warn("the queue has other consumers: Config.KeyLimit keeps the order of a key within one consumer only; for several processes set topology.WorkQueue.SingleActiveConsumer", "queue", r.queue, "others", depth.Consumers)
	}
	r.others = depth.Consumers
	return mayBeNew
}
