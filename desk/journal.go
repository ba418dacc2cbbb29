package desk

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
)

// Journal is a folder in which orders are written down before they begin, and every
// action that changed letters. Several processes may use it at the same time.
//
//	audit.jsonl              one line for each action
//	orders/ID.jsonl          the order, and each of its steps
//	orders/ID.stop           exists if somebody has stopped the order
//	originals.jsonl          letters as they were before an edit
type Journal struct{ dir string }

// OpenJournal opens the journal in a folder, which it makes if there is none. Only
// the user of the process may read it, because it names messages.
func OpenJournal(dir string) (*Journal, error) {
	if dir == "" {
		return nil, errors.New("desk: the journal wants a folder")
	}
	if err := os.MkdirAll(filepath.Join(dir, "orders"), 0o700); err != nil {
		return nil, fmt.Errorf("desk: the journal: %w", err)
	}
	return &Journal{dir}, nil
}

// Dir returns the folder.
func (j *Journal) Dir() string { return j.dir }

// Record is a line of the audit.
type Record struct {
	At     time.Time `json:"at"`
	By     By        `json:"by"`
	Action string    `json:"action"` // send, move, drop, export, import, park, archive, release, edit, stop, resume
	Source string    `json:"source"`
	Which  string    `json:"which,omitzero"` // the letters, as a text
	Order  string    `json:"order,omitzero"` // id
	Count  int       `json:"count"`          // of letters
	Result string    `json:"result"`
}

// note writes a record. It returns an error if it could not.
func (j *Journal) note(r Record) error {
	if r.At.IsZero() {
		r.At = time.Now().UTC()
	}
	return j.append("audit.jsonl", r, true)
}

// result is that of an action that has ended.
func result(err error) string {
	if err != nil {
		return err.Error()
	}
	return "done"
}

// append adds a line to a file, in one write: lines of several processes do not mix.
func (j *Journal) append(name string, v any, sync bool) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(j.dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	return nil
}

// Audit returns the latest records, the newest first, at most n.
func (j *Journal) Audit(n int) ([]Record, error) {
	var all []Record
	err := j.lines("audit.jsonl", func(line []byte) {
		var r Record
		if json.Unmarshal(line, &r) == nil {
			all = append(all, r)
		}
	})
	slices.Reverse(all)
	return all[:min(n, len(all))], err
}

// lines calls do with each whole line of a file. A file that does not exist has none,
// and a line that was cut off by the end of a process is none.
func (j *Journal) lines(name string, do func([]byte)) error {
	f, err := os.Open(filepath.Join(j.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("desk: the journal: %w", err)
		}
		do(bytes.TrimSpace(line))
	}
}

func (j *Journal) orderFile(id string) string { return filepath.Join("orders", id+".jsonl") }

// entry is a line of the file of an order.
type entry struct {
	Order    *Order    `json:"order,omitzero"`
	Try      []string  `json:"try,omitzero"`  // letters that are being published
	Sent     []string  `json:"sent,omitzero"` // of these: confirmed
	Gone     []string  `json:"gone,omitzero"` // of these: their place has let go of them
	Left     []string  `json:"left,omitzero"` // of those tried: known not to be published
	Progress *Progress `json:"progress,omitzero"`
}

// Orders returns the orders of the journal with their progress, the newest first.
func (j *Journal) Orders() ([]Progress, error) {
	files, err := os.ReadDir(filepath.Join(j.dir, "orders"))
	if err != nil {
		return nil, fmt.Errorf("desk: the journal: %w", err)
	}
	var all []Progress
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ".jsonl")
		if !ok {
			continue
		}
		p, err := j.Order(id)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Progress) int {
		return cmp.Or(b.Order.Created.Compare(a.Order.Created), cmp.Compare(a.Order.ID, b.Order.ID))
	})
	return all, nil
}

// Order returns an order with its progress.
func (j *Journal) Order(id string) (Progress, error) {
	h, err := j.history(id)
	if err == nil && h.progress.State == Running {
		if release, busy := lock(j.lockFile(id)); busy == nil {
			h.progress.State = CutOff
			err = release()
		}
	}
	return h.progress, err
}

func (j *Journal) lockFile(id string) string { return filepath.Join(j.dir, "orders", id+".lock") }

// past is what the file of an order says.
type past struct {
	progress Progress
	sent     map[string]bool // confirmed letters
	gone     map[string]bool // of these: known to have left their place
	open     map[string]bool // tried, and it is not known whether they arrived
	again    map[string]bool // of these: tried once more
}

// doubtful is how many letters were sent that may be there twice.
func (p past) doubtful() int {
	n := 0
	for key := range p.again {
		if p.sent[key] {
			n++
		}
	}
	return n
}

