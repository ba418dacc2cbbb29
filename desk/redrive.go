package desk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk/internal/typed"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// ErrNoLetter is wrapped by the errors of calls for one letter that is not there.
var ErrNoLetter = errors.New("desk: there is no such letter")

// ErrNoRedrive is wrapped by the errors of calls for a redrive that is not in the journal.
var ErrNoRedrive = errors.New("desk: there is no such redrive")

// ErrRedriveStopped is wrapped by the error of a redrive that was stopped by [Journal.Stop]
// or by the end of its ctx.
var ErrRedriveStopped = errors.New("desk: the redrive was stopped")

// errStopped is ErrRedriveStopped as the cause of a ctx.
var errStopped = pause.Own(ErrRedriveStopped)

// ErrTarget is wrapped by the error of a redrive that ended because a target took no
// message, or has left the letters of one: it is missing, full, or does not answer.
var ErrTarget = errors.New("desk: the target takes no messages")

// Action is the treatment of a letter.
type Action string

// The actions.
const (
	// Send publishes the message as its producer did, but to the queue that failed on
	// it or to Redrive.To, and without its own expiration: it would be a letter again if
	// it waited behind others for longer. A TTL of the queue still counts. It starts at
	// attempt 1.
	Send Action = "send"
	// Move publishes the letter as it is, with all its headers, to Redrive.To, such as
	// a queue for parked letters.
	Move Action = "move"
	// Drop writes the letter to the file Redrive.CopyTo, and then deletes it.
	Drop Action = "drop"
)

// Redrive names letters and the action on them. It does not change once it is in the
// journal.
type Redrive struct {
	// ID defaults to a new one; up to 64 letters, digits, dashes and underscores.
	ID     string `json:"id"`
	Action Action `json:"action"`

	Filter Filter `json:"filter"`
	All    bool   `json:"all,omitzero"` // allows the zero Filter

	// To is where the messages go. If nil, each goes to the queue that failed on it, or
	// to its exchange if no queue had it. A letter whose headers tell neither is left
	// in its place.
	To *topology.Address `json:"to,omitzero"`

	// Edit changes each message that is sent.
	Edit *Edit `json:"edit,omitzero"`

	// Rate is how many letters are sent per second at most, from 0.001 to 100,000; 0:
	// no bound.
	Rate float64 `json:"rate,omitzero"`

	// Look, if set, is Seen.At of an answer of the source: the redrive is about the
	// letters of that look which the Filter selects, and takes no other letter. If zero, it
	// is about the letters that are in their place when it begins. A live source counts
	// these, and notes each that it sees. After a pause it takes no later letter in the
	// place of one that it has seen. Of the letters behind those it knows only the number:
	// a later letter may take the place of one that expired, or that somebody else took,
	// before the redrive came to it. A live source keeps its last look only, and refuses
	// another one with [ErrNotLooked].
	Look time.Time `json:"look,omitzero"`

	// Limit bounds the letters that are tried; 0: no other bound.
	Limit int `json:"limit,omitzero"`

	// Canary, if set, sends one letter first and waits for this long. If the message
	// is a letter again by then, the redrive ends with [store.ErrCanary]. So it should
	// be longer than all waits of the queue together. A message that is in a wait by then,
	// or that no consumer has taken, counts as passed. Resume watches a canary again, for
	// the whole time, whose watch was cut off. After ErrCanary it sends the rest. With
	// connection.Config.ManagementURL, Progress.Note says if it is too short.
	Canary time.Duration `json:"canary,omitzero"`

	// CopyTo is the file that the letters are appended to, as Export writes them, before they are
	// dropped, or before messages with an Edit are sent from a queue. Required for Drop; for such
	// an Edit the default is Journal.DroppedTo of the ID. Execute makes a relative path absolute.
	CopyTo string `json:"copy_to,omitzero"`

	// By is who has asked for the redrive; it may be empty.
	By By `json:"by,omitzero"`

	// MessageIDs are those of the letters of Filter.IDs, for people, who know a message by its own id. Execute sets
	// them if the letters are few and known by then, and each has one.
	MessageIDs []string `json:"message_ids,omitzero"`

	// Source and Created are set by Execute.
	Source  string    `json:"source"`
	Created time.Time `json:"created"`

	letters []string // of Look, in a queue: their identities
	broker  string   // as brokerOf names it; empty: not known when the redrive began
}

