// Package durations has the durations of a consumer: how long it waits, pauses, and takes something
// for passing. Each is a constant with its reason, and they stand together because they
// are to be read against each other.
package durations

import "time"

// Starting and stopping a session.
const (
	// Declaring is how long a consumer waits for another process that may be declaring its queue.
	// A declaration takes less. On 3.10 the broker ends the connection (541), with all its
	// consumers, if a consumer begins on a quorum queue that is just being declared.
	Declaring = 2 * time.Second

	// OthersLeave is how long a consumer in order waits for other consumers of its queue to go that may be
	// ending. A queue learns of the end of a channel in milliseconds, and under load in some hundred. It trades a
	// start that is later, where others stay, for the places of the messages that come back.
	OthersLeave = 3 * time.Second

	// OthersAsked is the pause before the broker is asked again whether they have gone. It tells nobody.
	OthersAsked = 20 * time.Millisecond

	// DrainTimeout is the default of Config.DrainTimeout. With StopGrace, LastSecond and the up to
	// 5 s in which a Conn is closed, a stop ends before Kubernetes kills a pod after 30 s.
	DrainTimeout = 15 * time.Second

	// StopGrace is how long a stop may last beyond DrainTimeout: for handlers whose ctx
	// has ended, their copies and acks, and the end of the channel.
	StopGrace = 5 * time.Second

	// LastSecond is the part of a stop in which the consumer awaits no copy any more. It writes the
	// acks and closes the channel in that second. Run waits for a hook or a Logger that holds up a stop
	// for as long again.
	LastSecond = time.Second

	// HandlerGrace is how long a handler has to return once its ctx has ended at its timeout,
	// before it counts as stuck. One that obeys its ctx needs less; each second more is one in
	// which Health does not tell of a slot that is lost.
	HandlerGrace = 5 * time.Second

	// HeldEnd is how long messages that cannot be handled here again stay before the session in
	// order ends for them. Without it such sessions would follow each other at once.
	HeldEnd = time.Second

	// EndLook is how often a session in order that is to end looks whether its oldest message has been in hand
	// for too long, and whether the end can still be awaited. That handlers have returned it is told. A look costs next to
	// nothing.
	EndLook = time.Second

	// AcksLimit bounds the wait for a queue to have the acks that were written to it. A queue
	// that has lost its leader does not answer.
	AcksLimit = 3 * time.Second

	// AcksArrive is the wait in place of that answer where the queue may not be asked. It is more
	// than what a queue takes for the acks of a few handlers.
	AcksArrive = time.Second
)

// Pauses between sessions.
const (
	// FirstPause is the pause after the first session that is lost. Most are lost with their
	// socket, and the next one is there soon.
	FirstPause = 100 * time.Millisecond

	// LongestPause is the longest pause between two sessions. A session that is lost within
	// LongestPause of its start counts as a failure, and the pauses keep growing.
	// It trades the load on a broker that refuses for the delay once it does not any more.
	LongestPause = 10 * time.Second

	// LongestPauseConsumed is the longest pause after a session that has consumed. It is short
	// so that a message that ends every session soon reaches its delivery limit.
	LongestPauseConsumed = 2 * time.Second

	// PartsWithin is how soon after an internal error another one has the queues of the
	// socket part. A race of declarations on 3.10 costs one socket. A message that ends the
	// socket does so again within some seconds, because its queue is consumed again after
	// LongestPauseConsumed at the latest.
	PartsWithin = time.Minute

	// SharesAfter is how long a session on a socket of its own lives before its queue
	// shares again. A message at the head of a queue ends a session in its first second.
	// The rest leaves a broker under load its time.
	SharesAfter = 30 * time.Second

	// OpensWithin is how long a queue waits for a socket of its own before it shares, as
	// where the user may have no more connections.
	OpensWithin = 15 * time.Second

	// LongestPauseApart is the longest pause after sessions in which the broker could not hand
	// over a message. Each costs the broker a login and a crash report in its log, and
	// after a person has removed the message the queue is consumed at the latest when the
	// pause is over.
	LongestPauseApart = time.Minute
)

