package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// session is the consuming on one channel. What it delivered is settled on it
// or, after its end, by nobody: the broker delivers again.
type session struct {
	*run
	channel *connection.Session
	route   topology.Route
	acks    acker
	copies  copies

	deliveries <-chan amqp.Delivery
	cancelled  <-chan string // the broker ended the consuming
	tag        string
	prefetch   int
	beat       *beat
	quiet      chan struct{} // closed once a stop has ended the fetching

	// work is the ctx of handlers. It ends with the session, or when a stop
	// has lasted for DrainTimeout.
	work     context.Context
	stopWork context.CancelCauseFunc

	// settling is the ctx of copies. It ends with the session, or a little
	// after work when stopping: what a handler has returned is still settled.
	settling     context.Context
	stopSettling context.CancelCauseFunc
}

// session consumes on one channel until that is lost or Run is to stop, and
// reports whether it has come so far as to consume.
func (r *run) session() (consumed bool, err error) {
	route, err := topology.Resolve(r.stop, r.conn, r.source)
	if err != nil {
		return false, err
	}
	channel, err := r.conn.Session(r.stop, connection.Consume)
	if err != nil {
		return false, err
	}
	s := &session{run: r, channel: channel, route: route, acks: acker{channel: channel.Channel(), socket: channel}, quiet: make(chan struct{})}
	s.work, s.stopWork = context.WithCancelCause(context.WithoutCancel(r.stop))
	s.settling, s.stopSettling = context.WithCancelCause(context.WithoutCancel(r.stop))
	over := make(chan struct{})
	defer close(over)
	go s.watch(over)
	defer s.end()

	// One for each consumer that a session has at a time.
	s.cancelled = channel.Channel().NotifyCancel(make(chan string, 2))
	careful := route.DeliveryLimit() > 0
	prefetch := r.cfg.Concurrency
	if careful {
		prefetch = 1
	}
	if err := s.consume(prefetch); err != nil {
		return false, err
	}
	s.beat = newBeat()
	defer s.beat.timer.Stop()
	r.health.alive(s.beat.last)
	for {
		select {
		case raw, ok := <-s.deliveries:
			if !ok {
				return true, s.reasonForEnd()
			}
			s.beat.last = time.Now()
			if careful && !suspicious(route, raw, channel.Server().Version) {
				careful = false
				if err := s.widen(); err != nil {
					s.giveBack(raw) // matters at a stop: see there
					return true, err
				}
			}
			if !s.start(raw) && r.stop.Err() != nil {
				return true, s.drain(raw)
			}
		case <-s.beat.timer.C:
			if err := s.look(r.mute || len(s.places) >= s.prefetch); err != nil && r.stop.Err() == nil {
				r.mute = connection.ClassOf(err) == connection.Configuration // consumer_max_per_channel
				return true, err
			}
		case <-channel.Done():
			return true, channel.Err()
		case <-r.stop.Done():
			return true, s.drain()
		}
	}
}

// suspicious reports whether consumers have died so often while they had this
// message that half its delivery limit is used up. Until a message is not, the
// broker hands out one at a time: a crash then counts against the guilty
// message alone and not against those that were fetched with it.
func suspicious(route topology.Route, raw amqp.Delivery, v connection.Version) bool {
	history, _ := xdeath.Parse(raw.Headers) // what is malformed is logged when it is handled
	crashes := history.DeliveryCount
	if !v.AtLeast(4, 3) {
		crashes -= history.Count(route.Queue, xdeath.Rejected) // counted too, on 4.0 to 4.2
	}
	return crashes >= route.DeliveryLimit()/2
}

// consume starts the deliveries.
func (s *session) consume(prefetch int) error {
	s.tag, s.prefetch = fmt.Sprintf("rehop-%s-%d", s.host, prefetch), prefetch
	err := s.channel.Do(s.stop, func(ch *amqp.Channel) (err error) {
		if err = ch.Qos(prefetch, 0, false); err != nil {
			return err
		}
		s.deliveries, err = ch.Consume(s.route.Queue, s.tag, false, false, false, false, nil)
		return err
	})
	if err == nil {
		return nil
	}
	return s.consumeError(err)
}

