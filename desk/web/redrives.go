package web

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/desk"
)

var errNotRunning = rehop.WithClass(errors.New("web: Handler.Run has ended or has not begun: no redrive is taken"), rehop.ClassTransient)

// redrives are those that this process carries out.
type redrives struct {
	mu      sync.Mutex
	ctx     context.Context // of Run; nil: it does not run
	all     *sync.WaitGroup
	running map[string]*running
}

// running is a redrive that this process carries out.
type running struct {
	source   string
	progress desk.Progress
	began    time.Time
}

func (r *redrives) begin(ctx context.Context, all *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx, r.all = ctx, all
}

// end keeps new redrives from beginning. Those that run end with the ctx of Run.
func (r *redrives) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx = nil
}

// do runs work until it has ended or Run ends, and waits a moment for its end.
func (r *redrives) do(work func(ctx context.Context) error) (ended bool, err error) {
	r.mu.Lock()
	if r.ctx == nil {
		r.mu.Unlock()
		return false, errNotRunning
	}
	ctx, done := r.ctx, make(chan error, 1)
	r.all.Go(func() { done <- work(ctx) })
	r.mu.Unlock()
	wait := time.NewTimer(firstAnswer)
	defer wait.Stop()
	select {
	case err := <-done:
		return true, err
	case <-wait.C:
		return false, nil
	}
}

// firstAnswer is how long a browser waits for the end of what it has asked for, before it
// is told to watch.
const firstAnswer = 700 * time.Millisecond

// mayBegin returns why the broker that a redrive needs does not answer. The redrive would begin when
// it is back, and nobody may expect that any more.
func (r *request) mayBegin(at place, action desk.Action) error {
	if r.h.broker == nil || at.Queue == "" && action == desk.Drop {
		return nil
	}
	return r.h.broker.answers(r.ctx, askTimeout)
}

// execute carries out a redrive of a source, or goes on with one if somebody resumes it. It returns an error if
// the redrive has not begun.
func (h *Handler) execute(at place, r desk.Redrive, resumed *desk.By) error {
	source, release, err := h.source(at)
	if err != nil {
		return err
	}
	r.Source = source.About().Name // its page leads to the letters before anything is known of its progress
	one := &running{source: r.Source, progress: desk.Progress{Redrive: r, State: desk.Running}, began: time.Now()}
	h.redrives.mu.Lock()
	if h.redrives.running[r.ID] != nil { // somebody has clicked twice
		h.redrives.mu.Unlock()
		release()
		return nil
	}
	h.redrives.running[r.ID] = one
	h.redrives.mu.Unlock()
	over := func() {
		h.redrives.mu.Lock()
		delete(h.redrives.running, r.ID)
		h.redrives.mu.Unlock()
		release()
	}
	tell := func(p desk.Progress) {
		h.redrives.mu.Lock()
		one.progress = p
		h.redrives.mu.Unlock()
	}
	var p desk.Progress
	ended, err := h.redrives.do(func(ctx context.Context) error {
		defer over()
		var err error
		if resumed != nil {
			p, err = source.Resume(ctx, r.ID, *resumed, tell)
		} else {
			p, err = source.Execute(ctx, r, tell)
		}
		if err != nil && !errors.Is(err, desk.ErrRedriveStopped) {
			h.cfg.Logger.Warn("web: a redrive ended early", "redrive", r.ID, "error", err)
		}
		return err
	})
	if errors.Is(err, errNotRunning) {
		over()
		return err
	}
	if ended && err != nil && p.State == "" {
		return err // it never began; else its page says how it ended
	}
	return nil
}

// at returns a redrive of this process that works on a source, or waits for its turn there; empty: there is none.
func (r *redrives) at(source string) (id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one, running := range r.running {
		if running.source == source && (id == "" || running.began.Before(r.running[id].began)) {
			id = one
		}
	}
	return id
}

// progressOf returns how far a redrive is, in whichever process it runs.
func (h *Handler) progressOf(id string) (desk.Progress, error) {
	h.redrives.mu.Lock()
	one := h.redrives.running[id]
	if one != nil {
		p := one.progress
		h.redrives.mu.Unlock()
		return p, nil
	}
	h.redrives.mu.Unlock()
	return h.cfg.Journal.Redrive(id)
}

// latestRedrives returns the latest redrives of the journal, the newest first.
func (h *Handler) latestRedrives(n int) ([]desk.Progress, error) {
	all, err := h.cfg.Journal.Redrives(n)
	if err != nil {
		return nil, err
	}
	h.redrives.mu.Lock()
	defer h.redrives.mu.Unlock()
	for i, p := range all {
		if one := h.redrives.running[p.Redrive.ID]; one != nil {
			all[i] = one.progress
		}
	}
	return all, nil
}

// pruneEvery is how often the journal is pruned.
const pruneEvery = time.Hour

// prune deletes old redrives from the journal, until ctx ends.
func (h *Handler) prune(ctx context.Context) {
	again := time.NewTicker(pruneEvery)
	defer again.Stop()
	for {
		by := desk.By{Who: "desk", Why: fmt.Sprintf("older than %v", h.cfg.PruneAfter)}
		if _, err := h.cfg.Journal.Prune(time.Now().Add(-h.cfg.PruneAfter), by); err != nil {
			h.cfg.Logger.Warn("web: the journal could not be pruned", "error", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// maxListed is how many redrives and records pages show.
const maxListed = 200
