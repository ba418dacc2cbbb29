package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// session is the consuming on one channel. What it delivers is settled on that
// channel or, after its end, by nobody: the broker delivers again.
//
// It turns deliveries into messages and queues them for the workers. What has become
// of them it sees in the counters of its origin, and in what its acker still has.
type session struct {
	conn     *connection.Conn
	channel  *connection.Session
	queue    string
	careful  int // half the delivery limit; 0 for none
	workers  *lane
	health   *health
	timeouts *timeouts
	drainFor time.Duration
	handled  *atomic.Int64 // messages that handlers are through with
	troubles *troubles
	resolve  func(context.Context) error // looks for the parts of the topology; errRewired: others are in use now
	rewired  chan struct{}               // has an element when resolve has returned errRewired
	began    func()                      // is called for each message before anybody has it

	from       *origin
	stop       context.Context // ends when Run is to stop
	deliveries <-chan amqp.Delivery
	cancelled  <-chan string // the broker ended the consuming
	host       string
	tag        string
	consumers  int // started on the channel so far
	prefetch   int
	pace       pace
	innocent   bool      // a message has come that is not suspect
	suspected  time.Time // when a suspect one came last
	live       *liveness
	resolving  atomic.Bool
	tasks      sync.WaitGroup      // beside the consuming
	counting   *connection.Session // of the task that asks the queue, nil before the first

	stopWork, stopSettling context.CancelCauseFunc
}

// run consumes until the channel is lost or Run is to stop. wait waits for
// the messages in hand, no longer than it is told to.
func (s *session) run(wait func(time.Duration)) error {
	probing, stopProbing := context.WithCancel(s.from.settling)
	tag := s.tag + "-health" // a resize changes s.tag while a probe is under way
	s.live = newLiveness(func() error { return probeQueue(probing, s.conn, s.queue, tag) })
	defer s.live.close()
	defer stopProbing()
	s.health.alive(s.live.sign)
	s.pace.began, s.pace.handled = time.Now(), s.handled.Load()
	s.pace.redelivered(s.pace.handled, s.pace.began)
	measure := time.NewTimer(staleAfter)
	defer measure.Stop()
	measuring := true
	for {
		if !measuring && s.prefetch != s.pace.base { // else the deliveries are occasion enough
			measure.Reset(staleAfter)
			measuring = true
		}
		select {
		case raw, ok := <-s.deliveries:
			if !ok {
				return s.reasonForEnd()
			}
			s.live.sign = time.Now()
			s.receive(raw, s.live.sign)
			if err := s.adapt(s.live.sign); err != nil {
				return err
			}
		case <-s.from.cleared:
			if err := s.adapt(time.Now()); err != nil {
				return err
			}
		case now := <-measure.C:
			measuring = false
			if err := s.adapt(now); err != nil {
				return err
			}
		case <-s.live.timer.C:
			s.live.look(s.busy())
			s.health.alive(s.live.sign)
			s.resolveAgain()
		case <-s.rewired:
			return errRewired
		case err := <-s.live.answers:
			s.answered(err)
		case _, ok := <-s.cancelled:
			if ok { // this consumer, or an earlier one with messages here
				return s.cancelledByBroker()
			}
			<-s.channel.Done()
			return s.channel.Err()
		case <-s.channel.Done():
			return s.channel.Err()
		case <-s.stop.Done():
			return s.drain(wait)
		}
	}
}

// errRewired ends a session whose route is not that of the queue any more.
var errRewired = errors.New("consumer: copies are not confirmed, and the queue has other waits by now: consuming begins anew")

// resolveAgain has the parts of the topology looked for, once copies to one of
// them have not been confirmed for long: one may be missing, and Health says so.
// If it was deleted and another is in its place, only another session uses that.
func (s *session) resolveAgain() {
	since := s.troubles.failingSince()
	if since.IsZero() || time.Since(since) < resolveAfter || !s.resolving.CompareAndSwap(false, true) {
		return
	}
	s.tasks.Go(func() {
		defer s.resolving.Store(false)
		ctx, cancel := context.WithTimeout(s.from.settling, probeLimit)
		defer cancel()
		err := s.resolve(ctx)
		if errors.Is(err, errRewired) {
			select {
			case s.rewired <- struct{}{}:
			default:
			}
			return
		}
		s.troubles.resolved(err)
	})
}