// The prefetch.
const (
	// Buffered is how much work of its handlers a consumer has the broker send ahead. It is more than
	// a round trip, so that quick handlers do not wait for the network, and little
	// enough that slow ones do not hoard what other consumers could handle.
	Buffered = 100 * time.Millisecond

	// Stale is how long a buffered message has waited that is in the wrong hands: the
	// handlers have become slow.
	Stale = 10 * Buffered

	// Calm is how long no message may have come that was delivered before, until messages are sent
	// ahead: after a crash all that was sent ahead counts towards the delivery limit.
	Calm = time.Second

	// Cautious is how long the prefetch stays small after it has been too large. It trades the
	// throughput of handlers that are quick again for messages that wait behind slow ones.
	Cautious = time.Minute

	// Uncleared is how long a handler may be at work on a message that is alone
	// in hand, because consumers may have died of it. Then others come too. It trades the
	// messages that a later crash counts against for those that wait behind a slow handler.
	Uncleared = time.Minute

	// SuspectsMeet is how long a lane that has met a suspect message waits for the other lanes
	// to meet theirs, before one of them has its turn. All sessions of a process that starts
	// begin within it. It trades a second of each process in a crash loop for an order of the
	// turns that spares innocent messages.
	SuspectsMeet = time.Second

	// SuspectsCome is how long the lane whose turn it is may have no message. Then there is none, or another
	// process has it. It trades the time in which other lanes stand still for one more return of
	// messages that come later.
	SuspectsCome = 3 * time.Second

	// BoundRises is how long a bound stays before a larger one is tried for the first time. Each try
	// ends the session in order. It trades these ends for other keys that stand still.
	BoundRises = time.Minute
)

// Messages that wait or are held.
const (
	// MaxLinger bounds Batch.Linger. Messages that wait for a batch have slots and are kept from
	// other consumers; a minute is far below LongestHold.
	MaxLinger = time.Minute

	// UnseenGrace is how long after its wait a message comes back at the latest whose
	// consumer may not look at the wait queue. A queue with a TTL, or a carrier, is
	// earlier.
	UnseenGrace = 10 * time.Second

	// TurnOver is how long a message that is not due yet keeps the others of its
	// queue from a slot at most. It trades that slot for how fast a queue of such messages goes round.
	TurnOver = 10 * time.Second

	// MaxSkew is how far the clocks of two consumers may be apart. Beyond it, a message that
	// one of them sent to a wait with a TTL looks early to the other. Clocks that are kept by NTP
	// differ by milliseconds.
	MaxSkew = time.Second

	// FirstHold is the pause before a message that is held is handled again for the first time. What a
	// handler waits for may be back at once.
	FirstHold = 200 * time.Millisecond

	// LongestHoldPause is the longest pause between two such runs. It trades the runs
	// that fail for the delay of a message once they would not.
	LongestHoldPause = 30 * time.Second

	// LongestHold bounds how long a delivery is kept, well below BrokerTimeout.
	LongestHold = 15 * time.Minute

	// BrokerTimeout is after how long a broker takes a delivery away by default. It is assumed where the
	// timeout of a queue is not known.
	BrokerTimeout = 30 * time.Minute

	// LeastTimeout is how old a delivery is at least that a broker takes away for its
	// timeout. A cancel that comes sooner has another reason.
	LeastTimeout = 500 * time.Millisecond
)

// Liveness.
const (
	// VisitAfter is how long a session waits for a delivery before it visits the queue
	// (ask.Visit), and how long between two visits. It trades the visits to idle queues for
	// the time in which a silent one is not noticed.
	VisitAfter = 10 * time.Second

	// SilentAfter is how old the latest sign is when the consumer counts as
	// unhealthy: a visit and 5 s without its answer.
	SilentAfter = VisitAfter + 5*time.Second

	// OnItsWay is how long a message may take from the queue to here, also over a slow network. So
	// long a consumer that was busy a moment ago is not visited.
	OnItsWay = time.Second

	// VisitLimit is how long the queue has to answer before the socket is given
	// up. The election of a leader takes seconds, and must not cost one.
	VisitLimit = 15 * time.Second

	// StrayArrives is more than what a queue takes to have a message back.
	StrayArrives = time.Second
)

// Outages.
const (
	// OutageFirstPause is between the beginning of an outage and the first probe. It is short,
	// because what is away may be back at once, and a probe costs one run of the handler.
	OutageFirstPause = 200 * time.Millisecond

	// OutageMaxPause is the default of Outage.MaxPause. It trades the probes of what is away for
	// the delay once it is back.
	OutageMaxPause = 10 * time.Second
)

// Copies.
const (
	// CopyTimeout is the default of Config.CopyTimeout. It outlasts the
	// election of a leader: a copy that is sent again may be in its next place twice.
	CopyTimeout = time.Minute

	// FirstCopyPause is the pause before a copy that failed is tried again for the first time. What
	// failed may be a connection that is there again at once.
	FirstCopyPause = 100 * time.Millisecond

	// LongestCopyPause is the longest pause between two tries of one copy. All the while the message
	// has a slot, and after a person has mended the place the copy goes there at
	// the latest when the pause is over.
	LongestCopyPause = 10 * time.Second

	// PlaceRemembered is how long a failing place is remembered after its last message went back
	// to the queue. The message comes again, and its copy is likely to fail again.
	PlaceRemembered = time.Minute

	// FirstAlarmPause is between the first two questions whether the broker reads publishes again. Each
	// is itself a message to a broker that has no room. It trades them for a later start.
	FirstAlarmPause = time.Second

	// LongestAlarmPause is the longest pause between two such questions, and so how long after an alarm
	// nothing is consumed.
	LongestAlarmPause = 10 * time.Second
)

