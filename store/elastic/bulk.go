package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"
	"golang.org/x/sync/semaphore"

	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/repeats"
)

// action is one line, or two, of a bulk request.
type action struct {
	id     string // of the document
	lines  []byte
	weight int64      // among Config.Bytes
	done   chan error // has room for the answer

	// renew, if set, makes the lines anew for a letter that has waited: the time when it
	// was stored must not be behind that of letters that others have seen by now.
	renew func(now time.Time) []byte
	made  time.Time // when lines was made
}

// maxWaited is how old the lines of a letter may be.
const maxWaited = 500 * time.Millisecond

// bulk makes requests of what is put at the same time. While all requests are in
// flight, actions gather for the next one.
type bulk struct {
	cfg   Config
	send  func(context.Context, []*action) []error
	bytes *semaphore.Weighted // in the actions that wait or are in flight

	again *repeats.Log

	mu        sync.Mutex
	waiting   []*action
	requests  int           // in flight, or about to be
	busy      int           // answers in a row that there is no room
	notBefore time.Time     // the server is left alone until then
	empty     chan struct{} // closed when nothing waits any more
}

func newBulk(cfg Config, send func(context.Context, []*action) []error) *bulk {
	return &bulk{cfg: cfg, send: send, bytes: semaphore.NewWeighted(int64(cfg.Bytes)), again: repeats.New(cfg.Logger), empty: make(chan struct{})}
}

// errNotSent says that an action was given up before it was in a request.
var errNotSent = errors.New("not sent")

// do sends an action with others and returns its own answer. If ctx ends before,
// the error matches errNotSent unless the action may have been sent.
func (b *bulk) do(ctx context.Context, a *action) error {
	a.weight = int64(min(len(a.lines), b.cfg.Bytes)) // one that is larger goes alone
	if err := b.bytes.Acquire(ctx, a.weight); err != nil {
		return fmt.Errorf("%w: %w", errNotSent, pause.Ended(ctx))
	}
	a.done = make(chan error, 1)
	b.mu.Lock()
	b.waiting = append(b.waiting, a)
	if b.requests < b.cfg.Requests {
		b.requests++
		go b.run()
	}
	b.mu.Unlock()
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
	}
	b.mu.Lock()
	at := slices.Index(b.waiting, a)
	if at >= 0 {
		b.waiting = slices.Delete(b.waiting, at, at+1)
		if len(b.waiting) == 0 { // nobody has to rest for
			close(b.empty)
			b.empty = make(chan struct{})
		}
	}
	b.mu.Unlock()
	if at >= 0 {
		b.bytes.Release(a.weight)
		return fmt.Errorf("%w: %w", errNotSent, pause.Ended(ctx))
	}
	return pause.Ended(ctx)
}

// run sends what waits until nothing does.
func (b *bulk) run() {
	for {
		b.rest()
		batch := b.take()
		if batch == nil {
			return
		}
		// Each caller leaves by its own ctx; Config.Timeout ends the request.
		answers := b.send(context.Background(), batch)
		b.note(answers)
		for i, a := range batch {
			b.bytes.Release(a.weight)
			a.done <- answers[i]
		}
	}
}

// rest waits as long as the server is to be left alone and anything waits to be sent.
func (b *bulk) rest() {
	for {
		b.mu.Lock()
		wait, empty := time.Until(b.notBefore), b.empty
		if len(b.waiting) == 0 {
			wait = 0
		}
		b.mu.Unlock()
		if wait <= 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-empty:
			timer.Stop()
		}
	}
}

// note makes one pause for all of answers that say that there is no room.
func (b *bulk) note(answers []error) {
	var full error
	for _, err := range answers {
		var answered *responseError
		if errors.As(err, &answered) && answered.passes() {
			full = err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if full == nil {
		b.busy = 0
		return
	}
	if time.Now().Before(b.notBefore) { // of another request of the same moment
		return
	}
	b.busy++
	wait := pauseAfter(full, b.busy)
	b.notBefore = time.Now().Add(wait)
	b.again.Warn("elastic: the server has no room, letters wait", full, "wait", wait)
}

// take returns the actions of the next request; nil ends the goroutine.
func (b *bulk) take() []*action {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := fitting(b.waiting, b.cfg.BatchLetters, b.cfg.BatchBytes)
	if n == 0 {
		b.requests--
		return nil
	}
	batch := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	return batch
}

// fitting is how many of the actions are one request.
func fitting(all []*action, letters, size int) int {
	n, sum := 0, 0
	for n < min(len(all), letters) {
		if sum += len(all[n].lines); n > 0 && sum > size {
			break
		}
		n++
	}
	return n
}

// send sends one bulk request and returns the answer to each action. If it is too large
// for the server, or for a proxy before it, it is sent in halves.
func (s *Store) send(ctx context.Context, batch []*action) []error {
	var body bytes.Buffer
	for _, a := range batch {
		if now := s.now(); a.renew != nil && now.Sub(a.made) > maxWaited {
			a.lines, a.made = a.renew(now), now
		}
		body.Write(a.lines)
	}
	var answer bulkAnswer
	refresh := "false"
	if s.cfg.WaitForRefresh {
		refresh = "wait_for"
	}
	err := s.do(ctx, esapi.BulkRequest{Index: s.cfg.Index, Refresh: refresh, Body: bytes.NewReader(body.Bytes())}, &answer)
	var answered *responseError
	if len(batch) > 1 && errors.As(err, &answered) && answered.Status == http.StatusRequestEntityTooLarge {
		half := len(batch) / 2
		return append(s.send(ctx, batch[:half]), s.send(ctx, batch[half:])...)
	}
	errs := make([]error, len(batch))
	for i, a := range batch {
		if errs[i] = err; err == nil {
			errs[i] = answer.of(i, a.id)
		}
	}
	return errs
}

// bulkAnswer has one item for each action, in their order.
type bulkAnswer struct {
	Error json.RawMessage // of a server that ends a request in the middle
	Items []map[string]struct {
		ID     string `json:"_id"`
		Status int
		Result string
		Error  json.RawMessage
	}
}

// errNoAnswer says that the answer to a request has nothing about an action.
var errNoAnswer = errors.New("the answer says nothing of this letter")

// errGone says that a document that was to be deleted is not there.
var errGone = errors.New("the document is not there")

// of is the answer to one action.
func (b bulkAnswer) of(i int, id string) error {
	if i >= len(b.Items) {
		if len(b.Error) > 0 {
			return fmt.Errorf("%w: %.200s", errNoAnswer, b.Error)
		}
		return errNoAnswer
	}
	for _, item := range b.Items[i] {
		failed := len(item.Error) > 0 && string(item.Error) != "null"
		switch {
		case item.ID != id:
			return fmt.Errorf("%w: it is about %.100q", errNoAnswer, item.ID)
		case failed:
			return readError(item.Status, item.Error)
		case item.Status == http.StatusNotFound && item.Result == "not_found":
			return errGone
		case item.Status/100 != 2:
			return &responseError{Status: item.Status}
		}
		return nil
	}
	return errNoAnswer
}