// busy reports whether the broker waits for us and not we for it.
func (s *session) busy() bool { return int(s.from.unsettled.Load()) >= s.prefetch }

// answered takes the answer of the liveness probe. A refusal harms no handler.
func (s *session) answered(err error) {
	s.live.answered(err)
	if err == nil {
		s.health.alive(s.live.sign)
	} else if s.stop.Err() == nil {
		s.health.refused(err)
	}
}

// receive queues a delivery for the workers.
func (s *session) receive(raw amqp.Delivery, now time.Time) {
	m := &message{from: s.from, raw: raw, received: now}
	if raw.Redelivered {
		s.pace.redelivered(s.handled.Load(), now)
	}
	m.suspect = s.careful > 0 && suspicious(s.queue, s.careful, raw, s.channel.Server().Version)
	if m.suspect {
		s.suspected = now
	} else {
		s.innocent = true
	}
	s.take(m)
	s.workers.push(m)
}

// take notes a message that has come.
func (s *session) take(m *message) {
	s.began()
	s.from.arrived(m)
	s.from.acks.received(m)
}

// adapt gives the session the prefetch that its messages and handlers want.
func (s *session) adapt(now time.Time) error {
	if s.prefetch < s.pace.base {
		n := s.pace.base
		if !s.innocent {
			cleared := s.from.suspects.Load()
			if now.Sub(s.suspected) < unclearedFor {
				cleared -= s.from.uncleared.Load()
			}
			n = carefulPrefetch(n, int(cleared))
		}
		if n > s.prefetch {
			return s.resize(n)
		}
		return nil
	}
	if s.pace.fixed || now.Sub(s.pace.began) < bufferedTime {
		return nil
	}
	waited := time.Duration(0)
	if m := s.workers.longestWaiting(); m != nil {
		waited = now.Sub(m.received)
	}
	if n := s.pace.wanted(s.prefetch, s.handled.Load(), int(s.from.unproved.Load()), waited, now); n != s.prefetch {
		return s.resize(n)
	}
	return nil
}

// resize replaces the consumer by one of another prefetch, because basic.qos
// applies to consumers that start after it. What the old one was sent stays,
// unless that is more, with what is in the handlers, than the new one is to have.
func (s *session) resize(prefetch int) error {
	old := s.deliveries
	s.workers.opens()
	if err := s.cancel(); err != nil {
		return err
	}
	for raw := range old {
		s.receive(raw, time.Now())
	}
	if prefetch < s.prefetch {
		s.from.acks.requeue(s.workers.takeBack(max(0, prefetch-s.workers.inHand()))...)
	}
	ctx, end := s.callCtx()
	defer end()
	return s.consume(ctx, prefetch)
}

// consume starts the deliveries.
func (s *session) consume(ctx context.Context, prefetch int) error {
	s.consumers++
	s.tag, s.prefetch = fmt.Sprintf("rehop-%s-%d-%d", s.host, s.consumers, prefetch), prefetch
	began := time.Now()
	var deliveries <-chan amqp.Delivery // a call that is left may still write to it
	err := s.channel.Do(ctx, func(ch *amqp.Channel) (err error) {
		if err = ch.Qos(prefetch, 0, false); err != nil {
			return err
		}
		deliveries, err = ch.Consume(s.queue, s.tag, false, false, false, false, nil)
		return err
	})
	if err == nil {
		s.deliveries = deliveries
		s.workers.opened(&s.from.unsettled, prefetch, time.Since(began), s.ask)
	}
	return consumeError(s.queue, err)
}

// consumeError says what could not be done.
func consumeError(queue string, err error) error {
	var reason *amqp.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &reason) && reason.Code == amqp.NotFound && connection.ClassOf(reason) != connection.Transient:
		return fmt.Errorf("consumer: queue %q does not exist: declare it first: %w", queue, err)
	case errors.As(err, &reason) && reason.Code == amqp.AccessRefused:
		return fmt.Errorf("consumer: consume from queue %q: the user needs permission to read it: %w", queue, err)
	}
	return fmt.Errorf("consumer: consume from queue %q: %w", queue, err)
}

