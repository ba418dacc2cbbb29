package hand

// Phase is where a message is, from its arrival to its end. A message has one phase at a
// time, and each change of a phase is an event of the table below.
type Phase uint8

// The phases.
const (
	Coming  Phase = iota // its session has read it, and hand does not have it yet
	Keyed                // waits until fewer messages of its key are in hand
	Queued               // waits for a worker
	Taken                // a worker has it, and no handler
	Running              // a handler has it for the first time
	Early                // is kept until it is due; no handler has had it
	Held                 // a handler has returned from it, and it stays in hand
	Again                // a handler has it once more
	Copying              // its copy is to be confirmed
	Back                 // goes back to its queue when the fetching, or the channel, has ended
	Marked               // the broker is to be told how it ends
	Settled              // the broker has been told, or cannot be: the session is over
	phases
)

var phaseNames = [phases]string{"coming", "keyed", "queued", "taken", "running", "early", "held", "again", "copying", "back", "marked", "settled"}

func (p Phase) String() string { return phaseNames[p] }

// event is what changes the phase of a message.
type event uint8

const (
	waitsForKey event = iota // as many messages of its key as may be are in hand
	isNext                   // it waits for nothing but a worker
	isTaken                  // a worker takes it
	lacksTime                // it is back before it is due
	goesOn                   // a worker takes it once more
	runs                     // a handler gets it
	returned                 // its handler has returned, and it stays in hand
	copies                   // it is settled when its copy is confirmed
	postponed                // it goes back, and must not come again to this session
	marked                   // the broker is to be told
	isTold                   // the broker has been told, or cannot be
	events
)

// table has the phase after each event; Coming, the zero value, stands for an event that is
// impossible in that phase. DESIGN.md of this package draws it.
var table = [phases][events]Phase{
	Coming:  {waitsForKey: Keyed, isNext: Queued},
	Keyed:   {isNext: Queued, copies: Copying, postponed: Back, marked: Marked},
	Queued:  {isTaken: Taken, copies: Copying, postponed: Back, marked: Marked},
	Taken:   {lacksTime: Early, runs: Running, copies: Copying, postponed: Back, marked: Marked},
	Running: {returned: Held, copies: Copying, postponed: Back, marked: Marked},
	Early:   {goesOn: Taken, copies: Copying, postponed: Back, marked: Marked},
	Held:    {runs: Again, copies: Copying, postponed: Back, marked: Marked},
	Again:   {returned: Held, copies: Copying, postponed: Back, marked: Marked},
	Copying: {postponed: Back, marked: Marked},
	Back:    {marked: Marked},
	Marked:  {isTold: Settled},
}

// isUntried reports whether no handler has returned from a message that may still be handled
// here.
func (p Phase) isUntried() bool { return p < Held }

// isRetained reports whether a message is neither to be handled for the first time, nor is it known yet how it ends.
func (p Phase) isRetained() bool { return p >= Held && p < Marked }

// isOpen reports whether it is not known yet how a message ends.
func (p Phase) isOpen() bool { return p < Marked }

// isAtWork reports whether a worker has taken a message, or its copy is to be confirmed, and it is
// not known yet how it ends.
func (p Phase) isAtWork() bool { return p >= Taken && p <= Copying }

// isWithHandler reports whether a handler has a message.
func (p Phase) isWithHandler() bool { return p == Running || p == Again }

// comes changes the phase of a message. It needs mu held. An impossible event is a defect of
// this package: to go on could settle the wrong message.
func (m *Message) comes(e event) {
	was, now := m.phase, table[m.phase][e]
	if now == Coming {
		panic("consumer: a message that is " + was.String() + " has met an event that is impossible there")
	}
	m.phase = now
	if was.isUntried() && !now.isUntried() {
		m.In.tried(m)
	}
	switch counts := &m.In.counts; {
	case m.consumer != m.In.consumers: // Retained is of Recent
	case !was.isRetained() && now.isRetained():
		counts.Retained++
	case was.isRetained() && !now.isRetained():
		counts.Retained--
	}
}
