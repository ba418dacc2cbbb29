package consumer

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/ask"
	"github.com/rehop/rehop/consumer/internal/flight"
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/consumer/internal/settle"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/internal/yield"
)

// session is one session of a run: a channel, the messages that come on it, and how
// they are settled.
type session struct {
	run      *run
	terms    terms
	channel  *connection.Session
	ledger   *flight.Ledger
	intake   *intake.Session // nil until the consuming has begun
	settling *settle.Acker

	// stop ends when the session is to end in order: with Run, or alone, see leave.
	stop  context.Context
	leave context.CancelCauseFunc

	// working is the ctx of handlers. It ends with the session, or when a stop
	// has lasted for DrainTimeout.
	working    context.Context
	endWorking context.CancelCauseFunc

	// copying is the ctx of copies. It ends with the session, or at the end of the
	// stop: what a handler has returned is still settled.
	copying    context.Context
	endCopying context.CancelCauseFunc
}

// session consumes on one channel until that is lost or Run is to stop, and
// reports whether it has come so far as to consume.
func (r *run) session() (consumed bool, err error) {
	found, channel, err := r.open()
	if err != nil {
		return false, err
	}
	s := r.newSession(found, channel)
	over := make(chan struct{})
	defer close(over)
	go s.watchChannel(over)
	defer func() { s.end(consumed) }()
	defer s.leave(nil)
	r.carriers.Start(s.stop, s.terms.route, s.channel.Server().Version)
	if !r.begun && s.firstLook() {
		pause.For(r.stop, ask.Declaring)
	}
	r.begun = true
	if s.intake, err = intake.Open(r.stop, s.intakeConfig()); err != nil {
		return false, err
	}
	consumed = true
	r.logStart(s)
	r.watchPolicies(s.stop, found)
	r.watchTopology(s.stop, found)
	r.watchCopies(s)
	r.health.consuming()
	err = s.intake.Run(s.stop)
	if s.stop.Err() != nil {
		err = s.drain()
	}
	if intake.Renews(err) && r.lane.Busy() > 0 {
		r.bound.Lift() // handlers do not end, and messages wait for their keys with any prefetch
	}
	return true, err
}

// open finds the route and opens a channel at the same time.
func (r *run) open() (route.Facts, *connection.Session, error) {
	ctx, cancel := context.WithCancel(r.stop)
	defer cancel()
	var channel *connection.Session
	var opening error
	var wg sync.WaitGroup
	wg.Go(func() { channel, opening = r.conn.Session(ctx, connection.Consume) })
	found, err := r.source.Broker.Resolve(r.stop, r.conn)
	if err != nil && r.known != nil && rehop.ClassOf(err) != rehop.ClassTransient && r.repair(r.stop, *r.known) == nil {
		found, err = r.source.Broker.Resolve(r.stop, r.conn) // somebody has deleted a part since the last session
	}
	if err != nil {
		cancel() // the opening of a channel, which shares what it waits for
	}
	wg.Wait()
	if channel != nil && r.releaseChannels == nil {
		release, few := r.takeChannels(found, channel)
		switch {
		case few != nil: // Resolve may have failed because of it
			_ = channel.Close() // nothing is in flight on it
			return route.Facts{}, nil, few
		case err == nil:
			r.releaseChannels = release
		default:
			release() // the waits are not known yet
		}
	}
	if err == nil && opening == nil {
		r.known = &found
		r.health.noteMissing(nil, time.Now()) // Resolve has seen every part
		return found, channel, nil
	}
	if channel != nil {
		_ = channel.Close() // nothing is in flight on it
	}
	return route.Facts{}, nil, cmp.Or(err, opening)
}

