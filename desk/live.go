package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
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

	// WindowBytes is about how many bytes of bodies one look takes at most. Defaults
	// to 64 MiB.
	WindowBytes int

	// OnlyWhenAsked keeps questions from causing a look. Only Peek, Export, redrives and
	// Page.Look look then. List, Groups, Trend and Letter return [ErrNotLooked] until
	// somebody has looked, and again after a redrive.
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
}

var _ Source = (*Live)(nil)

// maxSilences is how long, in times of idle, a look waits for the next letter of a queue
// that has some.
const maxSilences = 15

// othersSilences is how long, if none are ready and the queue has other consumers: these
// have taken the rest.
const othersSilences = 5

// look is what a look has seen.
type look struct {
	letters []Letter
	seen    Seen
}

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
		return nil, context.Cause(ctx)
	}
}

func (l *Live) look(ctx context.Context) (*look, error) {
	leave, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	facts, counter, total, err := l.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer counter.close()
	limit, _ := facts.limit()
	seen, short := &look{seen: Seen{At: time.Now().UTC(), Total: total}}, false
	if total > 0 {
		var taken []amqp.Delivery
		taken, short, err = l.takeAndHandBack(ctx, counter, facts, limit, l.windowOf(limit), total)
		if err != nil {
			return nil, err
		}
		for i, d := range taken {
			letter := fromDelivery(d)
			letter.Place = int64(i + 1)
			seen.letters = append(seen.letters, letter)
		}
		name(seen.letters)
	}
	seen.seen.Seen = len(seen.letters)
	switch {
	case seen.seen.Seen == total:
	case short:
		seen.seen.Bound = fmt.Sprintf("%d of %d letters came: the others have expired, or other consumers have taken them", seen.seen.Seen, total)
	default:
		seen.seen.Bound = fmt.Sprintf("the first %d of %d letters: one look takes no more", seen.seen.Seen, total)
	}
	l.mu.Lock()
	l.last = seen
	l.mu.Unlock()
	return seen, nil
}

// prepare finds out whether the queue may be looked into, and counts its letters.
func (l *Live) prepare(ctx context.Context) (queueFacts, *counter, int, error) {
	counter, total, err := countOf(ctx, l.conn, l.queue)
	if err != nil {
		return queueFacts{}, nil, 0, err
	}
	facts, err := factsOf(ctx, l.conn, l.queue)
	if err == nil {
		err = facts.refusal()
	}
	if err != nil {
		counter.close()
		return facts, nil, 0, err
	}
	return facts, counter, total, nil
}

// windowOf is how many letters are taken of a queue with a delivery limit: always as
// many, because fewer would change their order.
func (l *Live) windowOf(limit int) int {
	if limit != unlimited {
		return min(l.cfg.Window, limitedWindow)
	}
	return l.cfg.Window
}

// takeAndHandBack takes the first n of the letters in the queue and hands them back. short says
// that fewer came than the queue had counted.
func (l *Live) takeAndHandBack(ctx context.Context, counter *counter, facts queueFacts, limit, n, total int) (taken []amqp.Delivery, short bool, err error) {
	h, err := take(ctx, l.conn, l.queue, n, total, l.cfg.WindowBytes, facts.size)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if limit != unlimited && h.session.Err() == nil {
			publisher := confirm.New(l.conn, confirm.Limits{Messages: 1})
			err = errors.Join(err, spare(context.WithoutCancel(ctx), h, publisher, limit, taken), publisher.Close())
		}
		err = errors.Join(err, h.back())
		if err == nil {
			counter.full(ctx, total)
		}
	}()
	taken = h.first
	n = min(n, total, h.prefetch)
	quiet := time.NewTimer(idle)
	defer quiet.Stop()
	bytes, silences := 0, 0
	for len(taken) < n && bytes <= 2*l.cfg.WindowBytes {
		select {
		case d, open := <-h.deliveries:
			if !open {
				return taken, short, h.lost()
			}
			taken = append(taken, d)
			bytes += len(d.Body)
			silences = 0
			quiet.Reset(idle)
		case <-quiet.C:
			quiet.Reset(idle)
			q, err := counter.ask(ctx)
			if err != nil {
				return taken, short, err
			}
			// A broker that is busy is late with letters that it has counted out
			// already. If none are ready, and still none come, other consumers have
			// taken the rest.
			if silences++; silences >= maxSilences || q.Messages == 0 && q.Consumers > h.consumers && silences >= othersSilences {
				n, short = len(taken), true
			}
		case <-h.session.Done():
			return taken, short, h.lost()
		case <-ctx.Done():
			return taken, short, context.Cause(ctx)
		}
	}
	if limit == unlimited {
		return taken, short, nil
	}
	highest := 0
	for _, d := range taken {
		highest = max(highest, returned(d)+1)
	}
	if highest > limit/2 {
		return taken, short, &RefusedError{l.queue, fmt.Sprintf("its letters have come back %d times, and the broker takes one away that comes back %d times", highest, limit+1),
			"collect them with a consumer, or send them"}
	}
	return taken, short, nil
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
		return nil, fmt.Errorf("%w %q, or not since it was changed", ErrNotLooked, l.queue)
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
	return Letter{}, fmt.Errorf("%w: %.80q in queue %q, among %d seen at %s", ErrNoLetter, id, l.queue, len(seen.letters), seen.seen.At.Format(time.TimeOnly))
}

// Export looks and writes the letters as lines of JSON. If it cannot write a letter, it goes
// on, and returns an error that names each of these.
func (l *Live) Export(ctx context.Context, f Filter, w io.Writer, by By) (n int, err error) {
	a, err := l.cfg.Journal.undertake(Record{By: by, Action: "export", Source: l.About().Name, Which: f.String()})
	if err != nil {
		return 0, err
	}
	defer func() { err = a.end(n, err) }()
	seen, err := l.look(ctx) // the export is in the audit
	if err != nil {
		return 0, err
	}
	var left []error
	for _, letter := range seen.letters {
		if !f.Matches(letter) {
			continue
		}
		line, err := marshalLetter(letter, l.About().Name)
		if err != nil {
			left = append(left, err)
			continue
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return n, fmt.Errorf("desk: export: %w", err)
		}
		n++
		if err := a.reached(n); err != nil {
			return n, err
		}
	}
	return n, errors.Join(left...)
}
