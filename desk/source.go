package desk

import (
	"context"
	"io"
	"time"
)

// Source is where letters are: a queue, by [NewLive], or a store, by [NewCollected]. Only
// this package implements it, so that it may get further methods. Its methods are safe for
// concurrent use.
type Source interface {
	// About describes the source. It asks nobody.
	About() About

	// List returns a page of letters in the order of their places.
	List(ctx context.Context, f Filter, p Page) (List, error)

	// Groups returns the letters that a Filter selects by fingerprint, the largest
	// group first. Letters without a cause are in the group without a fingerprint
	// of a live source, and in none of a collected one.
	Groups(ctx context.Context, f Filter) (Groups, error)

	// Trend returns how many letters failed in each of n equal parts, 1 to 100, of the
	// time between from and to. A collected source counts up to 2,000 letters in each
	// part. more reports that letters were not counted.
	Trend(ctx context.Context, f Filter, from, to time.Time, n int) (counts []int, more bool, err error)

	// Targets counts where the letters go that a Filter selects, if they are sent without
	// Redrive.To. A collected source counts up to 10,000 letters.
	Targets(ctx context.Context, f Filter) (Targets, error)

	// Letter returns one letter, or an error that wraps [ErrNoLetter]. The audit has a record
	// of it, with the By of [WithBy].
	Letter(ctx context.Context, id string) (Letter, error)

	// Execute carries out a redrive and returns when it has ended. Ending ctx stops
	// the redrive, which may be resumed. progress, if not nil, is called as it goes, by
	// one goroutine at a time. The error says why the redrive ended early; letters that
	// failed are no error, they are in the Progress.
	Execute(ctx context.Context, r Redrive, progress func(Progress)) (Progress, error)

	// Resume continues a redrive of this source that was stopped or cut off. The
	// audit names who has resumed it.
	Resume(ctx context.Context, id string, by By, progress func(Progress)) (Progress, error)

	// Export writes the letters that a Filter selects as lines of JSON, the first limit of
	// them, or all with a limit of 0. It returns how many. Import is its inverse. The
	// letters stay. A live source that cannot reach so many in one look writes none, and
	// its error wraps [ErrNotWhole]. Of a store Export writes the letters of List: Seen.Aside of
	// that has those that it leaves out, and so has the record of an export without a limit.
	Export(ctx context.Context, f Filter, limit int, w io.Writer, by By) (int, error)

	// Journal returns the journal of the source.
	Journal() *Journal

	isSource()
}

// Keeper is a Source that can keep letters for later: a store, by [NewCollected]. Only this
// package implements it.
type Keeper interface {
	Source

	// Park, Archive and Release change the state of letters and return how many.
	Park(ctx context.Context, f Filter, by By) (int, error)
	Archive(ctx context.Context, f Filter, by By) (int, error)
	Release(ctx context.Context, f Filter, by By) (int, error)

	// Edit changes a letter where it is. The journal keeps the original.
	Edit(ctx context.Context, id string, e Edit, by By) error

	// Collect takes letters out of queues of dead letters and keeps them, until ctx
	// ends, and returns how many. A letter leaves its queue after it is kept. If
	// progress is not nil, Collect calls it with the number of letters so far, every
	// ten seconds if letters have come.
	Collect(ctx context.Context, queues []string, by By, progress func(letters int)) (int, error)
}

// By is the person who acts, and the reason. The journal keeps both as they are; nobody
// checks them, and both may be empty.
type By struct {
	Who string `json:"who,omitzero"`
	Why string `json:"why,omitzero"`

	// MaybeSent, of a Resume, is the person's decision about the letters of
	// Progress.MaybeSent. Empty: they stay.
	MaybeSent Answer `json:"maybe_sent,omitzero"`
}

// Answer is a decision about letters that may be those that a redrive has sent, or others
// like them: see Progress.MaybeSent. A person may know which, such as from the receiver.
type Answer string

// The decisions.
const (
	// Again treats them as other letters: the redrive sends, moves or drops them. They
	// count in Progress.MaybeDuplicate. A letter that would exceed Redrive.Limit, or whose
	// queue has refused ten in a row, stays as it was.
	Again Answer = "again"
	// Delete treats them as those that were sent: they leave their queue. If they were
	// others, those are lost.
	Delete Answer = "delete"
)

func (a Answer) valid() bool { return a == "" || a == Again || a == Delete }

type byKey struct{}

// WithBy returns a ctx for the methods of a [Source] that only read and so take no By: the audit
// names by for each look into a queue and for each letter that Letter returns. Without it,
// the records of these name nobody.
func WithBy(ctx context.Context, by By) context.Context { return context.WithValue(ctx, byKey{}, by) }

func byOf(ctx context.Context) By {
	by, _ := ctx.Value(byKey{}).(By)
	return by
}

// About describes a [Source].
type About struct {
	Name   string // such as "queue orders.dlq" or "store letters.db"
	Live   bool   // a queue of a broker: each look takes and hands back
	Queue  string // of a live source
	Keeper bool   // the source is a Keeper
}

// Page is a part of a list.
type Page struct {
	// After is Letter.Place of the last letter of the page before; 0: from the
	// beginning.
	After int64

	// Limit is the number of letters, 1 to 1,000; defaults to 100.
	Limit int

	// Look makes a live source look again. Otherwise it answers from its last look,
	// if there is one.
	Look bool

	// CountAll makes a collected source count all letters that match, which takes a
	// second for some millions. Otherwise it counts up to 10,000. Where the database
	// cannot answer the question, it counts those that match among 5,000, and Total is
	// how many letters match as far as the database can tell.
	CountAll bool
}

// List is a page of letters.
type List struct {
	Letters []Letter
	Matched int // letters that the Filter selects, of Seen; at least so many if More is set
	Seen
	Next int64 // Page.After of the next page; 0: there is none
}

// Groups are letters grouped by the reason of their failure.
type Groups struct {
	Groups []Group // at most 100
	Seen
}

// Seen says which letters an answer is about. Letters that redrives of a live source have taken
// from their queue since the look are no part of it.
type Seen struct {
	At    time.Time // of the look
	Seen  int       // letters that the answer is about
	Total int       // letters in the place; more than Seen if a bound left some out
	Gone  int       // letters of a look that redrives of the live source have taken since
	More  bool      // there are letters that were not counted
	Bound string    // why it is about fewer than Total, for people; empty if it is not
	Bytes int       // of memory that a live source keeps for the look, about

	// Aside says how many letters of a store fit the conditions and do not wait for a person, for people,
	// such as "12 archived, 3 ready". They are no part of the answer, since Filter.States is nil. Empty if
	// there are none.
	Aside string
}

// Group is a set of letters that failed for the same reason.
type Group struct {
	Fingerprint string
	Count       int
	More        bool      // there are more letters than Count
	First, Last time.Time // times of the first and the last failure
	Redriven    int       // of Count: sent back before, and failed again; -1: unknown
	Example     Letter
}
