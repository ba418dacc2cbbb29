package desk

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop"
)

// listing is what a Journal remembers of its redrives, so that a list costs the same
// however many there are: the names and times of all, and the progress of those that
// somebody has asked for. The folder's time tells that a redrive has begun.
type listing struct {
	mu     sync.Mutex
	folder time.Time // when a file came or went; zero: the folder is to be read
	all    []*listed // the newest first
	empty  []*listed // files without a first line: their process is about to write it, or was killed
}

// listed is a redrive of which the file had this size when it was read.
type listed struct {
	id       string
	size     int64
	progress Progress
}

// settledFor is how old the time of a folder has to be before it tells of a later change
// for certain: the clocks of file systems are coarse.
const settledFor = 2 * time.Second

// Redrives returns the latest redrives of the journal with their progress, the newest first, at
// most n. The file redrives/ID.jsonl has the steps of each, with the ids of its letters.
func (j *Journal) Redrives(n int) ([]Progress, error) {
	if n < 0 {
		return nil, rehop.WithClass(fmt.Errorf("desk: Redrives: n is %d, want 0 or more", n), rehop.ClassBug)
	}
	l := &j.listing
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := j.list(); err != nil {
		return nil, err
	}
	var found []Progress
	for _, one := range l.all[:min(n, len(l.all))] {
		if err := j.refresh(one); err != nil && !errors.Is(err, ErrNoRedrive) { // somebody prunes the journal
			return nil, err
		} else if err == nil {
			found = append(found, one.progress)
		}
	}
	return found, nil
}

// list reads the folder, if something in it may have changed.
func (j *Journal) list() error {
	l := &j.listing
	folder := filepath.Join(j.dir, "redrives")
	now := time.Now()
	info, err := os.Stat(folder)
	if errors.Is(err, os.ErrNotExist) {
		l.folder, l.all, l.empty = time.Time{}, nil, nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	if info.ModTime().Equal(l.folder) && !slices.ContainsFunc(l.empty, func(one *listed) bool { return j.sizeOf(one.id) != one.size }) {
		return nil
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	known := map[string]*listed{}
	for _, one := range l.all {
		known[one.id] = one
	}
	l.all, l.empty, l.folder = nil, nil, time.Time{}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ".jsonl")
		if !ok {
			continue
		}
		one := known[id]
		if one == nil {
			one = &listed{id: id, size: -1}
			switch err := j.refresh(one); {
			case errors.Is(err, ErrNoRedrive):
				one.size = j.sizeOf(id)
				l.empty = append(l.empty, one)
				continue
			case err != nil:
				return err
			}
		}
		l.all = append(l.all, one)
	}
	slices.SortFunc(l.all, func(a, b *listed) int {
		return cmp.Or(b.progress.Redrive.Created.Compare(a.progress.Redrive.Created), cmp.Compare(a.id, b.id))
	})
	if info.ModTime().Before(now.Add(-settledFor)) {
		l.folder = info.ModTime()
	}
	return nil
}

// sizeOf returns the size of the file of a redrive, -1 if it has none.
func (j *Journal) sizeOf(id string) int64 {
	info, err := os.Stat(filepath.Join(j.dir, j.redriveFile(id)))
	if err != nil {
		return -1
	}
	return info.Size()
}

// refresh reads a redrive again, if its file has grown, its process may have died, or another one has
// taken it.
func (j *Journal) refresh(one *listed) error {
	size := j.sizeOf(one.id)
	if size >= 0 && size == one.size && one.progress.Ended() && !j.isTaken(one.progress) {
		return nil
	}
	p, err := j.Redrive(one.id)
	if err == nil {
		one.size, one.progress = size, p
	}
	return err
}

// lastPart is how much of the end of a file is looked through for progress.
const lastPart = 1 << 20

// summary returns what the first and the last lines of the file of a redrive say, without those
// between them. known is false if that is not enough: its process has not noted its progress
// lately, or was cut off.
func (j *Journal) summary(id string) (p Progress, known bool) {
	f, err := os.Open(filepath.Join(j.dir, j.redriveFile(id)))
	if err != nil {
		return p, false
	}
	defer f.Close()
	var first, last entry
	if json.NewDecoder(f).Decode(&first) != nil || first.Redrive == nil {
		return p, false
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return p, false
	}
	end := make([]byte, min(size, lastPart))
	if _, err := f.ReadAt(end, size-int64(len(end))); err != nil {
		return p, false
	}
	for end = end[:bytes.LastIndexByte(end, '\n')+1]; ; {
		begin := bytes.LastIndexByte(bytes.TrimSuffix(end, []byte("\n")), '\n') + 1
		line := end[begin:]
		if begin == 0 || bytes.HasPrefix(line, []byte(`{"run":`)) { // the first line of the part may be half a line
			return p, false
		}
		if bytes.HasPrefix(line, []byte(`{"progress":`)) && json.Unmarshal(line, &last) == nil && last.Progress != nil {
			break
		}
		end = end[:begin]
	}
	p = *last.Progress
	p.Redrive = *first.Redrive
	if !p.Ended() {
		known, _ = held(j.lockFile(id))
		return p, known
	}
	return p, true
}

// Prune deletes from the journal the redrives that ended before a time, and returns how many.
// It keeps each redrive that can be resumed or is running, and the audit, which says that
// somebody has pruned the journal.
func (j *Journal) Prune(before time.Time, by By) (pruned int, err error) {
	files, err := os.ReadDir(filepath.Join(j.dir, "redrives"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("desk: the journal: %w", err)
	}
	var errs []error
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ".jsonl")
		info, err := f.Info()
		if !ok || err != nil || !info.ModTime().Before(before) {
			continue // younger, or gone
		}
		p, err := j.Redrive(id)
		if err != nil || !p.Ended() || p.Resumable() || !p.Updated.Before(before) {
			continue
		}
		if err := j.remove(id); err != nil {
			errs = append(errs, fmt.Errorf("desk: the journal: redrive %s: %w", id, err))
			continue
		}
		pruned++
	}
	if err = errors.Join(errs...); pruned > 0 || err != nil {
		what := fmt.Sprintf("%s that ended before %s", count(pruned, "redrive"), before.UTC().Format(time.RFC3339))
		err = errors.Join(err, j.note(Record{By: by, Action: "prune", Which: what, Result: result(err)}))
	}
	return pruned, err
}

// remove deletes the files of a redrive that nobody works on.
func (j *Journal) remove(id string) error {
	release, err := lock(j.lockFile(id))
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Join(j.dir, j.redriveFile(id)))
	for _, name := range []string{j.stopFile(id), j.lockFile(id)} {
		if e := os.Remove(name); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if e := release(); !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}
