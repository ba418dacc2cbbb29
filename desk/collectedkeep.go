package desk

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// Park sets letters aside until somebody sends or releases them.
func (c *storeSource) Park(ctx context.Context, f Filter, by By) (int, error) {
	return c.keep(ctx, "park", f, by, c.store.Park)
}

// Archive keeps letters for the record only.
func (c *storeSource) Archive(ctx context.Context, f Filter, by By) (int, error) {
	return c.keep(ctx, "archive", f, by, c.store.Archive)
}

// Release gives letters to a store.Forwarder, which publishes them.
func (c *storeSource) Release(ctx context.Context, f Filter, by By) (int, error) {
	return c.keep(ctx, "release", f, by, c.store.Release)
}

func (c *storeSource) keep(ctx context.Context, action string, f Filter, by By, do func(context.Context, store.Query) (int, error)) (n int, err error) {
	if f.IsZero() {
		return 0, rehop.WithClass(errors.New("desk: the Filter is empty, want a condition"), rehop.ClassBug)
	}
	if err := f.check(); err != nil {
		return 0, err
	}
	a, err := c.cfg.Journal.undertake(Record{By: by, Action: action, Source: c.cfg.Name, Which: f.String()})
	if err != nil {
		return 0, err
	}
	q, err := c.narrow(ctx, f, time.Time{})
	if err == nil && !f.selectsNone() {
		n, err = do(ctx, q)
	}
	return n, a.end(n, err)
}

// narrow returns a query for exactly the letters that a Filter selects now, of those that were
// stored before a time, unless it is zero.
func (c *storeSource) narrow(ctx context.Context, f Filter, before time.Time) (store.Query, error) {
	q, look, err := f.query()
	q.All, q.Before = true, before // the Filter is not empty, or the redrive says so
	if err != nil || !look {
		return q, err
	}
	var numbers []int64
	if _, _, _, err := c.scanBefore(ctx, f, before, 0, unbound, func(l Letter) bool {
		numbers = append(numbers, l.Place)
		return true
	}); err != nil {
		return q, err
	}
	if numbers == nil {
		numbers = []int64{} // selects none
	}
	return store.Query{States: q.States, Numbers: numbers, Before: before}, nil
}

// Edit changes a letter where it is. The journal keeps the original.
func (c *storeSource) Edit(ctx context.Context, id string, e Edit, by By) error {
	l, err := c.Letter(ctx, id)
	if err == nil {
		err = e.check()
	}
	if err != nil {
		return err
	}
	line, err := marshalLetter(l, c.cfg.Name)
	if err != nil {
		return err
	}
	a, err := c.cfg.Journal.undertake(Record{By: by, Action: "edit", Source: c.cfg.Name, Which: "id=" + strconv.Quote(id)})
	if err != nil {
		return err
	}
	err = c.cfg.Journal.append("originals.jsonl", struct {
		At     time.Time  `json:"at"`
		By     By         `json:"by"`
		ID     string     `json:"id"`
		Letter rawMessage `json:"letter"`
	}{time.Now().UTC(), by, id, line}, true)
	if err == nil {
		err = c.store.Edit(ctx, l.Place, func(m *producer.Message) error { e.apply(m); return nil })
	}
	if err != nil {
		return a.end(0, err)
	}
	return a.end(1, nil)
}

// rawMessage is a text of JSON.
type rawMessage []byte

// MarshalJSON returns the text.
func (r rawMessage) MarshalJSON() ([]byte, error) { return r, nil }