func (r *run) newSession(found route.Facts, channel *connection.Session) *session {
	socket := transport.Inside.Session(channel)
	s := &session{run: r, channel: channel, ledger: flight.NewLedger(r.unsettled),
		terms: terms{route: found, account: socket.User(), frame: socket.FrameSize(), host: r.host, inPlace: r.cfg.RetryInPlace, ordered: r.ordered(),
			version: channel.Server().Version}}
	s.ledger.Owner = s
	r.ledger.Store(s.ledger)
	r.timeout.Expect(found.ConsumerTimeout)
	s.stop, s.leave = context.WithCancelCause(r.stop)
	s.working, s.endWorking = context.WithCancelCause(context.WithoutCancel(r.stop))
	s.copying, s.endCopying = context.WithCancelCause(context.WithoutCancel(r.stop))
	s.settling = settle.NewAcker(settle.Config{Ledger: s.ledger, Channel: channel.Channel(), Socket: socket,
		Copies: r.copies, Copying: s.copying, Stop: s.stop, Leave: s.leave, Ended: r.settled})
	return s
}

func (s *session) intakeConfig() intake.Config {
	r := s.run
	return intake.Config{
		Conn: r.conn, Channel: s.channel, Queue: r.queue, Host: r.host,
		DeliveryLimit: s.terms.route.DeliveryLimit,
		Prefetch:      r.prefetch,
		Bound:         &r.bound,
		Ordered:       r.ordered(),
		Arguments:     arguments(r.cfg.Priority, s.terms.route),
		Ledger:        s.ledger,
		Lane:          r.lane,
		Timeout:       r.timeout,
		BeginLimit:    s.beginLimit,
		Signs:         &r.health.signs,
		Handled:       r.handled.Load,
		Requeue:       s.settling.Requeue,
		GiveBack:      s.giveBack,
		KeepForOrder:  s.settling.KeepForOrder,
		Leave:         s.leave,
		Asking:        s.copying,
		Calling:       r.calling,
		Fetching:      r.fetchingHook(),
	}
}

// beginLimit returns how old a message is at most when its handler runs for the first time:
// the handler then has enough time, also for attempts in place.
func (s *session) beginLimit() time.Duration {
	waits := time.Duration(0)
	if s.terms.inPlace {
		waits = waitsInPlace(s.terms.route)
	}
	return s.run.timeout.BeginLimit(waits)
}

// leaveInOrder ends an ordered session because of a message that is about to go back. Only
// the end of the channel puts the message into its place, and no later message of its key
// may begin before.
func (s *session) leaveInOrder(why error) {
	if !s.run.ordered() || s.stop.Err() != nil || s.working.Err() != nil {
		return
	}
	s.settling.KeepForOrder()
	s.run.lane.BeginNoMore(s.ledger, why)
	s.intake.End(why)
}

// lastSecond is what is left of a stop when no copy is awaited any more.
const lastSecond = time.Second

// drain stops in this order: the fetching, what was not started, the handlers
// with their copies and acks. The channel is closed last, by end. drain returns nil if
// Run is to stop, and else why the session ends.
func (s *session) drain() error {
	r := s.run
	r.lane.Closed()
	grace := r.cfg.DrainTimeout
	if intake.Renews(s.why()) { // handlers have had their time, and the broker is about to take the messages away
		grace = min(grace, r.timeout.LeaveLimit()/8)
	}
	hard := time.AfterFunc(grace, func() {
		if s.why() == nil {
			s.endWorking(ErrStopped)
		} else {
			s.endWorking(connection.ErrSessionLost)
		}
	})
	defer hard.Stop()
	last := time.AfterFunc(r.cfg.DrainTimeout+stopGrace-lastSecond, func() { s.endCopying(ErrStopped) })
	defer last.Stop()
	stopping, end := context.WithCancel(r.stopped)
	defer end()
	why := s.why()
	if why == nil {
		r.health.fail(errStopping)
	} else {
		r.health.leaves(why, time.Now())
		left := time.AfterFunc(r.cfg.DrainTimeout+stopGrace, end)
		defer left.Stop()
		defer context.AfterFunc(r.stop, func() { // a stop has all of its time, whatever was going on
			r.health.fail(errStopping)
			left.Stop()
			hard.Reset(r.cfg.DrainTimeout)
			last.Reset(r.cfg.DrainTimeout + stopGrace - lastSecond)
		})()
	}
	if r.ordered() {
		// When the fetching ends, a queue with a single active consumer goes to another
		// process. That process would handle the next messages while handlers run here. So
		// the fetching ends with the channel, and all messages go back to their places at
		// once.
		r.lane.Finish(stopping)
		return why
	}
	s.settling.Requeue(r.lane.TakeBack(0)...) // at the end of the fetching
	if err := s.intake.EndFetching(func(m *flight.Message) { s.settling.Requeue(m) }); err != nil {
		return err
	}
	s.settling.Fetched()
	if drained := r.wait(stopping); why == nil {
		r.drained = drained
	}
	return why
}

