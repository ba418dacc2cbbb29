package consumer

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/internal/yield"
)

// session is one session of a run: a channel, the messages that come on it, and how
// they are settled.
type session struct {
	run     *run
	terms   terms
	conn    *connection.Conn // of the channel: that of the run, or one of its own
	channel *connection.Session
	hand    *hand.Session
	intake  *intake.Session // nil until the consuming has begun
	writer  *work.Writer

	hand.Contexts
	endWorking, endCopying context.CancelCauseFunc
}

// session consumes on one channel until that is lost or Run is to stop, and says how it
// has ended.
func (r *run) session() (e ended) {
	conn, leave := r.socket()
	defer leave()
	first := r.known == nil
	found, channel, err := r.open(conn)
	if err != nil {
		return ended{err: err}
	}
	e = ended{reach: opened, generation: transport.Inside.Session(channel).Generation()}
	s := r.newSession(found, conn, channel)
	defer s.watch()()
	defer func() { s.end(e.reach == consumed) }()
	defer s.Cancel(nil)
	defer r.assigned.begins(s.Cancel)()
	r.carriers.Start(s.Stop, s.terms.route, s.channel.Server().Version)
	if s.look(first) {
		pause.For(r.stop, durations.Declaring)
	}
	if s.intake, e.err = intake.Open(r.stop, s.intakeConfig()); e.err != nil {
		return e
	}
	e.reach = consumed
	began := time.Now()
	r.logStart(s)
	r.watchBroker(s)
	r.health.consuming()
	if r.place.apart {
		defer time.AfterFunc(durations.SharesAfter, func() { s.Cancel(errShares) }).Stop()
	}
	e.err = s.intake.Run(s.Stop)
	if s.Stop.Err() != nil {
		e.err = s.drain()
	}
	if hand.Renews(e.err) && r.lane.Busy() > 0 {
		r.bound.Lift() // handlers do not end, and messages wait for their keys with any prefetch
	}
	e.lived = time.Since(began)
	return e
}

// open finds the route and opens a channel of conn at the same time.
func (r *run) open(conn *connection.Conn) (route.Facts, *connection.Session, error) {
	ctx, cancel := context.WithCancel(r.stop)
	defer cancel()
	if r.place.apart {
		ctx, cancel = context.WithTimeoutCause(ctx, durations.OpensWithin, errNoSocket)
		defer cancel()
	}
	var channel *connection.Session
	var opening error
	var wg sync.WaitGroup
	wg.Go(func() { channel, opening = conn.Session(ctx, connection.Consume) })
	found, err := r.source.Broker.Resolve(r.stop, r.conn)
	if err != nil && r.known != nil && rehop.ClassOf(err) != rehop.ClassTransient && r.repair(r.stop, *r.known) == nil {
		found, err = r.source.Broker.Resolve(r.stop, r.conn) // somebody has deleted a part since the last session
	}
	if err != nil {
		cancel() // the opening of a channel, which shares what it waits for
	}
	wg.Wait()
	if opening != nil && r.place.apart {
		opening = rehop.WithClass(opening, rehop.ClassTransient) // there is the shared socket
	}
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
		r.health.note(&r.health.missing, nil) // Resolve has seen every part
		return found, channel, nil
	}
	if channel != nil {
		_ = channel.Close() // nothing is in flight on it
	}
	return route.Facts{}, nil, cmp.Or(err, opening)
}

func (r *run) newSession(found route.Facts, conn *connection.Conn, channel *connection.Session) *session {
	socket := transport.Inside.Session(channel)
	s := &session{run: r, conn: conn, channel: channel,
		terms: terms{route: found, account: socket.User(), frame: socket.FrameSize(), host: r.host, inPlace: r.cfg.RetryInPlace, ordered: r.ordered(),
			version: channel.Server().Version}}
	r.timeout.Expect(found.ConsumerTimeout)
	s.Stop, s.Cancel = context.WithCancelCause(r.stop)
	s.Working, s.endWorking = context.WithCancelCause(context.WithoutCancel(r.stop))
	s.Copying, s.endCopying = context.WithCancelCause(context.WithoutCancel(r.stop))
	s.hand = r.lane.Session(s.Contexts)
	s.writer = r.pool.Write(s.hand, channel.Channel(), socket)
	return s
}