// maxRate is the highest Redrive.Rate.
const maxRate = 100_000

var redriveID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// check returns the redrive as it is written down, or all its faults.
func (r Redrive) check(a About, now time.Time) (Redrive, error) {
	if r.ID == "" {
		r.ID = now.UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:6])
	}
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("desk: Redrive."+format, args...)) }
	if !redriveID.MatchString(r.ID) {
		fault("ID is %.80q, want up to 64 letters, digits, dashes and underscores", r.ID)
	}
	if r.Filter.IsZero() && !r.All {
		fault("Filter is empty, want a condition, or All")
	}
	if err := r.Filter.check(); err != nil {
		errs = append(errs, err)
	}
	if !resend.IsRate(r.Rate) || r.Rate > maxRate {
		fault("Rate is %v, want 0 for no bound, or 0.001 to 100,000 letters a second", r.Rate)
	}
	if r.Limit < 0 {
		fault("Limit is %d, want 0 (no bound) or more", r.Limit)
	}
	switch r.Action {
	case Send:
	case Move:
		if r.To == nil {
			fault("To is nil: Move wants to know where to")
		}
		if r.Edit != nil {
			fault("Edit is for Send")
		}
	case Drop:
		if r.CopyTo == "" {
			fault("CopyTo is empty: Drop writes the letters to a file first")
		}
		if r.To != nil || r.Edit != nil {
			fault("To and Edit are not for Drop")
		}
	default:
		fault("Action is %q, want send, move or drop", r.Action)
	}
	if r.CopyTo != "" {
		var err error // that nobody knows the working directory
		if r.CopyTo, err = filepath.Abs(r.CopyTo); err != nil {
			fault("CopyTo: %w", err)
		}
	}
	if r.CopyTo != "" && r.Action != Drop && (r.Edit == nil || !a.Live) {
		fault("CopyTo is %.80q, want nothing: it is for Drop, and for an Edit of letters of a queue", r.CopyTo)
	}
	if r.To != nil && *r.To == (topology.Address{}) {
		fault("To is empty, want an exchange and a routing key, or the name of a queue as the key")
	}
	if r.To != nil && a.Live && r.To.Exchange == "" && r.To.RoutingKey == a.Queue {
		fault("To is %q, the queue that the letters are in", a.Queue)
	}
	if r.Canary < 0 || r.Canary > 0 && r.Action != Send {
		fault("Canary is %v, want 0 or more, for Send", r.Canary)
	}
	if r.By.MaybeSent != "" {
		fault("By.MaybeSent is %q, want nothing: it is for Resume", r.By.MaybeSent)
	}
	if err := r.Edit.check(); err != nil {
		errs = append(errs, err)
	}
	r.Source, r.Created, r.MessageIDs = a.Name, now.UTC(), nil
	if !r.Look.IsZero() {
		r.Look = r.Look.UTC().Round(0)
	}
	return r, rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// canaryTimeout bounds the question about waits before a redrive with a canary.
const canaryTimeout = 5 * time.Second