func (s *session) consumeError(err error) error {
	var reason *amqp.Error
	if errors.As(err, &reason) && reason.Code == amqp.NotFound {
		return fmt.Errorf("consumer: queue %q does not exist: declare it first: %w", s.route.Queue, err)
	}
	return fmt.Errorf("consumer: consume from queue %q: %w", s.route.Queue, err)
}

// widen replaces a consumer of one message at a time by one of the configured
// concurrency.
func (s *session) widen() error {
	if s.cfg.Concurrency == 1 {
		return nil
	}
	one := s.deliveries
	if err := s.cancel(); err != nil {
		return err
	}
	for raw := range one {
		s.giveBack(raw) // cannot be: its one message is unsettled
	}
	return s.consume(s.cfg.Concurrency)
}

// cancel ends the fetching. A stop must not wait longer for it than for the
// handlers: then the socket goes, and with it what was fetched.
func (s *session) cancel() error {
	ctx, end := context.WithTimeout(context.WithoutCancel(s.stop), s.cfg.DrainTimeout)
	defer end()
	return s.channel.Do(ctx, func(ch *amqp.Channel) error { return ch.Cancel(s.tag, false) })
}

// start hands a delivery to a handler as soon as there is a place for it. It
// returns false if the session has ended or Run is to stop before.
func (s *session) start(raw amqp.Delivery) bool {
	for {
		select {
		case s.places <- struct{}{}:
			s.unsettled.Add(1)
			j := job{session: s, raw: raw, entry: &unsettled{tag: raw.DeliveryTag}}
			s.acks.received(j.entry)
			s.crew.hand(j)
			return true
		case <-s.beat.timer.C:
			_ = s.look(true) // asks nothing, and so cannot fail
		case <-s.channel.Done():
			return false
		case <-s.stop.Done():
			return false
		}
	}
}

// giveBack requeues a delivery that was not started. Unlike the closing of the
// channel, that does not count towards the delivery limit of a 4.3 broker.
func (s *session) giveBack(raw amqp.Delivery) {
	// An error means a lost session, which gives the delivery back too.
	_ = s.channel.Channel().Nack(raw.DeliveryTag, false, true)
}

// drain stops in this order: the fetching, what was not started, the handlers
// with their copies and acks. The channel is closed last, by end.
func (s *session) drain(unstarted ...amqp.Delivery) error {
	s.health.fail(errStopping)
	over := time.Now().Add(s.cfg.DrainTimeout + stuckGrace)
	hard := time.AfterFunc(s.cfg.DrainTimeout, func() { s.stopWork(ErrStopped) })
	defer hard.Stop()
	harder := time.AfterFunc(s.cfg.DrainTimeout+stuckGrace/2, func() { s.stopSettling(ErrStopped) })
	defer harder.Stop()
	if err := s.cancel(); err != nil {
		return err
	}
	close(s.quiet)
	for _, raw := range unstarted {
		s.giveBack(raw)
	}
	for raw := range s.deliveries {
		s.giveBack(raw)
	}
	s.stopped, s.drained = true, s.wait(time.Until(over))
	return nil
}

// reasonForEnd tells why the deliveries ended.
func (s *session) reasonForEnd() error {
	// The library puts the cancel in before it ends the deliveries, and closes
	// both when the channel is lost.
	if _, ok := <-s.cancelled; ok {
		return fmt.Errorf("consumer: the broker cancelled the consuming of queue %q: it was deleted, is not available, or a message was kept longer than its consumer timeout", s.route.Queue)
	}
	<-s.channel.Done()
	return s.channel.Err()
}

// watch tells the handlers as soon as the channel is lost.
func (s *session) watch(over <-chan struct{}) {
	select {
	case <-s.channel.Done():
		s.tell(s.channel.Err())
	case <-over:
	}
}

// tell ends the ctx of handlers and copies; the first cause counts.
func (s *session) tell(cause error) {
	s.stopWork(cause)
	s.stopSettling(cause)
}

// end tells the handlers that still run, and closes the channel.
func (s *session) end() {
	s.tell(cmp.Or(s.channel.Err(), connection.ErrSessionLost))
	// What is unsettled on it goes back to the queue; nothing else is lost.
	_ = s.channel.Close()
}