func (s *session) intakeConfig() intake.Config {
	r := s.run
	waits := time.Duration(0)
	if s.terms.inPlace {
		waits = waitsInPlace(s.terms.route)
	}
	return intake.Config{
		Conn: s.conn, Channel: s.channel, Queue: r.queue, Host: r.host,
		DeliveryLimit: s.terms.route.DeliveryLimit,
		Prefetch:      r.prefetch,
		Bound:         &r.bound,
		Arguments:     arguments(r.cfg.Priority, s.terms.route),
		Hand:          s.hand,
		Lane:          r.lane,
		Timeout:       r.timeout,
		Waits:         waits,
		Signs:         &r.health,
		Handled:       &r.handled,
		Consumer:      s,
	}
}

// Message makes a message of a delivery. It is called by package intake.
func (s *session) Message(raw amqp.Delivery, now time.Time, deaths int) *hand.Message {
	r := s.run
	a := &attempt{in: s}
	a.Message = hand.Message{Raw: raw, Received: now, Deaths: deaths, Observer: a}
	if r.cfg.KeyLimit > 0 {
		a.Key = r.keyOf(&s.terms.route, raw)
	}
	a.Alone = r.batch != nil && s.goesAlone(raw)
	if raw.Redelivered {
		var d Delivery
		_ = d.read(&s.terms.route, raw) // a worker logs what is malformed
		a.Scarce = s.terms.isScarce(&d)
	}
	return &a.Message
}

// Do carries out what is to be done after events. It is called by package intake.
func (s *session) Do(out *hand.Out) { s.run.pool.Do(out) }

// Calling is called by package intake.
func (s *session) Calling() (context.Context, context.CancelFunc) { return s.run.calling() }

// Fetching calls the hook. It is called by package intake.
func (s *session) Fetching(prefetch int) {
	if hook := s.run.trace.Fetching; hook != nil {
		hook(Fetching{s.run.queue, prefetch})
	}
}

// drain gives back what was not started, ends the fetching, and lets handlers finish, with their
// copies and acks. In order only the handlers finish, and the rest goes back with the channel. The
// channel is closed last, by end. drain returns nil if
// Run is to stop, and else why the session ends.
func (s *session) drain() error {
	r := s.run
	r.pool.Event(r.lane.Closed)
	grace := r.cfg.DrainTimeout
	if hand.Renews(s.why()) { // handlers have had their time, and the broker is about to take the messages away
		grace = min(grace, r.timeout.LeaveLimit()/8)
	}
	hard := time.AfterFunc(grace, func() {
		switch why := s.why(); {
		case why == nil:
			s.endWorking(ErrStopped)
		case errors.Is(why, errElsewhere):
			s.endWorking(errHandedOver)
		default:
			s.endWorking(connection.ErrSessionLost)
		}
	})
	defer hard.Stop()
	last := time.AfterFunc(r.cfg.DrainTimeout+durations.StopGrace-durations.LastSecond, func() { s.endCopying(ErrStopped) })
	defer last.Stop()
	stopping, end := context.WithCancel(r.stopped)
	defer end()
	why := s.why()
	if why == nil {
		r.health.consumesNothing(lasts, errStopping, time.Now())
	} else {
		defer r.health.leavesSoon(why)()
		var late <-chan time.Time
		if !s.leavesNoHandler(why) {
			late = time.After(r.cfg.DrainTimeout + durations.StopGrace)
		}
		go func() {
			select {
			case <-late:
				end()
			case <-s.channel.Done(): // the broker has given the messages of handlers to others
				end()
			case <-r.stop.Done():
			case <-stopping.Done():
			}
		}()
		defer context.AfterFunc(r.stop, func() { // a stop has all of its time, whatever was going on
			r.health.consumesNothing(lasts, errStopping, time.Now())
			hard.Reset(r.cfg.DrainTimeout)
			last.Reset(r.cfg.DrainTimeout + durations.StopGrace - durations.LastSecond)
		})()
	}
	if r.ordered() {
		// When the fetching ends, a queue with a single active consumer goes to another
		// process. That process would handle the next messages while handlers run here. So
		// the fetching ends with the channel, and all messages go back to their places at
		// once. A session that moves does not wait for handlers of earlier ones: their messages
		// are others' already.
		r.pool.Event(r.lane.Finish)
		until(stopping, r.lane.Changed, func() bool { return !s.hand.IsAtWork() && (moves(why) || r.lane.Busy() == 0) })
		return why
	}
	r.takeBack() // which lets it go when the fetching has ended
	if err := s.intake.EndFetching(); err != nil {
		return err
	}
	r.pool.Event(func(_ time.Time, out *hand.Out) { s.hand.Fetched(out) })
	r.wait(stopping)
	return why
}