// Carriers.
const (
	// CarrierPatience is how long what is due may fail to be published before the
	// wait is left to another process, if there is one.
	CarrierPatience = time.Minute

	// CarrierSound is how long a session of a carrier has to live before the wait counts as carried.
	// In less, a wait whose sessions end again and again would count so in between.
	CarrierSound = 15 * time.Second

	// CarrierGrace is how long confirms are awaited when Run stops. A message whose confirm comes
	// later is carried once more.
	CarrierGrace = 5 * time.Second

	// CarrierFirstPause is the pause after the first session of a carrier that has failed.
	CarrierFirstPause = 200 * time.Millisecond

	// CarrierLongestPause is the longest pause after such sessions. It is longer than LongestPause:
	// messages that wait are late by it, and those of the work queue are not.
	CarrierLongestPause = time.Minute

	// WaitsLook is how often a consumer looks for a wait that a process with a
	// longer schedule has added. That process carries it as long as it runs, so this look is for
	// when it has stopped.
	WaitsLook = 2 * time.Minute

	// LongestWaitsLook is how rarely a consumer without waits of its own looks in the end.
	// Usually there is no such wait, and the broker logs each look.
	LongestWaitsLook = 30 * time.Minute
)

// Lanes. Each is for how long lower lanes stand still for a higher one: in more, free workers have
// nothing to do, and in less, messages of a lower lane go first.
const (
	// LaneOpening is how long lower lanes wait for a higher one that is about to
	// consume.
	LaneOpening = 3 * time.Second

	// LaneOnItsWay is how long, beside round trips, a lane waits for the broker to send a
	// message when there is room again. Then it asks the queue whether it has any. In round trips
	// alone it would ask nearly twice as often on a busy machine (38 times in place of 20 in 16 runs of 3,000
	// messages on 4.3), and at once 100 times as often.
	LaneOnItsWay = 50 * time.Millisecond

	// LaneNothing is how long lower lanes wait for a higher one whose queue says that
	// it has messages and sends none.
	LaneNothing = 3 * time.Second

	// LaneAsk is how long a queue has to answer whether it has messages. One that has
	// lost its leader does not answer, and lower lanes go on.
	LaneAsk = time.Second

	// LaneAnswer is how long lower lanes wait for the answer of a queue. It is longer than LaneAsk:
	// the session that is to ask may be held up, by a hook or by the broker.
	LaneAnswer = 2 * time.Second

	// LaneSettling is how long lower lanes wait for a higher one whose slots are taken
	// by copies that are not confirmed.
	LaneSettling = time.Second
)

// Watches.
const (
	// BrokerLook is how often a consumer looks whether the parts of its topology are there, and asks
	// for the policies that apply to its queues. People change them, and no event tells. It trades a
	// question for each part, and a request to the management API, for the time in which a missing part
	// takes no message.
	BrokerLook = 2 * time.Minute

	// ResolveAfter is how long copies are not confirmed before it looks for the parts of the
	// topology: longer than the election of a leader.
	ResolveAfter = 20 * time.Second

	// CopiesLook is between two such looks. It trades the questions for the time until Health names a part, or a new
	// place of the copies is used.
	CopiesLook = 10 * time.Second

	// ResolveLimit bounds such a look. A broker that does not answer is
	// looked at again the next time.
	ResolveLimit = 15 * time.Second
)

// Shards that several processes share.
const (
	// GroupLook is how often a process looks how many others consume its shards. It trades one
	// question for each shard for the time until a new process has its share. When a process goes,
	// the broker does not wait for a look.
	GroupLook = 10 * time.Second

	// GroupRefused is how long a process that may not look waits until it tries again. Each try is an error
	// in the broker's log.
	GroupRefused = 2 * time.Minute
)

// Health.
const (
	// Lost is how long consuming may be interrupted before that counts as more
	// than a reconnect.
	Lost = 15 * time.Second

	// SettlingLimit is how long every slot may be taken by a message that waits for
	// its copy to be confirmed, before the consumer counts as unhealthy. The election of
	// a leader takes less.
	SettlingLimit = 15 * time.Second

	// StandsStill is how long messages may be kept from free slots until Health tells: by the
	// handlers of an ordered session that is to begin anew, by messages that are held, or
	// by one key. A burst of one key that is handled in less time is nothing that an operator
	// could mend.
	StandsStill = time.Minute
)
