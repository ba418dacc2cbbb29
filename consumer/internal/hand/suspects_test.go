package hand

import (
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/durations"
)

// suspects is a stage of three lanes.
type suspects struct {
	*stage
	in [3]*Session
}

func newSuspects(t *testing.T, limits Limits) *suspects {
	limits.Slots, limits.Share, limits.Shard = 9, 1, true
	s := &suspects{stage: newStage(t, limits)}
	s.in[0] = s.stage.in
	for i := range s.in[1:] {
		s.in[i+1] = s.session(s.hand.Lane(limits))
	}
	return s
}

// comes has a message come in a lane, of which consumers have died so often.
func (s *suspects) comes(lane, deaths int) {
	s.stage.in = s.in[lane]
	s.deliver(1, func(m *Message) { m.Deaths, m.Raw.Redelivered = deaths, deaths > 0 })
}

// settled has the broker told of all that is marked in a lane.
func (s *suspects) settled(lane int) {
	batch, _, _ := s.in[lane].Take(nil)
	s.hand.Settled(append(batch, s.out.Over...), s.now, &s.out)
	s.out.Over = nil
	s.do()
}

func TestLanesWithSuspectsTakeTurns(t *testing.T) {
	s := newSuspects(t, Limits{})
	s.comes(2, 0)
	s.took("nobody has died", "[1]")
	s.comes(0, 13) // 2
	s.comes(1, 11) // 3
	s.comes(2, 0)  // 4
	s.pass(durations.SuspectsMeet - 1)
	s.took("other lanes may be about to meet suspects")
	if state := s.in[2].lane.State(s.now); state.Kept.IsZero() || state.By != nil {
		t.Errorf("the third lane: %+v, want it kept for nobody", state)
	}
	s.pass(1)
	s.took("it is the turn of the second lane", "[3]")
	if state := s.in[2].lane.State(s.now); state.By != s.in[1].lane || state.Kept.IsZero() || !s.in[1].lane.State(s.now).Kept.IsZero() {
		t.Errorf("the third lane: %+v, want it kept for the second", state)
	}
	s.endAll()
	s.took("another suspect of that lane may come")
	s.comes(1, 13) // 5
	s.took("one comes", "[5]")
	s.comes(1, 0) // 6
	s.took("it is not cleared, and a message comes beside it", "[6]")
	s.endAll()
	s.comes(1, 0) // 7
	s.took("none is left, and it is the turn of the first lane", "[2]")
	s.endAll()
	s.settled(0)
	s.pass(durations.SuspectsCome - 1)
	s.took("one more of the first lane may be on its way")
	s.pass(1)
	s.took("no more comes", "[4]", "[7]")
}

// A crash counts for all that wait: the broker's counts say whose turn it was in the life before. The guilty message
// may have fewer deaths than an innocent one, because it was not in hand at a crash that was due to another.
func TestAnotherLaneIsFirstInEachLife(t *testing.T) {
	for _, deaths := range [][3]int{{10, 10, 10}, {10, 11, 11}, {12, 10, 16}, {14, 13, 10}} {
		first := map[string]bool{}
		for life := range 3 {
			s := newSuspects(t, Limits{})
			for lane := range s.in {
				s.comes(lane, deaths[lane]+life)
			}
			s.pass(durations.SuspectsMeet)
			if len(s.taken) != 1 {
				t.Fatalf("workers took %v, want one message", s.taken)
			}
			first[s.taken[0]] = true
		}
		if len(first) != 3 {
			t.Errorf("deaths of %v: first are %v, want each lane once", deaths, first)
		}
	}
}

// In order those that wait have given theirs back, which counts, and the crash counts only where the turn is.
func TestAnInnocentLaneInOrderHasItsTurnBeforeItsMessageIsALetter(t *testing.T) {
	const limit = 20
	for start := range 5 * 5 * 5 {
		deaths := [3]int{limit/2 + start/25, limit/2 + start/5%5, limit/2 + start%5}
		const innocent = 0
		for first := -1; first != innocent; {
			s := newSuspects(t, Limits{})
			for lane := range s.in {
				if deaths[lane]++; deaths[lane] <= limit { // else it is a letter
					s.comes(lane, deaths[lane])
				}
			}
			s.pass(durations.SuspectsMeet)
			if deaths[innocent] > limit {
				t.Fatalf("start %d: the innocent message is a letter, the deaths are %v", start, deaths)
			}
			first = slices.IndexFunc(s.in[:], func(in *Session) bool { return s.hand.turns.of == in.lane })
			deaths[first]++
		}
	}
}