// leavesNoHandler reports whether another process would handle the next messages while handlers run here, if the
// session ended before they return. Nobody waits for a session that moves.
func (s *session) leavesNoHandler(why error) bool {
	return s.terms.route.Single && moves(why)
}

// why returns why the session is to end in order, nil if Run is to stop.
func (s *session) why() error {
	if s.run.stop.Err() != nil {
		return nil
	}
	return context.Cause(s.Stop)
}

// takeBack gives back all messages that no worker has.
func (r *run) takeBack() {
	r.pool.Event(func(now time.Time, out *hand.Out) { r.lane.TakeBack(0, false, now, out) })
}

// watch tells the handlers as soon as the channel is lost, and lets go what is held when the
// session ends, until unwatch is called.
func (s *session) watch() (unwatch func()) {
	over, end := context.WithCancel(context.Background())
	go func() {
		select {
		case <-s.channel.Done():
			s.interrupt(s.channel.Err())
		case <-over.Done():
		}
	}()
	for _, ctx := range []context.Context{s.Stop, s.Working, s.Copying} {
		unwatch := context.AfterFunc(ctx, func() { s.run.pool.Event(s.hand.Ending) })
		context.AfterFunc(over, func() { unwatch() })
	}
	return end
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
	r.pool.Event(s.hand.Ending)
	if consumed && r.stop.Err() == nil {
		r.pool.Event(r.lane.Opening) // lower lanes wait for the next session as for the first
	} else {
		r.pool.Event(r.lane.Closed)
	}
	yield.Here()
	s.writer.Close()
	yield.Here()
	r.takeBack() // which the end of the channel does
	ctx, end := r.calling()
	defer end()
	if consumed {
		s.writer.AwaitAcks(ctx, s.channel, s.askAtTheEnd)
	}
	// The broker puts its unsettled messages back into the queue.
	_ = s.channel.Close()
	if s.intake != nil {
		s.intake.Close()
	}
}

// askAtTheEnd has the queue answer after all that it was told. A visit may take a message,
// which would not come back into its place, but where there is a single active consumer. Where messages
// must come in order, one more consumer is answered, and takes nothing out of its place. If nobody knows
// whether there is a single active consumer, nothing is asked: acks that a broker takes longer for bring
// their messages back.
func (s *session) askAtTheEnd(ctx context.Context) error {
	found := s.terms.route
	switch {
	case !s.run.ordered(), found.Single:
		_, err := ask.Visit(ctx, s.channel, s.run.queue, s.intake.Tag()+"-end")
		return err
	case found.Kind == route.Letters, found.Kind == route.Work && !found.Existing:
		return s.intake.Reach(ctx)
	}
	pause.For(ctx, durations.AcksArrive)
	return nil
}

// errRewired ends a session whose route is not that of the queue any more.
var errRewired = errors.New("consumer: copies are not confirmed, and the queue has other waits by now: consuming begins anew")

// Copy sends messages that no worker has had to the end of the queue, or where they have to wait on, because
// a return may count towards their delivery limit. It is called by package work.
func (r *run) Copy(ms []*hand.Message) {
	now := time.Now()
	var tasks []work.Task
	for _, m := range ms {
		a := attemptOf(m)
		t := &a.in.terms
		a.Delivery, a.ctx = &a.first, a.in.Copying
		_ = a.read(&t.route, m.Raw) // it is not handled here
		a.ending = &ending{decision: requeue}
		a.Instruction = *t.unbegun(m.Raw, a.Delivery, now)
		tasks = append(tasks, work.Task{Message: m, Instruction: &a.Instruction})
	}
	r.copies.Send(tasks...)
}
