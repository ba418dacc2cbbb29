package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/pause"
)

// MaxWindow is how many letters of a queue a live source looks at, at most.
const MaxWindow = 10_000

// limitedWindow is that of a queue with a delivery limit.
const limitedWindow = 100

// sample is how many letters are looked at to find out how large they are.
const sample = 16

// LiveConfig is for [NewLive]. Journal is required.
type LiveConfig struct {
	Journal *Journal

	// Window is how many letters one look takes at most: 1 to 10,000, the default.
	Window int

	// WindowBytes is about how many bytes of letters a source keeps of its last look. A
	// look goes on to take letters that were handed back before, without keeping them, and
	// has up to 64 letters more under way, however large they are. Defaults to 64 MiB.
	WindowBytes int

	// OnlyWhenAsked keeps questions from causing a look. Only Peek, Export, redrives and
	// Page.Look look then. List, Groups, Trend and Letter return [ErrNotLooked] until
	// somebody has looked, and again after a redrive that leaves it open which letters are
	// there.
	OnlyWhenAsked bool
}

// ErrNotLooked is wrapped by the errors of a live source that nobody has looked into,
// with LiveConfig.OnlyWhenAsked.
var ErrNotLooked = errors.New("desk: nobody has looked into the queue")

// Live is a queue of dead letters on a broker.
type Live struct {
	conn  *connection.Conn
	queue string
	cfg   LiveConfig

	inFlight int // how many letters of a redrive are under way at a time

	gap func(moment string) // of tests: called between the steps of a redrive

	turn chan struct{} // one look or redrive of this process at a time

	mu   sync.Mutex
	last *look
	took int // letters that the last look has handed back
}

var _ Source = (*Live)(nil)

// maxSilences is how long, in times of idle, a look waits for the next letter of a queue
// that has some.
const maxSilences = 15

// othersSilences is how long, if none are ready and the queue has other consumers: these
// have taken the rest.
const othersSilences = 5

// NewLive returns the letters in a queue. It asks the broker nothing. With
// connection.Config.ManagementURL it looks into every queue whose arguments and
// policies allow it. Without it, it looks only into queues that have neither a
// length limit nor a delivery limit, such as the dead-letter queues of package
// topology.
func NewLive(conn *connection.Conn, queue string, cfg LiveConfig) (*Live, error) {
	cfg.Window = cmp.Or(cfg.Window, MaxWindow)
	cfg.WindowBytes = cmp.Or(cfg.WindowBytes, 64<<20)
	var errs []error
	if conn == nil {
		errs = append(errs, errors.New("desk: the Conn is nil"))
	}
	if queue == "" {
		errs = append(errs, errors.New("desk: the queue has no name"))
	}
	if cfg.Journal == nil {
		errs = append(errs, errors.New("desk: LiveConfig.Journal is nil"))
	}
	if cfg.Window < 1 || cfg.Window > MaxWindow {
		errs = append(errs, fmt.Errorf("desk: LiveConfig.Window is %d, want 1 to %d", cfg.Window, MaxWindow))
	}
	if cfg.WindowBytes < 1 {
		errs = append(errs, fmt.Errorf("desk: LiveConfig.WindowBytes is %d, want 1 or more", cfg.WindowBytes))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
	}
	return &Live{conn: conn, queue: queue, cfg: cfg, inFlight: inFlight, turn: make(chan struct{}, 1)}, nil
}

// About describes the source.
func (l *Live) About() About {
	return About{Name: "queue " + l.queue, Live: true, Queue: l.queue}
}

// Journal returns the journal of the source.
func (l *Live) Journal() *Journal { return l.cfg.Journal }

func (l *Live) isSource() {}

// Peek looks again and returns up to n letters from the head of the queue. A look
// takes as many letters as the window allows, whatever n is, hands them back in their
// order, and marks them as redelivered. Peek returns a [*RefusedError] where a look
// could cost a letter.
func (l *Live) Peek(ctx context.Context, n int) (List, error) {
	if n < 1 {
		return List{}, rehop.WithClass(fmt.Errorf("desk: Peek: n is %d, want 1 or more", n), rehop.ClassBug)
	}
	seen, err := l.lookNoted(ctx)
	if err != nil {
		return List{}, err
	}
	return List{Letters: seen.letters[:min(n, len(seen.letters))], Matched: len(seen.letters), Seen: seen.seen}, nil
}

// enter waits until no other look or redrive of this process is at the queue.
func (l *Live) enter(ctx context.Context) (leave func(), err error) {
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn }, nil
	case <-ctx.Done():
		return nil, pause.Ended(ctx)
	}
}

// prepare finds out whether the queue may be looked into, and counts its letters.
func (l *Live) prepare(ctx context.Context) (queueFacts, *counter, amqp.Queue, error) {
	counter, queue, err := countOf(ctx, l.conn, l.queue)
	if err != nil {
		return queueFacts{}, nil, amqp.Queue{}, err
	}
	facts, err := factsOf(ctx, l.conn, l.queue)
	if err == nil {
		err = facts.refusal()
	}
	if err == nil {
		facts.owner, err = ownerOf(ctx, l.conn, l.queue)
	}
	if err != nil {
		counter.close()
		return facts, nil, amqp.Queue{}, err
	}
	return facts, counter, queue, nil
}