// callCtx is the ctx of calls to the broker while messages are in hand. A stop does
// not cut them off, because a call that is left costs the channel, and the handlers
// their messages. It does not wait longer for them than for the handlers either: then
// the socket goes, and with it what was fetched.
func (s *session) callCtx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.stop), s.drainFor)
}

// cancel ends the fetching.
func (s *session) cancel() error {
	ctx, end := s.callCtx()
	defer end()
	return s.channel.Do(ctx, func(ch *amqp.Channel) error { return ch.Cancel(s.tag, false) })
}

// drain stops in this order: the fetching, what was not started, the handlers
// with their copies and acks. The channel is closed last, by end.
func (s *session) drain(wait func(time.Duration)) error {
	s.health.fail(errStopping)
	s.workers.closed()
	over := time.Now().Add(s.drainFor + stuckGrace)
	hard := time.AfterFunc(s.drainFor, func() { s.stopWork(ErrStopped) })
	defer hard.Stop()
	harder := time.AfterFunc(s.drainFor+stuckGrace/2, func() { s.stopSettling(ErrStopped) })
	defer harder.Stop()
	s.from.acks.requeue(s.workers.takeBack(0)...) // at the end of the fetching
	if err := s.cancel(); err != nil {
		return err
	}
	for raw := range s.deliveries {
		m := &message{from: s.from, raw: raw}
		s.take(m)
		s.from.acks.requeue(m)
	}
	s.from.acks.fetchingEnded()
	wait(time.Until(over))
	return nil
}

// reasonForEnd tells why the deliveries ended.
func (s *session) reasonForEnd() error {
	// The library puts the cancel in before it ends the deliveries, and closes
	// both when the channel is lost.
	if _, ok := <-s.cancelled; !ok {
		<-s.channel.Done()
		return s.channel.Err()
	}
	return s.cancelledByBroker()
}

// cancelledByBroker tells why the broker has cancelled the consuming. Whether a
// message was kept too long shows when it comes again.
func (s *session) cancelledByBroker() error {
	if s.channel.Server().Version.AtLeast(4, 3) {
		s.timeouts.took(s.from.acks.inHand(), false)
	}
	return fmt.Errorf("consumer: the broker cancelled the consuming of queue %q: it was deleted, is not available, or a message was kept longer than its consumer timeout", s.queue)
}

// ended returns why the channel was lost, after a look whether it was a message
// that was kept for too long.
func (s *session) ended(err error) error {
	var reason *amqp.Error
	if !errors.As(err, &reason) || !s.timeouts.closed(reason) {
		return err
	}
	s.timeouts.took(s.from.acks.inHand(), s.channel.Server().Version.AtLeast(4, 3))
	if limit := s.timeouts.handlerLimit(); limit > 0 {
		return fmt.Errorf("consumer: a message of queue %q was kept longer than the broker's consumer timeout of %v: handlers are told to end after %v from now on: %w",
			s.queue, s.timeouts.limit().Round(time.Millisecond), limit.Round(time.Millisecond), err)
	}
	return fmt.Errorf("consumer: a message of queue %q was kept longer than the broker's consumer timeout: %w", s.queue, err)
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

// end tells the handlers that still run, and closes the channel. Nothing is
// settled on it any more: a frame for a closed channel ends the connection.
func (s *session) end() {
	s.tell(cmp.Or(s.channel.Err(), connection.ErrSessionLost))
	if s.live != nil && s.stop.Err() == nil {
		s.workers.opens() // lower lanes wait for the next session as for the first
	} else {
		s.workers.closed()
	}
	s.from.acks.close()
	s.from.acks.requeue(s.workers.takeBack(0)...) // which the end of the channel does
	s.arrive()
	// What is unsettled on it goes back to the queue; nothing else is lost.
	_ = s.channel.Close()
	s.tasks.Wait()
	if s.counting != nil {
		_ = s.counting.Close() // nothing is in flight on it
	}
}