func TestNoLaneIsKeptAwayForEver(t *testing.T) {
	for rule, c := range map[string]struct {
		limits Limits
		change func(*suspects)
		want   []string
	}{
		"the handler takes long":                    {Limits{}, func(*suspects) {}, []string{"[1]", "[2]"}},
		"the lane is paused":                        {Limits{}, func(s *suspects) { s.setPaused(true) }, []string{"[2]"}},
		"the session is lost":                       {Limits{}, func(s *suspects) { s.lane.TakeBack(0, false, s.now, &s.out); s.do() }, []string{"[2]"}},
		"handlers of a lane in order do not return": {Limits{Ordered: true}, func(s *suspects) { s.stage.in = s.in[0]; s.in[0].BeginNoMore(ErrSuspects, s.now, &s.out) }, []string{"[2]"}},
	} {
		t.Run(rule, func(t *testing.T) {
			s := newSuspects(t, c.limits)
			s.comes(0, 10)
			c.change(s)
			s.comes(1, 0)
			s.pass(2 * durations.Uncleared)
			s.took("after two minutes", c.want...)
		})
	}
}

func TestALaneInOrderAwaitsItsTurnWithoutItsSuspects(t *testing.T) {
	s := newSuspects(t, Limits{Ordered: true})
	waits := func(when string, want bool, by *Lane) {
		t.Helper()
		if got, lane := s.lane.AwaitsTurn(); got != want || lane != by || s.lane.HasTurn() == want {
			t.Errorf("%s: waits %t, for %v, and has the turn: %t", when, got, lane, s.lane.HasTurn())
		}
	}
	s.in[0].BeginNoMore(ErrSuspects, s.now, &s.out)
	s.comes(0, 10) // 1
	s.comes(1, 0)  // 2
	waits("it has met a suspect", true, nil)
	s.pass(2 * durations.SuspectsMeet)
	waits("it has not given the suspect back", true, nil)
	s.in[0].Close(&s.out)
	s.lane.TakeBack(0, false, s.now, &s.out)
	isSet(s.lane.Changed)
	s.hand.Settled(s.out.Over, s.now, &s.out)
	s.do()
	waits("it has", false, s.lane)
	if !isSet(s.lane.Changed) {
		t.Error("nobody is told that its turn has come")
	}
	s.in[0] = s.session(s.lane)
	s.in[0].Opened(1, 0, s.now, &s.out)
	s.comes(0, 11) // 3
	s.took("in its turn", "[3]")
	s.endAll()
	s.settled(0)
	s.stage.in = s.in[0]
	s.deliver(1, func(m *Message) { m.Raw.Redelivered = true }) // 4
	s.took("one that has come back, and may be ahead of a suspect", "[4]")
	s.endAll()
	s.comes(0, 0) // 5
	s.took("one that comes for the first time", "[2]", "[5]")
}

func TestALaneThatIsNotConsumedHereForgetsItsSuspects(t *testing.T) {
	s := newSuspects(t, Limits{})
	s.comes(0, 10)
	s.comes(1, 11)
	s.comes(2, 0)
	s.lane.TakeBack(0, false, s.now, &s.out)
	s.lane.ForgetsSuspects(s.now, &s.out)
	s.pass(durations.SuspectsMeet)
	s.took("the first lane has none", "[2]")
	s.in[1].lane.ForgetsSuspects(s.now, &s.out)
	s.do()
	s.took("no lane has any", "[3]")
}

// With one lane its session alone sees to it that a crash counts against no other message.
func TestOneLaneTakesNoTurns(t *testing.T) {
	s := newStage(t, Limits{Slots: 2})
	s.deliver(1, func(m *Message) { m.Deaths, m.Raw = 10, amqp.Delivery{DeliveryTag: s.tag, Redelivered: true} })
	s.took("at once", "[1]")
	if !s.lane.HasTurn() || !s.lane.State(s.now.Add(time.Second)).Kept.IsZero() {
		t.Error("a lane waits for its own suspects")
	}
}

// A copy has no deaths behind it: the crash loop would begin to count anew. In an outage, or a pause, consumers
// did not die, and each return would make a letter more likely.
func TestASuspectThatWaitsForThoseOfAnotherLaneIsNotCopied(t *testing.T) {
	for rule, c := range map[string]struct {
		deaths int
		other  int // deaths of a message of another lane
		copied bool
	}{
		"a suspect that waits for others":       {13, 11, false},
		"a suspect that waits for its own lane": {10, 0, true},
		"one that is no suspect":                {0, 11, true},
	} {
		t.Run(rule, func(t *testing.T) {
			s := newSuspects(t, Limits{})
			s.setPaused(true)
			s.stage.in = s.in[0]
			s.deliver(1, func(m *Message) { m.Scarce, m.Raw.Redelivered, m.Deaths = true, true, c.deaths })
			s.comes(1, c.other)
			s.pass(durations.SuspectsMeet)
			back := s.lane.TakeBack(0, true, s.now, &s.out)
			if copied := len(s.out.Copy) > 0; copied != c.copied || copied == (len(back) > 0) {
				t.Errorf("copied: %t, %d go back, want it copied: %t", copied, len(back), c.copied)
			}
		})
	}
}