// canaryNote returns a note if Redrive.Canary is shorter than the waits of a work queue
// together; empty if it is not, or if nobody lists the waits. Without Redrive.To and
// Filter.Queue, isTarget selects the queues to which the canary may go, and the one with
// the shortest waits counts.
func (r Redrive) canaryNote(ctx context.Context, conn *connection.Conn, isTarget func(Queue) bool) string {
	switch {
	case r.To != nil && r.To.Exchange != "":
		return ""
	case r.To != nil:
		isTarget = func(q Queue) bool { return q.Name == r.To.RoutingKey }
	case r.Filter.Queue != "":
		isTarget = func(q Queue) bool { return q.Name == r.Filter.Queue }
	}
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	infos, err := infosOf(ctx, conn)
	if err != nil {
		return "" // AMQP lists no queues
	}
	name, shortest := "", time.Duration(0)
	for _, q := range fold(infos, connection.Version{}) {
		if !isTarget(q) {
			continue
		}
		waits := waitsOf(q.Name, infos)
		if waits <= r.Canary {
			return ""
		}
		if name == "" || waits < shortest {
			name, shortest = q.Name, waits
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("a canary of %v is too short: a message that is retried becomes a letter after %v at the earliest, the waits of %s together", r.Canary, shortest, name)
}

// targetNote returns a note if Redrive.To is a queue that confirms a message and deletes another
// one for it; empty if it does not, or if nobody tells.
func (r Redrive) targetNote(ctx context.Context, conn *connection.Conn) string {
	if r.Action == Drop || r.To == nil || r.To.Exchange != "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	facts, err := factsOf(ctx, conn, r.To.RoutingKey)
	if err != nil || !facts.dropsHead() {
		return "" // the first letter finds out what is wrong with the target
	}
	return fmt.Sprintf("queue %s has a length limit that drops its oldest messages: when it is full it confirms each letter, and deletes a message or a letter for it", r.To.RoutingKey)
}

// noted joins notes that are not empty.
func noted(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(note string) bool { return note == "" }), "; ")
}

// Edit changes a message before it is sent. A nil field changes nothing.
type Edit struct {
	Body *[]byte `json:"body,omitzero"`

	// Set sets headers. The value of a header that was a number, a boolean, a time or bytes
	// stays one if the text is one; else it becomes the text. No header that rehop or the broker
	// writes, such as x-rehop-queue and x-death, can be set or removed.
	Set         map[string]string `json:"set,omitzero"`
	Remove      []string          `json:"remove,omitzero"`
	ContentType *string           `json:"content_type,omitzero"`
	RoutingKey  *string           `json:"routing_key,omitzero"` // that the handler sees
}

