// Package work has the goroutines that act on the messages of a Consumer: workers run handlers,
// a writer tells the broker of acks and nacks, a copier sends copies and awaits their confirms.
// It decides nothing about who is next: it tells package hand of events, and carries out what
// the Out of an event asks for.
package work

import (
	"sync"
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
)

// Pool has the workers of a Consumer, and the timer. It is safe for concurrent use.
type Pool struct {
	hand  *hand.Hand
	lanes []Lane // by hand.Lane.Number
	all   sync.WaitGroup

	mu    sync.Mutex // of the timer
	timer *time.Timer
	at    time.Time // when it ends; zero: it does not run
	over  bool
}

// Lane handles the messages of a hand.Lane.
type Lane interface {
	// Handle runs the handler on the messages of a grant and has them settled, or held. It
	// returns the worker's next grant, as Hand.Handled does. The handler may end the goroutine.
	Handle(w *hand.Worker, g *hand.Grant) (next *hand.Grant, ended bool)

	// Copy sends the copies of messages, see Out.Copy.
	Copy(ms []*hand.Message)

	// OutageBegan says that an outage has begun because no slot is left.
	OutageBegan()

	// Blocked says that messages that wait for their keys keep other keys away.
	Blocked()

	// TurnBegan says that the suspects of the lane are handled, and no message of another lane.
	TurnBegan()
}

// NewPool returns the workers of a Hand, which must be closed. Lanes are added before the first
// event.
func NewPool(h *hand.Hand) *Pool { return &Pool{hand: h} }

// Add adds a lane, below those that there are.
func (p *Pool) Add(l Lane) { p.lanes = append(p.lanes, l) }

// Do carries out what is to be done after events.
func (p *Pool) Do(out *hand.Out) {
	if out.IsEmpty() {
		return
	}
	if out.Start {
		p.all.Go(p.work)
	}
	if !out.Wake.IsZero() {
		p.wake(out.Wake)
	}
	for _, l := range out.Outages {
		p.lanes[l.Number].OutageBegan()
	}
	for _, l := range out.Blocked {
		p.lanes[l.Number].Blocked()
	}
	for _, l := range out.Turns {
		p.lanes[l.Number].TurnBegan()
	}
	over, copied := out.Over, out.Copy
	out.Over, out.Copy = nil, nil
	out.Clear()
	p.settled(over, ErrSessionOver)
	for len(copied) > 0 { // of one lane each time, nearly always all
		lane, n := copied[0].In.Lane(), 1
		for n < len(copied) && copied[n].In.Lane() == lane {
			n++
		}
		p.lanes[lane.Number].Copy(copied[:n])
		copied = copied[n:]
	}
}

// doAside is Do for a worker that has its next grant. Hooks and the Logger may take their time, and
// would hold that grant up, so they run on a goroutine of their own; there are few of them.
func (p *Pool) doAside(out *hand.Out) {
	if len(out.Over)+len(out.Outages)+len(out.Turns) > 0 {
		aside := &hand.Out{Over: out.Over, Outages: out.Outages, Turns: out.Turns}
		out.Over, out.Outages, out.Turns = nil, nil, nil
		p.all.Go(func() { p.Do(aside) })
	}
	p.Do(out)
}

// settled says that the broker has been told of messages, or cannot be.
func (p *Pool) settled(all []hand.Told, err error) {
	if len(all) == 0 {
		return
	}
	var out hand.Out
	p.hand.Settled(all, time.Now(), &out)
	p.Do(&out)
	for _, t := range all {
		p.tell(t, err)
	}
}

// tell tells the Observer of a message that it is settled.
func (p *Pool) tell(t hand.Told, err error) {
	defer p.hand.Hooked(t.Message)
	t.Observer.Settled(t.Verb, err)
}

// Event has an event whose caller has no Out of its own.
func (p *Pool) Event(event func(now time.Time, out *hand.Out)) {
	var out hand.Out
	event(time.Now(), &out)
	p.Do(&out)
}

// work handles messages until there are no more to come.
func (p *Pool) work() {
	w := &hand.Worker{Woken: hand.NewSignal()}
	var at *hand.Grant
	defer func() {
		if at != nil { // its handler has ended the goroutine, and may have left something in the Out
			p.hand.Gone(at, time.Now(), &w.Out)
			p.Do(&w.Out)
		}
	}()
	for {
		g, ended := p.hand.Next(w, time.Now())
		p.doAside(&w.Out)
		for g != nil {
			at = g
			g, ended = p.lanes[g.Lane.Number].Handle(w, g)
			at = nil
			p.doAside(&w.Out)
		}
		if ended {
			return
		}
		<-w.Woken
	}
}

// wake has Due called at that time, unless it is called sooner.
func (p *Pool) wake(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || !p.at.IsZero() && !at.Before(p.at) {
		return
	}
	p.at = at
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(time.Until(at), p.due)
}

func (p *Pool) due() {
	p.mu.Lock()
	p.at = time.Time{}
	p.mu.Unlock()
	p.Event(p.hand.Due)
}

// Close ends the workers, each when its handler has returned, and the timer.
func (p *Pool) Close() {
	p.mu.Lock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.hand.Close()
}

// Wait returns when every worker has ended, after Close.
func (p *Pool) Wait() { p.all.Wait() }
