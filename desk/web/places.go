package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/internal/pause"
)

// broker is what the page needs of a broker.
type broker interface {
	// list returns the queues; an error that wraps desk.ErrNoManagement if nobody
	// lists them.
	list(ctx context.Context) ([]desk.Queue, error)
	byName(ctx context.Context, queue string) (desk.Queue, error)
	open(queue string) (desk.Source, error)
	health() error // of connections; an alarm is none of theirs
	// alarm returns why the broker takes no messages, as far as it has told; nil if it takes them.
	alarm() *connection.BlockedError
	// answers asks the broker itself, by AMQP, and returns why it does not answer in this time.
	answers(ctx context.Context, limit time.Duration) error
	version() string // empty: not known yet
}

type realBroker struct {
	conn    *connection.Conn
	journal *desk.Journal
}

func (b *realBroker) list(ctx context.Context) ([]desk.Queue, error) {
	return desk.Queues(ctx, b.conn)
}

func (b *realBroker) byName(ctx context.Context, queue string) (desk.Queue, error) {
	return desk.QueueByName(ctx, b.conn, queue)
}

func (b *realBroker) open(queue string) (desk.Source, error) {
	return desk.NewLive(b.conn, queue, desk.LiveConfig{Journal: b.journal, OnlyWhenAsked: true})
}

func (b *realBroker) health() error {
	err := b.conn.Health()
	for _, role := range []connection.Role{connection.Publish, connection.Consume} {
		if s := b.conn.State(role).Status; s != connection.Up && s != connection.Blocked && s != connection.Idle {
			return err
		}
	}
	return nil // but for an alarm
}

func (b *realBroker) alarm() *connection.BlockedError {
	for _, role := range []connection.Role{connection.Publish, connection.Consume} {
		if s := b.conn.State(role); s.Status == connection.Blocked {
			return &connection.BlockedError{Reason: s.Reason, Since: s.Since}
		}
	}
	return nil
}

func (b *realBroker) answers(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, pause.Own(fmt.Errorf("the broker has not answered for %v", limit)))
	defer cancel()
	session, err := b.conn.Session(ctx, connection.Consume)
	if err != nil {
		return err
	}
	return session.Close()
}

func (b *realBroker) version() string {
	if s := b.conn.Server(); s.Version != (connection.Version{}) {
		return s.Version.String()
	}
	return ""
}

// place names a source: exactly one of both is set.
type place struct{ Queue, Store string }

func (p place) String() string {
	if p.Queue != "" {
		return p.Queue
	}
	return p.Store
}

// named returns the name of a source without the folder of its file, which tells of this machine
// and nothing of the letters, unless another source has the same name then.
func (cfg Config) named(source string) string {
	short := withoutFolder(source)
	for _, s := range cfg.Sources {
		if other := s.About().Name; strings.TrimPrefix(source, "into ") != other && strings.TrimPrefix(short, "into ") == withoutFolder(other) {
			return source
		}
	}
	return short
}

// withoutFolder shortens "store /folder/file", as the command rehop names a file, also in the
// record of a collector.
func withoutFolder(source string) string {
	before, file, found := strings.Cut(source, "store ")
	if !found || before != "" && before != "into " || !filepath.IsAbs(file) {
		return source
	}
	return before + "store " + filepath.Base(file)
}

func (p place) values() url.Values {
	if p.Queue != "" {
		return url.Values{"queue": {p.Queue}}
	}
	return url.Values{"store": {p.Store}}
}

func placeOf(v url.Values) place {
	if q := v.Get("queue"); q != "" {
		return place{Queue: q}
	}
	return place{Store: v.Get("store")}
}

// answerLimit is how long a broker may take to open a channel, which is asked for where the
// management API gives no answer: a connection without traffic notices the silence of its peer
// after one and a half heartbeats only.
const answerLimit = 3 * time.Second

// maxKept bounds the memory of the looks of all queues together. Beyond it, the look of the
// queue that was used longest ago is forgotten.
const maxKept = 256 << 20

// places keeps the queues that people have looked into, and those that a request or a
// redrive works on.
type places struct {
	mu   sync.Mutex
	open []*opened // the one used last comes last
}

type opened struct {
	queue  string
	source desk.Source
	busy   int // requests and redrives that work on it
	bytes  int // of its look; 0: no look is kept
	look   lastLook
}

// weigh notes how much memory the look of a queue keeps, and what it has seen. It asks no broker.
func (o *opened) weigh() {
	list, err := o.source.List(context.Background(), desk.Filter{IDs: []string{}}, desk.Page{Limit: 1})
	if err != nil {
		o.bytes, o.look = 0, lastLook{}
		return
	}
	o.bytes = max(list.Bytes, 1) // an empty queue was looked into, too
	if list.Seen != o.look.Seen {
		o.look = lastLookOf(o.source, list.Seen)
	}
}