func (e *Edit) check() error {
	if e == nil {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(e.Set)) {
		if err := typed.Name(name); err != nil {
			errs = append(errs, fmt.Errorf("desk: Edit.Set: %w", err))
		}
	}
	for _, name := range e.Remove {
		if err := typed.Name(name); err != nil {
			errs = append(errs, fmt.Errorf("desk: Edit.Remove: %w", err))
		}
	}
	if errs == nil {
		return nil
	}
	return rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// apply changes a message. It shares no map with what the message was made from.
func (e *Edit) apply(m *producer.Message) {
	if e == nil {
		return
	}
	if e.Body != nil {
		m.Body = *e.Body
	}
	if e.ContentType != nil {
		m.ContentType = *e.ContentType
	}
	if e.RoutingKey != nil {
		m.RoutingKey = *e.RoutingKey
	}
	m.Headers = maps.Clone(m.Headers)
	for _, name := range e.Remove {
		delete(m.Headers, name)
	}
	for name, value := range e.Set {
		if m.Headers == nil {
			m.Headers = map[string]any{}
		}
		m.Headers[name] = typed.Like(m.Headers[name], value)
	}
}

// State is how far a redrive has come.
type State string

// The states of a redrive.
const (
	Running State = "running"
	CutOff  State = "cut off" // its process has died; it can be resumed
	Done    State = "done"    // if letters have failed or may have been sent, it can be resumed
	Stopped State = "stopped" // by a person; it can be resumed
	Failed  State = "failed"  // Progress.Error says why; it can be resumed
)

// Progress is how far a redrive has come, and in the end its result.
type Progress struct {
	Redrive Redrive `json:"-"`
	State   State   `json:"state"`

	// Bound is how many letters the redrive is about: those of its Look, those that were
	// in their place when it began, or its Limit, if that is less. 0: nobody has counted
	// how many the Filter selects.
	Bound int `json:"bound,omitzero"`

	Matched int `json:"matched"` // letters that the Filter has selected so far
	Done    int `json:"done"`    // confirmed where they went, or copied and dropped
	Failed  int `json:"failed"`  // tried, and still in their place
	Skipped int `json:"skipped"` // selected and left: like one that this redrive has sent or tried, without a target, or changed by somebody while they were dropped

	// MaybeDuplicate counts letters of Done that may be in their queue more than once, because
	// an earlier process of this redrive died between their publish and the note of it,
	// or because somebody has resumed the redrive with the decision Again.
	MaybeDuplicate int `json:"maybe_duplicate,omitzero"`

	// MaybeSent counts letters that stay in their queue because nothing tells them from
	// letters that this redrive has sent, moved or dropped: the connection or the process
	// ended before it was known that the queue had let go of those. They may be the same
	// letters, or others with the same id, headers and body. Note names them. Source.Resume
	// with By.MaybeSent decides about them. A collected source has none.
	MaybeSent int `json:"maybe_sent,omitzero"`

	// Deleted counts letters that have left their queue by By.MaybeSent: they were sent
	// before, and Done counts them.
	Deleted int `json:"deleted,omitzero"`

	// InHand is how many letters of a queue are taken now, until they are sent or
	// handed back.
	InHand int `json:"in_hand,omitzero"`

	Error   string    `json:"error,omitzero"` // the last one
	Note    string    `json:"note,omitzero"`  // what the redrive left out or may have sent, that no letter matched, or that the canary is too short
	LastID  string    `json:"last_id,omitzero"`
	Updated time.Time `json:"updated,omitzero"`

	// Began is when the process began that works on the redrive, or worked on it last,
	// and DoneBefore is Done at that time.
	Began      time.Time `json:"began,omitzero"`
	DoneBefore int       `json:"done_before,omitzero"`
}

// Ended reports whether nothing works on the redrive.
func (p Progress) Ended() bool { return p.State != Running }

// Resumable reports whether Source.Resume has something to do: the redrive has ended and is
// not done, or letters have failed or may have been sent.
func (p Progress) Resumable() bool {
	return p.Ended() && (p.State != Done || p.Failed > 0 || p.MaybeSent > 0)
}

// Importable reports whether the letters of Redrive.CopyTo have left their place, so that an Import of the file
// doubles none: those of a Drop, or the originals of an Edit. While the redrive goes on, after its process has
// died, and while letters may have been sent, some may still be there.
func (p Progress) Importable() bool {
	return (p.Redrive.Action == Drop || p.Redrive.Edit != nil) && p.Redrive.CopyTo != "" &&
		p.Done > 0 && p.Ended() && p.State != CutOff && p.MaybeSent == 0
}

// Reason returns Error for people: as the last error if several letters failed, because each of them may have failed
// for another reason.
func (p Progress) Reason() string {
	if p.Error != "" && p.Failed > 1 {
		return "last error: " + p.Error
	}
	return p.Error
}

// String returns the progress in a line.
func (p Progress) String() string {
	of := ""
	if total, about := p.Total(); p.State == Running && total > 0 {
		of = "of " + strings.TrimSpace(about+" "+strconv.Itoa(total)) + " "
	}
	text := fmt.Sprintf("%s: %d %s%s", p.State, p.Done, of, map[Action]string{Send: "sent", Move: "moved", Drop: "dropped"}[p.Redrive.Action])
	if p.Failed > 0 {
		text += fmt.Sprintf(", %d failed", p.Failed)
	}
	if p.Skipped > 0 {
		text += fmt.Sprintf(", %d left out", p.Skipped)
	}
	if p.MaybeSent > 0 {
		text += fmt.Sprintf(", %d perhaps sent", p.MaybeSent)
	}
	if p.Deleted > 0 {
		text += fmt.Sprintf(", %d deleted as sent before", p.Deleted)
	}
	if p.MaybeDuplicate > 0 {
		text += fmt.Sprintf(", %d perhaps twice", p.MaybeDuplicate)
	}
	switch reason := p.Reason(); {
	case reason == "":
	case reason != p.Error:
		text += "; " + reason
	default:
		text += ": " + reason
	}
	if p.Note != "" {
		text += "; " + p.Note
	}
	return text
}