func (j *Journal) history(id string) (past, error) {
	h := past{sent: map[string]bool{}, gone: map[string]bool{}, open: map[string]bool{}, again: map[string]bool{}}
	if !orderID.MatchString(id) {
		return h, fmt.Errorf("%w: %.80q", ErrNoOrder, id)
	}
	var order *Order
	err := j.lines(j.orderFile(id), func(line []byte) {
		var e entry
		if json.Unmarshal(line, &e) != nil {
			return
		}
		if e.Order != nil && order == nil {
			order = e.Order
		}
		for _, key := range e.Try {
			if h.open[key] {
				h.again[key] = true
			}
			h.open[key] = true
		}
		for _, key := range e.Sent {
			delete(h.open, key)
			h.sent[key] = true
		}
		for _, key := range e.Gone {
			h.gone[key] = true
		}
		for _, key := range e.Left {
			delete(h.open, key)
		}
		if e.Progress != nil {
			h.progress = *e.Progress
		}
	})
	if err == nil && order == nil {
		err = fmt.Errorf("%w: %q", ErrNoOrder, id)
	}
	if order != nil {
		h.progress.Order = *order
		h.progress.Done, h.progress.MaybeDuplicate = max(h.progress.Done, len(h.sent)), h.doubtful()
		h.progress.State = cmp.Or(h.progress.State, Running)
	}
	return h, err
}

// Stop stops an order, in whichever process it runs, within about a second. A stopped
// order can be resumed.
func (j *Journal) Stop(id string, by By) error {
	p, err := j.Order(id)
	if err != nil {
		return err
	}
	if err := os.WriteFile(j.stopFile(id), nil, 0o600); err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	return j.note(Record{By: by, Action: "stop", Source: p.Order.Source, Order: id, Result: "asked"})
}

func (j *Journal) stopFile(id string) string { return filepath.Join(j.dir, "orders", id+".stop") }

// book is the file of an order that this process works on.
type book struct {
	journal *Journal
	order   Order
	release func() error

	mu   sync.Mutex
	file *os.File
	past past
}

// begin writes an order down, unless it is there already, and takes it for this
// process. Only one process works on an order.
func (j *Journal) begin(o Order, resume bool) (*book, error) {
	release, err := lock(j.lockFile(o.ID))
	for range 10 { // somebody may have looked whether it is taken
		if !errors.Is(err, errBusy) {
			break
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // a file tells nobody when it is free
		release, err = lock(j.lockFile(o.ID))
	}
	if err != nil {
		return nil, fmt.Errorf("desk: order %s: %w", o.ID, err)
	}
	b := &book{journal: j, order: o, release: release}
	if err := b.open(resume); err != nil {
		return nil, errors.Join(err, release())
	}
	return b, nil
}

func (b *book) open(resume bool) error {
	name := filepath.Join(b.journal.dir, b.journal.orderFile(b.order.ID))
	flags := os.O_WRONLY | os.O_APPEND
	if !resume {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("desk: order %s exists; resume it, or give another id", b.order.ID)
	}
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	b.file = f
	if err := os.Remove(b.journal.stopFile(b.order.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	if !resume {
		if err := b.write(entry{Order: &b.order}); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("desk: the journal: %w", err)
		}
	} else if _, err := f.WriteString("\n"); err != nil { // ends a line that was cut off
		return fmt.Errorf("desk: the journal: %w", err)
	}
	b.past, err = b.journal.history(b.order.ID)
	return err
}

// write adds a line. It is in the hands of the operating system when write returns, so
// the end of the process does not lose it.
func (b *book) write(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	return nil
}

// stopped reports whether somebody has stopped the order.
func (b *book) stopped() bool {
	_, err := os.Stat(b.journal.stopFile(b.order.ID))
	return err == nil
}

// end notes how the order ended, also in the audit unless no letter matched.
func (b *book) end(p Progress) error {
	errs := []error{b.write(entry{Progress: &p}), b.file.Sync(), b.file.Close()}
	if p.State != Done || p.Matched > 0 {
		errs = append(errs, b.journal.note(Record{
			By: b.order.By, Action: string(b.order.Action), Source: b.order.Source, Which: b.order.Filter.String(),
			Order: b.order.ID, Count: p.Done, Result: p.String(),
		}))
	}
	return errors.Join(append(errs, b.release())...)
}

// reopen takes an order of a source for this process.
func reopen(j *Journal, a About, id string) (*book, error) {
	p, err := j.Order(id)
	switch {
	case err != nil:
		return nil, err
	case p.Order.Source != a.Name:
		return nil, connection.WithClass(fmt.Errorf("desk: order %s is for %s, not for %s", id, p.Order.Source, a.Name), connection.Bug)
	case p.State == Done && p.Failed == 0:
		return nil, connection.WithClass(fmt.Errorf("desk: order %s is done", id), connection.Bug)
	}
	return j.begin(p.Order, true)
}
