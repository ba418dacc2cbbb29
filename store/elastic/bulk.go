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

	"github.com/elastic/go-elasticsearch/v8/esapi"
	"golang.org/x/sync/semaphore"
)

// action is one line, or two, of a bulk request.
type action struct {
	id    string // of the document
	lines []byte
	done  chan error // has room for the answer
}

// bulk makes requests of what is put at the same time. While all requests are in
// flight, actions gather for the next one.
type bulk struct {
	cfg   Config
	send  func(context.Context, []*action) []error
	bytes *semaphore.Weighted // in the actions that wait or are in flight

	mu       sync.Mutex
	waiting  []*action
	requests int // in flight
}

func newBulk(cfg Config, send func(context.Context, []*action) []error) *bulk {
	return &bulk{cfg: cfg, send: send, bytes: semaphore.NewWeighted(int64(cfg.Bytes))}
}

// errNotSent says that an action was given up before it was in a request.
var errNotSent = errors.New("not sent")

// weight of an action among Config.Bytes; one that is larger goes alone.
func (b *bulk) weight(a *action) int64 { return int64(min(len(a.lines), b.cfg.Bytes)) }

// do sends an action with others and returns its own answer. If ctx ends before,
// the error matches errNotSent unless the action may have been sent.
func (b *bulk) do(ctx context.Context, a *action) error {
	if err := b.bytes.Acquire(ctx, b.weight(a)); err != nil {
		return fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx))
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
	}
	b.mu.Unlock()
	if at >= 0 {
		b.bytes.Release(b.weight(a))
		return fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// run sends what waits until nothing does.
func (b *bulk) run() {
	for {
		batch := b.take()
		if batch == nil {
			return
		}
		// Each caller leaves by its own ctx; Config.Timeout ends the request.
		answers := b.send(context.Background(), batch)
		for i, a := range batch {
			a.done <- answers[i]
			b.bytes.Release(b.weight(a))
		}
	}
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

// send sends one bulk request and returns the answer to each action.
func (s *Store) send(ctx context.Context, batch []*action) []error {
	var body bytes.Buffer
	for _, a := range batch {
		body.Write(a.lines)
	}
	var answer bulkAnswer
	err := s.do(ctx, esapi.BulkRequest{Index: s.cfg.Index, Refresh: string(s.cfg.Refresh), Body: bytes.NewReader(body.Bytes())}, &answer)
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
			return responseError(item.Status, item.Error)
		case item.Status == http.StatusNotFound && item.Result == "not_found":
			return errGone
		case item.Status/100 != 2:
			return &ResponseError{Status: item.Status}
		}
		return nil
	}
	return errNoAnswer
}
