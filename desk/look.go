package desk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/topology"
)

const (
	// stepLetters is how many letters a step of a look takes at most, and sample how many the
	// first ones take. The broker sends all letters of a step, however large they are, and
	// nobody knows that before they come.
	stepLetters = 64
	// stepShare is the part of LiveConfig.WindowBytes that a step takes, if its letters are
	// like those of the step before.
	stepShare = 4
	// maxTagged bounds the steps where each has a consumer of its own. A queue keeps the
	// order of 32 consumers, and others may have some.
	maxTagged = 24
	// lineSteps is how many of these steps are kept for letters that came back before.
	lineSteps = 4
	// maxTaken bounds how many letters a look takes to reach one that never came back. It
	// hands that one back too, so that the next look has one more to take.
	maxTaken = MaxWindow + 1_000
	// lineShare is how many times LiveConfig.WindowBytes pass through a look at most, while
	// it takes letters that came back before.
	lineShare = 4
)

// taking says how many letters a look takes and keeps. It is pure: letters go in by add,
// and next says how many more to take.
type taking struct {
	n     int  // letters to take
	total int  // letters in the queue
	bytes int  // bytes to keep
	line  bool // the queue has a line for what came back
	steps int  // that are left; 0: no bound
	known int  // letters that the last look has handed back

	taken   int
	kept    int // letters
	weight  int // bytes of kept
	passed  int // bytes of taken
	full    bool
	fresh   bool // a letter came that never came back: the line is taken
	largest int  // bytes of a letter of the last step, at most
	extra   int  // letters of the last step that was for the line
}

// add notes a letter, and reports whether the look keeps it.
func (t *taking) add(bytes int, cameBack bool) (keep bool) {
	t.taken++
	t.passed += bytes
	t.largest = max(t.largest, bytes)
	t.fresh = t.fresh || !cameBack
	if t.kept > 0 && t.weight+bytes > t.bytes || t.taken > t.n {
		t.full = true
	}
	if t.full {
		return false
	}
	t.kept++
	t.weight += bytes
	return true
}

// next returns how many letters the next step takes; 0: the look has taken enough.
func (t *taking) next() int {
	left, largest, steps := t.total-t.taken, t.largest, t.steps-lineSteps
	t.largest = 0
	switch {
	case left <= 0 || t.taken > 0 && t.steps < 0:
		return 0
	case t.taken < t.n && !t.full:
		left = min(left, t.n-t.taken)
	case !t.line || t.fresh || t.taken >= maxTaken || t.passed >= lineShare*t.bytes:
		return 0
	case t.taken < t.known:
		left, steps = min(left, t.known-t.taken), t.steps-1
	default: // one at first, because each look would add as many to the line
		t.extra = max(1, 2*t.extra)
		left, steps = min(left, t.extra, maxTaken-t.taken), t.steps
	}
	most := min(stepLetters, max(sample, t.taken/4))
	if t.steps > 0 {
		steps = max(steps, 1)
		most = max(most, (left+steps-1)/steps)
		if t.steps--; t.steps == 0 {
			t.steps = -1
		}
	}
	if t.taken == 0 {
		most = sample
	}
	if largest > 0 {
		most = min(most, max(t.bytes/stepShare/largest, 1))
	}
	return min(left, most)
}

// uncertain reports whether letters behind those that were taken may have come back before
// them, so that these have changed places.
func (t *taking) uncertain() bool {
	return t.line && !t.fresh && t.taken < t.total
}

// bound says why the look is about fewer letters than there are.
func (t *taking) bound(short bool) string {
	switch {
	case t.kept == t.total:
		return ""
	case short:
		return fmt.Sprintf("%d of %d letters came: the others have expired, or other consumers have taken them", t.kept, t.total)
	}
	text := fmt.Sprintf("the first %d of %d letters: one look takes no more", t.kept, t.total)
	if t.kept < t.n {
		text = fmt.Sprintf("the first %d of %d letters: one look keeps about %s", t.kept, t.total, sizeOf(t.bytes))
	}
	if t.uncertain() {
		text += ", and letters that were handed back before may have changed places"
	}
	return text
}