// left notes that a request or a redrive has left a queue. A queue without a look is not
// kept, so no request keeps a queue, or takes another one's look away, but by a look.
func (p *places) left(o *opened) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o.busy--
	o.weigh()
	sum := 0
	for _, o := range p.open {
		sum += o.bytes
	}
	p.open = slices.DeleteFunc(p.open, func(o *opened) bool {
		gone := o.busy == 0 && (o.bytes == 0 || sum > maxKept)
		if gone {
			sum -= o.bytes
		}
		return gone
	})
}

// source returns a source, and what to call when it is no longer used.
func (h *Handler) source(p place) (desk.Source, func(), error) {
	if p.Queue == "" {
		for _, s := range h.cfg.Sources {
			if s.About().Name == p.Store {
				return s, func() {}, nil
			}
		}
		return nil, nil, errNoPlace
	}
	if h.broker == nil {
		return nil, nil, errNoPlace
	}
	h.places.mu.Lock()
	defer h.places.mu.Unlock()
	var found *opened
	for i, o := range h.places.open {
		if o.queue == p.Queue {
			found = o
			h.places.open = append(h.places.open[:i], h.places.open[i+1:]...)
			break
		}
	}
	if found == nil {
		s, err := h.broker.open(p.Queue)
		if err != nil {
			return nil, nil, err
		}
		found = &opened{queue: p.Queue, source: s}
	}
	h.places.open = append(h.places.open, found)
	found.busy++
	return found.source, func() { h.places.left(found) }, nil
}

// sampled is what is known of all places, and how it was before.
type sampled struct {
	mu   sync.Mutex
	last snapshot
	was  map[place]*series
}

// snapshot is what is known of all places.
type snapshot struct {
	At        time.Time // zero: nothing yet
	Letters   []depth   // queues of dead letters, and stores
	Work      []desk.Queue
	Taken     time.Time                // of the numbers of queues; zero: there are none
	Err       error                    // of the broker
	Silent    error                    // of the management API alone
	Alarm     *connection.BlockedError // why the broker, which is there, takes no messages; nil: it does
	Since     time.Time                // of Err
	NoListing bool
	Version   string
	HasBroker bool
}

// Away reports whether the broker does not answer.
func (s snapshot) Away() bool { return s.Err != nil }

// staleAfter is the age at which numbers are called stale: three samples were missed.
const staleAfter = 3 * sampleEvery

// Stale says why the numbers of queues are old; empty if they are not.
func (s snapshot) Stale() string {
	switch {
	case s.Taken.IsZero():
		return ""
	case s.Away():
		return "the broker is away"
	case s.Silent != nil:
		return "the management API does not answer"
	case time.Since(s.Taken) > staleAfter:
		return "the broker has not answered since then"
	}
	return ""
}

// depth is how many letters are in a place.
type depth struct {
	Place     place
	Taken     time.Time // of the number of letters
	Lags      bool      // the management API gave the number, which was up to 10 s old at Taken
	Letters   int
	InHand    int
	Mixed     bool // this desk has letters in hand, which the numbers do not tell apart
	Consumers int
	Refusal   string
	Oldest    time.Time
	Rate      float64 // letters per second that arrive
	Err       error
	Slow      time.Duration // that the question took
	Plot      []point       // up to the time of the snapshot; empty: the place is not watched
}

// Old reports whether the number of letters may be another one by now.
func (d depth) Old() bool { return !d.Taken.IsZero() && time.Since(d.Taken) > staleAfter }

// Collector says how the letters of a queue leave it.
func (d depth) Collector() string {
	switch {
	case d.Place.Queue == "":
		return ""
	case d.Consumers == 0:
		return "none"
	case d.Consumers == 1:
		return "1 consumer"
	}
	return fmt.Sprintf("%d consumers", d.Consumers)
}

// point is a depth at a time.
type point struct {
	At time.Time
	N  int
}

const (
	sampleEvery = 5 * time.Second
	plotFor     = time.Hour
	plotEvery   = 20 * time.Second
	maxSampled  = 1000 // places with a plot; each has up to 240 points, and two if its depth stays
)

// series is the depth of a place over the last hour.
type series struct{ points []point }

// add notes a depth. The last point is replaced until it is old enough, and while the depth stays.
func (s *series) add(p point) {
	n := len(s.points)
	if n > 0 && !p.At.After(s.points[n-1].At) {
		return // nobody has counted since then
	}
	if n > 1 && (p.At.Sub(s.points[n-2].At) < plotEvery || p.N == s.points[n-1].N && p.N == s.points[n-2].N) {
		s.points[n-1] = p
	} else {
		s.points = append(s.points, p)
	}
	begin := p.At.Add(-plotFor)
	for len(s.points) > 2 && !s.points[1].At.After(begin) {
		s.points = s.points[1:]
	}
	if s.points[0].At.Before(begin) {
		s.points[0].At = begin // a depth lasts until the next one
	}
}

// until returns the points, and one at a time if the last one is older: a depth lasts until the next one.
func (s *series) until(at time.Time) []point {
	points := slices.Clone(s.points)
	if n := len(points); n > 0 && at.After(points[n-1].At) {
		points = append(points, point{at, points[n-1].N})
	}
	return points
}