func TestATurnWithoutAMessage(t *testing.T) {
	for rule, c := range map[string]struct {
		ordered bool
		change  func(*suspects)
		still   time.Duration // that the other lane waits
	}{
		"a lane without order has nothing in hand when its turn begins": {false, func(s *suspects) {
			s.lane.TakeBack(0, false, s.now, &s.out)
			s.settled(0)
		}, durations.SuspectsMeet + durations.SuspectsCome},
		"a lane in order has not begun to consume, and others have events": {true, func(s *suspects) {
			s.comesBack()
			s.pass(durations.SuspectsMeet)
			s.settled(1)
		}, durations.SuspectsMeet + durations.Uncleared},
		"a lane in order consumes, and nothing comes": {true, func(s *suspects) {
			s.comesBack()
			s.pass(durations.SuspectsMeet)
			s.in[0] = s.session(s.lane)
			s.in[0].Opened(1, 0, s.now, &s.out)
		}, durations.SuspectsMeet + durations.SuspectsCome},
		"its session is lost before anything comes": {true, func(s *suspects) {
			s.comesBack()
			s.pass(durations.SuspectsMeet)
			s.in[0] = s.session(s.lane)
			s.in[0].Opened(1, 0, s.now, &s.out)
			s.lane.Closed(s.now, &s.out)
		}, durations.SuspectsMeet + durations.Uncleared},
		"messages come back that are no suspects, one at a time": {true, func(s *suspects) {
			s.comesBack()
			s.pass(durations.SuspectsMeet)
			s.in[0] = s.session(s.lane)
			s.in[0].Opened(1, 0, s.now, &s.out)
			for range 59 {
				s.pass(time.Second)
				s.redelivered(0)
				s.endAll()
				s.settled(0)
			}
		}, durations.SuspectsMeet + durations.Uncleared},
	} {
		t.Run(rule, func(t *testing.T) {
			s := newSuspects(t, Limits{Ordered: c.ordered})
			began := s.now
			s.comes(0, 10) // 1
			s.comes(1, 0)  // 2
			c.change(s)
			s.do()
			s.taken = slices.DeleteFunc(s.taken, func(tag string) bool { return tag != "[2]" })
			s.pass(max(0, c.still-1-s.now.Sub(began)))
			if len(s.taken) > 0 && s.now.Sub(began) < c.still {
				t.Errorf("the turn has ended by now, and not after %v", c.still)
			}
			s.pass(1)
			s.took("after it", "[2]")
		})
	}
}

// comesBack has the first lane, which is in order, give back what it has.
func (s *suspects) comesBack() {
	s.in[0].Close(&s.out)
	s.lane.TakeBack(0, false, s.now, &s.out)
	s.hand.Settled(s.out.Over, s.now, &s.out)
	s.out.Over = nil
	s.lane.Closed(s.now, &s.out)
	s.do()
}

// redelivered has a message come again that is no suspect.
func (s *suspects) redelivered(lane int) {
	s.stage.in = s.in[lane]
	s.deliver(1, func(m *Message) { m.Raw.Redelivered = true })
}

// Health names the lane that others wait for.
func TestLanesThatWaitAreToldWhomTheyWaitFor(t *testing.T) {
	s := newSuspects(t, Limits{Ordered: true})
	for lane, deaths := range []int{10, 11, 12} {
		s.comes(lane, deaths)
		s.in[lane].Close(&s.out)
		s.in[lane].lane.TakeBack(0, false, s.now, &s.out)
		s.hand.Settled(s.out.Over, s.now, &s.out)
		s.out.Over = nil
		s.in[lane].lane.Closed(s.now, &s.out)
	}
	last := s.in[2].lane
	isSet(last.Changed)
	waits := func(when string, by *Lane) {
		t.Helper()
		if got, lane := last.AwaitsTurn(); !got || lane != by || !isSet(last.Changed) {
			t.Errorf("%s: waits %t, for %v, or is not told", when, got, lane)
		}
	}
	s.pass(durations.SuspectsMeet)
	waits("the first lane has the turn", s.lane)
	s.pass(durations.Uncleared)
	waits("the second has it", s.in[1].lane)
}