func sizeOf(bytes int) string {
	if bytes < 1<<20 {
		return count(bytes, "byte")
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// weightOf is about how many bytes a letter needs in memory.
func weightOf(body []byte, headers amqp.Table) int { return 1024 + len(body) + weightOfValue(headers) }

func weightOfValue(v any) (n int) {
	n = 32
	switch v := v.(type) {
	case string:
		n += len(v)
	case []byte:
		n += len(v)
	case []any:
		for _, one := range v {
			n += weightOfValue(one)
		}
	case amqp.Table:
		for name, one := range v {
			n += len(name) + weightOfValue(one)
		}
	}
	return n
}

// look is what a look has seen, without what redrives of this source have taken since.
type look struct {
	letters []Letter
	seen    Seen
	short   bool   // fewer letters came than the queue had counted
	others  bool   // all of them came, and other consumers may have more
	bound   string // Seen.Bound at the time of the look
}

// without returns the look without letters that have left the queue since, given by their
// digests, and nil if that leaves it open how many letters are behind the look. Letters that are
// alike differ in their number only, and keep the first ones.
func (s *look) without(left map[string]int) *look {
	rest, of := *s, maps.Clone(left)
	rest.letters = make([]Letter, 0, len(s.letters))
	for _, letter := range slices.Backward(s.letters) {
		if digest := digestOf(letter.ID); of[digest] > 0 {
			of[digest]--
			rest.seen.Bytes -= weightOf(letter.Publishing.Body, letter.Publishing.Headers)
		} else {
			rest.letters = append(rest.letters, letter)
		}
	}
	slices.Reverse(rest.letters)
	for _, n := range of {
		if n > 0 && s.bound != "" { // of those behind it, or of those that came since
			return nil
		}
	}
	gone := len(s.letters) - len(rest.letters)
	rest.seen.Seen, rest.seen.Total, rest.seen.Gone = len(rest.letters), s.seen.Total-gone, s.seen.Gone+gone
	if s.bound != "" {
		rest.seen.Bound = fmt.Sprintf("%s; %s of the look left since", s.bound, count(rest.seen.Gone, "letter"))
	}
	return &rest
}

// depart takes letters that have left the queue from the last look.
func (l *Live) depart(keys []string) {
	left := map[string]int{}
	for _, key := range keys {
		left[digestOf(key)]++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil {
		l.last = l.last.without(left)
	}
}

func (l *Live) look(ctx context.Context) (*look, error) {
	leave, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	facts, counter, queue, err := l.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer counter.close()
	seen, took := &look{seen: Seen{At: time.Now().UTC(), Total: queue.Messages}}, 0
	if queue.Messages > 0 {
		limit, _ := facts.limit()
		t := &taking{n: min(l.windowOf(limit), queue.Messages), total: queue.Messages, bytes: l.cfg.WindowBytes, line: facts.queueType == string(topology.Quorum), known: l.tookBefore(), largest: facts.size}
		if err := l.takeAndHandBack(ctx, counter, facts, queue, t, seen); err != nil {
			return nil, err
		}
		took = t.taken
		name(seen.letters)
		seen.bound, seen.seen.Bytes = t.bound(seen.short), t.weight
	}
	if queue.Consumers > 0 { // what they have in hand is in no count of the queue
		others := l.inOtherHands(ctx)
		if seen.others = seen.bound == ""; seen.others {
			seen.bound = fmt.Sprintf("what was ready, %s: %s", count(len(seen.letters), "letter"), others)
		} else {
			seen.bound = noted(seen.bound, others)
		}
	}
	seen.seen.Bound, seen.seen.Seen = seen.bound, len(seen.letters)
	l.mu.Lock()
	l.last, l.took = seen, took
	l.mu.Unlock()
	return seen, nil
}

// takeAndHandBack takes letters from the head of the queue, and hands all of them back.
func (l *Live) takeAndHandBack(ctx context.Context, counter *counter, facts queueFacts, before amqp.Queue, t *taking, seen *look) (err error) {
	limit, _ := facts.limit()
	h, err := l.handInSteps(ctx, facts, t)
	if err != nil {
		return err
	}
	var worn []amqp.Delivery // letters that would not survive another return
	defer func() {
		if len(worn) > 0 && h.session.Err() == nil {
			publisher := confirm.New(l.conn, confirm.Limits{Messages: 1})
			err = errors.Join(err, spare(context.WithoutCancel(ctx), h, publisher, limit, worn), publisher.Close())
		}
		err = errors.Join(err, h.end(ctx, counter, before.Messages, before.Consumers))
	}()
	highest := 0
	for n := t.next(); n > 0 && !seen.short; n = t.next() {
		if err := h.step(ctx, n); err != nil {
			return err
		}
		seen.short, err = h.receive(ctx, counter, n, func(d amqp.Delivery) {
			if t.add(weightOf(d.Body, d.Headers), d.Redelivered) {
				letter := fromDelivery(d, l.queue, facts.owner)
				letter.Place = int64(len(seen.letters) + 1)
				seen.letters = append(seen.letters, letter)
			}
			if limit != unlimited {
				highest = max(highest, returned(d)+1)
				if returned(d) >= limit {
					worn = append(worn, d)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	if limit != unlimited && highest > limit/2 {
		return &RefusedError{
			Queue: l.queue, Reason: fmt.Sprintf("its letters have come back %d times, and the broker takes one away that comes back %d times", highest, limit+1),
			Advice: "collect them with a consumer, or send them",
		}
	}
	return nil
}

// handInSteps returns a hand that takes nothing until its first step.
func (l *Live) handInSteps(ctx context.Context, facts queueFacts, t *taking) (*hand, error) {
	h, err := newHand(ctx, l.conn, l.queue)
	if err != nil {
		return nil, err
	}
	switch {
	case !t.line:
	case facts.version.AtLeast(4, 0):
		h.resumes = true
	default:
		t.steps = maxTagged
	}
	return h, nil
}

// receive waits for the n letters of a step. short says that fewer have come.
func (h *hand) receive(ctx context.Context, counter *counter, n int, take func(amqp.Delivery)) (short bool, err error) {
	quiet := time.NewTimer(idle)
	defer quiet.Stop()
	for silences := 0; n > 0; {
		select {
		case d, open := <-h.deliveries:
			if !open {
				return false, h.lost()
			}
			n--
			take(d)
			silences = 0
			quiet.Reset(idle)
		case <-quiet.C:
			quiet.Reset(idle)
			q, err := counter.ask(ctx)
			if err != nil {
				return false, err
			}
			// A broker that is busy is late with letters that it has counted out
			// already. If none are ready, and still none come, other consumers have
			// taken the rest.
			if silences++; silences >= maxSilences || q.Messages == 0 && q.Consumers > h.consumers && silences >= othersSilences {
				return true, nil
			}
		case <-h.session.Done():
			return false, h.lost()
		case <-ctx.Done():
			return false, pause.Ended(ctx)
		}
	}
	return false, nil
}

// Export looks and writes the letters as lines of JSON. If the look does not reach all
// letters that Export is asked for, it writes nothing, and the error wraps [ErrNotWhole]. If it cannot
// write a letter, it goes on, and returns an error that names each of these.
func (l *Live) Export(ctx context.Context, f Filter, limit int, w io.Writer, by By) (n int, err error) {
	if err := checkLimit(limit); err != nil {
		return 0, err
	}
	a, err := l.cfg.Journal.undertake(Record{By: by, Action: "export", Source: l.About().Name, Which: f.String()})
	if err != nil {
		return 0, err
	}
	defer func() { err = a.end(n, err) }()
	seen, err := l.look(ctx) // the export is in the audit
	if err != nil {
		return 0, err
	}
	var chosen []Letter
	for _, letter := range seen.letters {
		if f.Matches(letter) && (limit == 0 || len(chosen) < limit) {
			chosen = append(chosen, letter)
		}
	}
	if seen.seen.Bound != "" && (limit == 0 || len(chosen) < limit) {
		return 0, seen.notWhole(l.queue)
	}
	var left []error
	for _, letter := range chosen {
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

// ErrNotWhole is wrapped by the error of an export of a queue, which has written nothing,
// because a look does not reach all letters that it is asked for.
var ErrNotWhole = errors.New("an export would leave letters out")

// notWhole is the error of an export whose look has left letters out.
func (s *look) notWhole(queue string) error {
	class, advice := rehop.ClassConfiguration, "collect them into a store and export that, or give a limit, such as --limit"
	if s.short || s.others {
		class, advice = rehop.ClassTransient, "try again without other consumers"
	}
	return rehop.WithClass(fmt.Errorf("desk: queue %q: %w: a look reaches %s; %s", queue, ErrNotWhole, s.seen.Bound, advice), class)
}

func checkLimit(limit int) error {
	if limit < 0 {
		return rehop.WithClass(fmt.Errorf("desk: Export: limit is %d, want 1 or more, or 0 for all letters", limit), rehop.ClassBug)
	}
	return nil
}
