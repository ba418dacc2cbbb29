package web

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/desk"
)

var errNotRunning = rehop.WithClass(errors.New("web: Handler.Run has ended or has not begun: no order is taken"), rehop.ClassTransient)

// orders are those that this process carries out.
type orders struct {
	mu      sync.Mutex
	ctx     context.Context // of Run; nil: it does not run
	all     *sync.WaitGroup
	running map[string]*running

	listed   []desk.Progress // of the journal, read last at
	listedAt time.Time
}

// running is an order that this process carries out.
type running struct {
	source   string
	progress desk.Progress
	began    time.Time
}

func (o *orders) begin(ctx context.Context, all *sync.WaitGroup) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ctx, o.all = ctx, all
}

// end keeps new orders from beginning. Those that run end with the ctx of Run.
func (o *orders) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ctx = nil
}

// do runs work until it has ended or Run ends, and waits a moment for its end.
func (o *orders) do(work func(ctx context.Context) error) (ended bool, err error) {
	o.mu.Lock()
	if o.ctx == nil {
		o.mu.Unlock()
		return false, errNotRunning
	}
	ctx, done := o.ctx, make(chan error, 1)
	o.all.Go(func() { done <- work(ctx) })
	o.mu.Unlock()
	wait := time.NewTimer(firstAnswer)
	defer wait.Stop()
	select {
	case err := <-done:
		return true, err
	case <-wait.C:
		return false, nil
	}
}

// firstAnswer is how long a browser waits for the end of what it has ordered, before it
// is told to watch.
const firstAnswer = 700 * time.Millisecond

// execute carries out an order of a source, or goes on with one if somebody resumes it. It returns an error if
// the order has not begun.
func (h *Handler) execute(p place, o desk.Order, resumed *desk.By) error {
	source, release, err := h.source(p)
	if err != nil {
		return err
	}
	one := &running{source: source.About().Name, progress: desk.Progress{Order: o, State: desk.Running}, began: time.Now()}
	h.orders.mu.Lock()
	if h.orders.running[o.ID] != nil { // somebody has clicked twice
		h.orders.mu.Unlock()
		release()
		return nil
	}
	h.orders.running[o.ID] = one
	h.orders.mu.Unlock()
	over := func() {
		h.orders.mu.Lock()
		delete(h.orders.running, o.ID)
		h.orders.listedAt = time.Time{}
		h.orders.mu.Unlock()
		release()
		h.changed.notify()
	}
	tell := func(p desk.Progress) {
		h.orders.mu.Lock()
		one.progress = p
		h.orders.mu.Unlock()
		h.changed.notify()
	}
	ended, err := h.orders.do(func(ctx context.Context) error {
		defer over()
		var err error
		if resumed != nil {
			_, err = source.Resume(ctx, o.ID, *resumed, tell)
		} else {
			_, err = source.Execute(ctx, o, tell)
		}
		if err != nil && !errors.Is(err, desk.ErrStopped) {
			h.cfg.Logger.Warn("web: an order ended early", "order", o.ID, "error", err)
		}
		return err
	})
	if errors.Is(err, errNotRunning) {
		over()
		return err
	}
	if ended && err != nil {
		if _, unknown := h.cfg.Journal.Order(o.ID); unknown != nil {
			return err // it never began; else its page says how it ended
		}
	}
	return nil
}

// progressOf returns how far an order is, in whichever process it runs.
func (h *Handler) progressOf(id string) (desk.Progress, error) {
	h.orders.mu.Lock()
	one := h.orders.running[id]
	if one != nil {
		p := one.progress
		h.orders.mu.Unlock()
		return p, nil
	}
	h.orders.mu.Unlock()
	return h.cfg.Journal.Order(id)
}

// listFor is how long the journal is not read again.
const listFor = time.Second

// list returns the latest orders of the journal, the newest first.
func (h *Handler) latestOrders(n int) ([]desk.Progress, error) {
	h.orders.mu.Lock()
	defer h.orders.mu.Unlock()
	if time.Since(h.orders.listedAt) > listFor {
		all, err := h.cfg.Journal.Orders()
		if err != nil {
			return nil, err
		}
		h.orders.listed, h.orders.listedAt = all[:min(len(all), maxListed)], time.Now()
	}
	out := make([]desk.Progress, 0, n)
	for _, p := range h.orders.listed {
		if len(out) == n {
			break
		}
		if one := h.orders.running[p.Order.ID]; one != nil {
			p = one.progress
		}
		out = append(out, p)
	}
	return out, nil
}

// maxListed is how many orders and records pages show.
const maxListed = 200