// A publisher can write the count that brokers write. Such a message is alone in hand, and costs other lanes nothing.
func TestACountOfAPublisherMovesNoTurn(t *testing.T) {
	s := newSuspects(t, Limits{})
	s.stage.in = s.in[0]
	written := func(m *Message) { m.Deaths = 10 }
	s.deliver(1, written) // 1
	s.comes(1, 0)         // 2
	s.took("no lane has a turn", "[1]", "[2]")
	s.endAll()
	s.settled(0)
	s.comes(0, 10) // 3
	s.comes(1, 0)  // 4
	s.pass(durations.SuspectsMeet)
	s.took("a suspect", "[3]")
	s.endAll()
	s.settled(0)
	s.pass(durations.SuspectsCome - 1)
	s.stage.in = s.in[0]
	s.deliver(1, written) // 5
	s.took("one that a publisher has made so", "[5]")
	s.endAll()
	s.comes(0, 0) // 6
	s.took("the turn is over", "[4]", "[6]")
}

// A session in order that does not end in time has its turn later: its next session meets its suspects again.
func TestALaneThatDoesNotGiveItsSuspectsBackHasNoTurn(t *testing.T) {
	s := newSuspects(t, Limits{Ordered: true})
	s.in[0].BeginNoMore(ErrSuspects, s.now, &s.out)
	s.comes(0, 10)
	s.comes(1, 0) // 2
	s.pass(durations.Uncleared - 1)
	s.took("the lane is waited for")
	s.pass(1)
	s.took("it is late", "[2]")
	if waits, by := s.lane.AwaitsTurn(); waits || by != nil || s.lane.HasTurn() {
		t.Errorf("its next session waits: %t, for %v", waits, by)
	}
}

// The session that ends is to give back what it has. Another one, with one message in hand, keeps it.
func TestALaneInOrderWithOneMessageInHandIsNotWaitedFor(t *testing.T) {
	s := newSuspects(t, Limits{Ordered: true})
	s.comes(0, 10) // 1
	s.pass(durations.SuspectsMeet)
	s.took("its turn", "[1]")
}

func TestATurnLastsUntilAWorkerIsFree(t *testing.T) {
	s := newSuspects(t, Limits{})
	for range s.hand.slots {
		s.comes(1, 0)
	}
	s.taken = nil
	s.comes(0, 10) // 10
	s.comes(2, 0)  // 11
	s.pass(3 * durations.Uncleared)
	s.took("all workers are at work")
	s.ends(s.runs[0])
	s.do()
	s.took("one is free", "[10]")
	s.ends(s.runs[0])
	s.do()
	s.took("another one is")
	s.pass(2 * durations.Uncleared)
	s.took("its turn is over", "[11]")
}

// A held message needs no free worker to go on, so a turn ends for it.
func TestATurnEndsWhileOtherLanesHoldMessages(t *testing.T) {
	s := newSuspects(t, Limits{})
	until := s.now.Add(15 * time.Minute)
	s.handle = func(*Grant) (time.Duration, func() *Hold) {
		return time.Millisecond, func() *Hold { return &Hold{Kind: ForAnother, For: time.Second, Until: until} }
	}
	for range s.hand.slots {
		s.comes(1, 0)
	}
	s.pass(10 * time.Millisecond)
	s.comes(0, 10)
	s.pass(2*durations.Uncleared + durations.SuspectsMeet)
	if state := s.in[1].lane.State(s.now); !state.Kept.IsZero() {
		t.Errorf("the lane that holds is kept: %+v", state)
	}
}

// Connections that are lost again and again have suspects come again and again: Health tells of it as of one time.
func TestTurnsThatFollowOthersCountAsOne(t *testing.T) {
	for rule, c := range map[string]struct {
		gap  time.Duration
		same bool
	}{
		"soon":               {durations.StandsStill - 1, true},
		"after a calm while": {durations.StandsStill, false},
	} {
		t.Run(rule, func(t *testing.T) {
			s := newSuspects(t, Limits{})
			began := s.now
			round := func() {
				s.comes(0, 10)
				s.pass(durations.SuspectsMeet)
				s.endAll()
				s.settled(0)
			}
			round()
			s.pass(durations.SuspectsCome)
			s.pass(c.gap)
			round()
			if kept := s.in[1].lane.State(s.now).Kept; kept.Equal(began) != c.same {
				t.Errorf("it is so since %v after the first suspect, want 0: %t", kept.Sub(began), c.same)
			}
		})
	}
}
