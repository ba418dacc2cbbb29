package store

import (
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
)

// State of an entry.
type State string

// The states. The Forwarder publishes entries that are Ready. Entries that need a person
// are Held or Parked until somebody replays or releases them.
const (
	// Ready entries are published by a [Forwarder] as soon as they are due.
	Ready State = "ready"
	// Held entries wait for [Store.Replay]. They are dead letters, and messages
	// that the broker would not take: unroutable, nacked or refused.
	Held State = "held"
	// Parked entries have failed too often, or were set aside by [Store.Park].
	Parked State = "parked"
	// Archived entries are kept for the record, until Config.KeepArchived has
	// passed.
	Archived State = "archived"
)

// Entry is a message in the store.
type Entry struct {
	Number int64 // of the row, in the order of storing
	State  State

	// Message as it is published again. Its Headers are as they arrived; a
	// Producer leaves the headers of the broker and of rehop out.
	Message producer.Message

	Queue     string      // of a dead letter: the work queue that gave it up
	Cause     rehop.Cause // why it is here; empty: PutTx or PutAt
	Error     string      // cut to 4 KiB
	ErrorType string

	// Fingerprint is the same for all entries of one reason: the work queue (topology.Lanes
	// with OneDeadLetterQueue are one; or the exchange, if the message was in none), the cause, the type of the error, and
	// the first line of its text without quoted words and words with a digit, such as
	// numbers, times and ids.
	Fingerprint string

	Attempts  int    // of the handlers, of a dead letter
	Redrives  int    // times that a person had sent the message back before
	RedriveID string // id of the redrive by which a person sent it back last

	Tries       int    // of forwarding that failed because of the message or its target
	TryError    string // of the last one
	Unconfirmed int    // publishes whose answer is unknown: the message may be in its queue

	// Due is when the message is wanted; zero: at once. A message with a Delay is
	// due when that has passed, counted from when it was stored. The Forwarder publishes
	// it then, without a Delay. Replay, if it comes earlier, publishes it with the
	// rest of the Delay.
	Due         time.Time
	NextTry     time.Time // the entry is not published before; if leased, the end of the lease; zero: at once
	FirstFailed time.Time
	Failed      time.Time
	Stored      time.Time
	Lease       string // the process that is publishing it; empty: none

	workQueue string // Queue, or the name of the lanes that Queue is one of; empty: read from the database

	line  int64 // that it stands in; 0: none
	alone bool  // the broker has refused it: see confirm.Alone
}

// resent is the message of an entry as it is published now.
func (l *Entry) resent(now time.Time) producer.Message {
	m := resend.Message(l.Message, l.Queue)
	if l.Cause != "" { // else it was never published before
		m.Replays++
	}
	m.Delay = l.delayLeft(now)
	return m
}

// delayLeft is the Delay with which the message is published now.
func (l Entry) delayLeft(now time.Time) time.Duration {
	if l.Message.Delay == 0 || l.Due.IsZero() {
		return l.Message.Delay
	}
	return max(l.Due.Sub(now), 0)
}

// Group is a set of entries with the same fingerprint.
type Group struct {
	Fingerprint string
	Count       int
	More        bool      // there are more entries than Count
	First, Last time.Time // times of the first and the last failure
	Example     Entry     // the one that failed first, without its Body
}