// sample asks for all depths again and again.
func (h *Handler) sample(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	next := map[string]time.Time{} // a question that takes long is asked seldom
	for {
		h.sampleOnce(ctx, next)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (h *Handler) sampleOnce(ctx context.Context, next map[string]time.Time) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	before := h.snapshot()
	now := snapshot{At: time.Now(), HasBroker: h.broker != nil}
	if h.broker != nil {
		h.sampleBroker(ctx, before, &now)
	}
	for _, s := range h.cfg.Sources {
		now.Letters = append(now.Letters, h.sampleStore(ctx, s, before, next))
	}
	h.sampled.mu.Lock()
	defer h.sampled.mu.Unlock()
	if h.sampled.was == nil {
		h.sampled.was = map[place]*series{}
	}
	there := map[place]bool{}
	for _, d := range now.Letters {
		there[d.Place] = true
	}
	maps.DeleteFunc(h.sampled.was, func(p place, _ *series) bool { return !there[p] })
	for i, d := range now.Letters {
		was := h.sampled.was[d.Place]
		if was == nil && len(h.sampled.was) < maxSampled {
			was = &series{}
			h.sampled.was[d.Place] = was
		}
		if was == nil {
			continue
		}
		if d.Err == nil {
			was.add(point{d.Taken, d.Letters})
		}
		now.Letters[i].Plot = was.until(now.At)
	}
	h.sampled.last = now
}

func (h *Handler) sampleBroker(ctx context.Context, before snapshot, now *snapshot) {
	now.Version = h.broker.version()
	asked := time.Now()
	queues, err := h.broker.list(ctx)
	if now.NoListing = errors.Is(err, desk.ErrNoManagement); now.NoListing {
		queues = nil
	}
	if err != nil {
		away := h.broker.answers(ctx, answerLimit)
		if away == nil && !now.NoListing {
			now.Silent = err
		} else {
			err = away
		}
	}
	if health := h.broker.health(); health != nil && rehop.ClassOf(health) != rehop.ClassBug {
		err, now.Silent = health, nil
	}
	if err == nil || now.Silent != nil {
		now.Alarm = h.broker.alarm()
	}
	named := map[string]bool{}
	for _, q := range queues {
		named[q.Name] = true
	}
	for _, name := range h.cfg.Queues {
		if named[name] || err != nil {
			continue
		}
		q, oneErr := h.broker.byName(ctx, name)
		q.Name, q.IsDeadLetters = name, true
		if oneErr != nil {
			now.Letters = append(now.Letters, depth{Place: place{Queue: name}, Err: oneErr})
			continue
		}
		queues = append(queues, q)
	}
	if err != nil { // shows what was known last
		if now.Silent == nil {
			now.Err, now.Since = err, before.Since
			if !before.Away() {
				now.Since = asked
			}
			var health *rehop.HealthError
			if errors.As(err, &health) && health.Since.Before(now.Since) {
				now.Since = health.Since
			}
		}
		now.Work, now.Taken = before.Work, before.Taken
		for _, d := range before.Letters {
			if d.Place.Queue != "" {
				now.Letters = append(now.Letters, d)
			}
		}
		return
	}
	shown := map[string]bool{}
	for _, name := range h.cfg.Queues {
		shown[name] = true
	}
	if len(queues) > 0 {
		now.Taken = asked
	}
	for _, q := range queues {
		switch {
		case q.IsDeadLetters || shown[q.Name]:
			now.Letters = append(now.Letters, depth{
				Place: place{Queue: q.Name}, Taken: q.At, Lags: named[q.Name], Letters: q.Ready + q.Unacked, InHand: q.Unacked, Mixed: q.Mixed, Consumers: q.Consumers,
				Refusal: q.Refusal, Oldest: q.Oldest, Rate: q.PublishRate,
			})
		case q.DeadLetters != "" || q.Ready+q.Unacked > 0 || q.Consumers > 0:
			now.Work = append(now.Work, q)
		}
	}
}

// sampleStore counts the letters of a store, seldom if that takes long.
func (h *Handler) sampleStore(ctx context.Context, s desk.Source, before snapshot, next map[string]time.Time) depth {
	name := s.About().Name
	began := time.Now()
	if began.Before(next[name]) {
		for _, d := range before.Letters {
			if d.Place.Store == name {
				return d
			}
		}
	}
	d := depth{Place: place{Store: name}, Taken: began}
	list, err := s.List(ctx, desk.Filter{}, desk.Page{Limit: 1, CountAll: true})
	d.Slow = time.Since(began)
	next[name] = time.Now().Add(20 * d.Slow)
	d.Letters, d.Err = list.Matched, err
	if len(list.Letters) > 0 {
		d.Oldest = list.Letters[0].Failed
	}
	return d
}

func (h *Handler) snapshot() snapshot {
	h.sampled.mu.Lock()
	defer h.sampled.mu.Unlock()
	return h.sampled.last
}