// why returns why the session is to end in order, nil if Run is to stop.
func (s *session) why() error {
	if s.run.stop.Err() != nil {
		return nil
	}
	return context.Cause(s.stop)
}

// watchChannel tells the handlers as soon as the channel is lost.
func (s *session) watchChannel(over <-chan struct{}) {
	select {
	case <-s.channel.Done():
		s.interrupt(s.channel.Err())
	case <-over:
	}
}

// interrupt ends the ctx of handlers and copies; the first cause counts.
func (s *session) interrupt(cause error) {
	s.endWorking(cause)
	s.endCopying(cause)
}

// end tells the handlers that still run, and closes the channel. Nothing is
// settled on it any more: a frame for a closed channel ends the connection.
func (s *session) end(consumed bool) {
	r := s.run
	s.interrupt(cmp.Or(s.channel.Err(), connection.ErrSessionLost))
	if consumed && r.stop.Err() == nil {
		r.lane.Opening() // lower lanes wait for the next session as for the first
	} else {
		r.lane.Closed()
	}
	yield.Here()
	s.settling.Close()
	yield.Here()
	s.settling.Requeue(r.lane.TakeBack(0)...) // which the end of the channel does
	ctx, end := r.calling()
	defer end()
	if consumed {
		s.settling.AwaitAcks(ctx, s.channel, s.askAtTheEnd)
	}
	// The broker puts its unsettled messages back into the queue.
	_ = s.channel.Close()
	if s.intake != nil {
		s.intake.Close()
	}
}

// askAtTheEnd has the queue answer after all that it was told. A visit may take a message,
// which would not come back into its place. Where messages must come in order, the end of
// the consumer is answered as well, but where there is a single active consumer, it hands
// the queue over to another process. If that is not known, nothing is asked: acks that a
// broker takes longer for bring their messages back.
func (s *session) askAtTheEnd(ctx context.Context) error {
	found := s.terms.route
	switch {
	case !s.run.ordered(), found.Single:
		_, err := ask.Visit(ctx, s.channel, s.run.queue, s.intake.Tag()+"-end")
		return err
	case found.Kind == route.Letters, found.Kind == route.Work && !found.Existing:
		return s.intake.Cancel(ctx)
	}
	pause.For(ctx, acksArrive)
	return nil
}

// acksArrive is more than what a queue takes for the acks of a few handlers.
const acksArrive = time.Second

// errRewired ends a session whose route is not that of the queue any more.
var errRewired = errors.New("consumer: copies are not confirmed, and the queue has other waits by now: consuming begins anew")

// giveBack gives messages back that no worker has. A return may count towards the
// delivery limit: from half of it on a copy goes to the end of the queue instead.
func (s *session) giveBack(ms ...*flight.Message) {
	for _, m := range ms {
		a := &attempt{Message: m, in: s, ctx: s.copying}
		a.Delivery = &a.first
		if m.Raw.Redelivered {
			_ = a.read(&s.terms.route, m.Raw) // a worker logs what is malformed
			if s.terms.isScarce(a.Delivery) {
				a.ending = &ending{decision: requeue}
				a.Instruction = *s.terms.toTheEnd(m.Raw, a.Delivery, time.Now())
				m.User = a
				m.Begun.Store(true) // nobody else takes it
				s.settling.Do(settle.Task{Message: m, Instruction: &a.Instruction})
				continue
			}
		}
		s.settling.Requeue(m)
	}
}