// tookBefore is how many letters the last look has handed back: a redrive takes as many, so
// that the order of those that it hands back stays.
func (l *Live) tookBefore() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.took
}

// windowOf is how many letters are taken of a queue with a delivery limit: always as
// many, because fewer would change their order.
func (l *Live) windowOf(limit int) int {
	if limit != unlimited {
		return min(l.cfg.Window, limitedWindow)
	}
	return l.cfg.Window
}

// seen returns the last look, or a new one.
func (l *Live) seen(ctx context.Context, again bool) (*look, error) {
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	switch {
	case last != nil && !again:
		return last, nil
	case !again && l.cfg.OnlyWhenAsked:
		return nil, fmt.Errorf("%w %q, or not since a redrive left open which letters are there", ErrNotLooked, l.queue)
	}
	return l.lookNoted(ctx)
}

// List returns a page of the letters of the last look.
func (l *Live) List(ctx context.Context, f Filter, p Page) (List, error) {
	if err := p.check(); err != nil {
		return List{}, err
	}
	seen, err := l.seen(ctx, p.Look)
	if err != nil {
		return List{}, err
	}
	list := List{Seen: seen.seen}
	limit := p.limit()
	for _, letter := range seen.letters {
		if !f.Matches(letter) {
			continue
		}
		if list.Matched++; letter.Place <= p.After {
			continue
		}
		if len(list.Letters) < limit {
			list.Letters = append(list.Letters, letter)
		} else if list.Next == 0 {
			list.Next = list.Letters[limit-1].Place
		}
	}
	return list, nil
}

// maxPage is the largest Page.Limit.
const maxPage = 1000

func (p Page) limit() int { return cmp.Or(p.Limit, 100) }

// check returns all faults of a page.
func (p Page) check() error {
	var errs []error
	if p.Limit < 0 || p.Limit > maxPage {
		errs = append(errs, fmt.Errorf("desk: Page.Limit is %d, want 1 to %d, or 0 for 100", p.Limit, maxPage))
	}
	if p.After < 0 {
		errs = append(errs, fmt.Errorf("desk: Page.After is %d, want 0 or more", p.After))
	}
	return rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// maxGroups is how many groups are told.
const maxGroups = 100

// Groups returns the letters of the last look by fingerprint.
func (l *Live) Groups(ctx context.Context, f Filter) (Groups, error) {
	seen, err := l.seen(ctx, false)
	if err != nil {
		return Groups{}, err
	}
	return Groups{Groups: groupsOf(seen.letters, f), Seen: seen.seen}, nil
}

// groupsOf groups letters by fingerprint, the largest group first.
func groupsOf(letters []Letter, f Filter) []Group {
	at := map[string]int{}
	var groups []Group
	for _, l := range letters {
		if !f.Matches(l) {
			continue
		}
		i, found := at[l.Fingerprint]
		if !found {
			i = len(groups)
			at[l.Fingerprint] = i
			groups = append(groups, Group{Fingerprint: l.Fingerprint, Example: l})
		}
		g := &groups[i]
		if g.Count++; l.Redrives > 0 {
			g.Redriven++
		}
		if !l.Failed.IsZero() && (g.First.IsZero() || l.Failed.Before(g.First)) {
			g.First = l.Failed
		}
		if l.Failed.After(g.Last) {
			g.Last = l.Failed
		}
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return b.Count - a.Count })
	return groups[:min(len(groups), maxGroups)]
}

// Trend returns how many letters of the last look failed in each of n equal parts of
// the time between from and to.
func (l *Live) Trend(ctx context.Context, f Filter, from, to time.Time, n int) (counts []int, more bool, err error) {
	if n < 1 || n > 100 || !from.Before(to) {
		return nil, false, rehop.WithClass(fmt.Errorf("desk: a trend of %d parts from %v to %v, want 1 to 100 parts of a time", n, from, to), rehop.ClassBug)
	}
	seen, err := l.seen(ctx, false)
	if err != nil {
		return nil, false, err
	}
	counts = make([]int, n)
	for _, letter := range seen.letters {
		if at := letter.Failed; !at.Before(from) && at.Before(to) && f.Matches(letter) {
			counts[int(int64(at.Sub(from))/max(int64(to.Sub(from))/int64(n), 1))%n]++
		}
	}
	return counts, seen.seen.Bound != "", nil
}

// Letter returns a letter of the last look.
func (l *Live) Letter(ctx context.Context, id string) (Letter, error) {
	seen, err := l.seen(ctx, false)
	if err != nil {
		return Letter{}, err
	}
	for _, letter := range seen.letters {
		if letter.ID == id {
			return letter, l.cfg.Journal.shown(ctx, l.About(), id)
		}
	}
	among := cmp.Or(seen.seen.Bound, count(len(seen.letters), "letter"))
	return Letter{}, fmt.Errorf("%w: %.80q in queue %q, seen at %s among %s", ErrNoLetter, id, l.queue, seen.seen.At.Format(time.TimeOnly), among)
}
