package desk

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop"
)

// Record is a line of the audit. Each process that works on a redrive has its own: the
// first with the Action of the redrive, those that go on with it with the Action resume
// and the person who has resumed it.
type Record struct {
	At      time.Time `json:"at"`
	By      By        `json:"by"`
	Action  string    `json:"action"` // send, move, drop, export, import, collect, park, archive, release, edit, stop, resume, look, show, prune
	Source  string    `json:"source"`
	Which   string    `json:"which,omitzero"`   // the letters, as a text
	Redrive string    `json:"redrive,omitzero"` // id
	Count   int       `json:"count"`            // of letters, at least so many if the action is unfinished; of a redrive: those that this process sent, moved, dropped, or deleted as sent before
	Result  string    `json:"result"`

	// File is the file of an import, if it was named, and SHA256 is of all that it read, in hex; empty if
	// that was not known: the letters came from a pipe, and the import ended early.
	File   string `json:"file,omitzero"`
	SHA256 string `json:"sha256,omitzero"`

	// Unfinished says that the action has begun and has no end yet: a process is at
	// work on it, or its process was killed and nobody has gone on with it. Result says
	// which.
	Unfinished bool `json:"unfinished,omitzero"`
}

// auditLine is a line of the file. Act links the begin and the end of an action that is
// no redrive.
type auditLine struct {
	Record
	Act string `json:"act,omitzero"`
}

// key is the same in the lines of one action; empty if the action has one line.
func (l auditLine) key() string {
	switch {
	case l.Act != "":
		return "act " + l.Act
	case l.Redrive != "" && l.Action != "stop":
		return "redrive " + l.Redrive
	}
	return ""
}

// Results of records in the file that Audit does not return.
const (
	began   = "began" // a process has begun to work
	noMatch = "no letter matched"
)

// unknownEnd is the result of an action whose file somebody has removed.
const unknownEnd = "running or cut off"

// note writes a record. It returns an error if it could not.
func (j *Journal) note(r Record) error { return j.noteLine(auditLine{Record: r}) }

func (j *Journal) noteLine(l auditLine) error {
	if l.At.IsZero() {
		l.At = time.Now().UTC()
	}
	return j.append("audit.jsonl", l, true)
}

// lookNoted looks, and notes it in the audit.
func (l *Live) lookNoted(ctx context.Context) (*look, error) {
	seen, err := l.look(ctx)
	r := Record{By: byOf(ctx), Action: "look", Source: l.About().Name, Result: result(err)}
	if seen != nil {
		r.Count = len(seen.letters)
	}
	if noted := l.cfg.Journal.note(r); noted != nil {
		return nil, errors.Join(err, noted)
	}
	return seen, err
}

// shown notes that somebody has got a whole letter.
func (j *Journal) shown(ctx context.Context, a About, id string) error {
	return j.note(Record{By: byOf(ctx), Action: "show", Source: a.Name, Which: "id=" + strconv.Quote(id), Count: 1, Result: "done"})
}

// result is that of an action that has ended.
func result(err error) string {
	if err != nil {
		return err.Error()
	}
	return "done"
}

// Audit returns the latest records, the newest first, at most n. An action that is
// running or was cut off has a record too, which says how far it is known to have
// come. A redrive that no letter matched has none.
func (j *Journal) Audit(n int) ([]Record, error) {
	if n < 0 {
		return nil, rehop.WithClass(fmt.Errorf("desk: Audit: n is %d, want 0 or more", n), rehop.ClassBug)
	}
	for range 3 { // what ends while it is read is read again
		records, ended, err := j.audit(n, false)
		if err != nil || !ended {
			return records, err
		}
	}
	records, _, err := j.audit(n, true)
	return records, err
}

// audit reads the file once, from its end, until it has n records. ended reports that an action
// seems to have ended meanwhile; with final, its record says that its end is not known.
func (j *Journal) audit(n int, final bool) (records []Record, ended bool, err error) {
	if n == 0 {
		return nil, false, nil
	}
	ended, err = j.records(final, func(r Record) bool {
		records = append(records, r)
		return len(records) < n
	})
	return records, ended, err
}

// records calls do with the records, the newest first, until it returns false. It reads no more of the file than that.
func (j *Journal) records(final bool, do func(Record) bool) (ended bool, err error) {
	behind := map[string]auditLine{} // by action: its line that was read last, the next one in the file
	err = j.backwards("audit.jsonl", func(text []byte) bool {
		var l auditLine
		if json.Unmarshal(text, &l) != nil || l.Result == "" { // each record has one
			return true
		}
		next, isFollowed := behind[l.key()]
		if l.key() != "" {
			behind[l.key()] = l
		}
		switch {
		case l.Result == began && isFollowed && next.Result != began: // the record of its end says more
			return true
		case l.Result == began && isFollowed: // before its end was in the audit
			l.Result = string(CutOff)
		case l.Result == began:
			known, over := j.unended(l)
			if ended = ended || over && !final; over {
				known.Result, known.Unfinished = unknownEnd, true
			}
			l.Record = known
		case isFollowed && l.Redrive != "" && sameEnd(l.Record, next.Record), l.Result == noMatch:
			return true
		case !isFollowed && l.key() != "" && l.Redrive != "": // nobody goes on with it
			l.Unfinished = strings.HasPrefix(l.Result, string(CutOff))
		}
		return do(l.Record)
	})
	return ended, err
}

// sameEnd reports whether two records are of the end of one process: a process that went
// on with its redrive has noted its end, and was killed before it noted more.
func sameEnd(a, b Record) bool {
	return a.By == b.By && a.Action == b.Action && a.Count == b.Count && a.Result == b.Result
}

// unended returns the record of an action that has begun, with how far it is. over
// reports that nothing is known of it any more.
func (j *Journal) unended(l auditLine) (r Record, over bool) {
	if l.Act != "" {
		return j.unendedAct(l)
	}
	h, err := j.look(l.Redrive)
	if err != nil {
		return l.Record, true
	}
	r = h.run.record(h.progress)
	r.At, r.Unfinished = l.At, h.progress.State == Running || h.progress.State == CutOff
	return r, false
}

// record is what the audit says of a run when the redrive is as far as p.
func (r run) record(p Progress) Record {
	p.Done, p.MaybeDuplicate, p.Deleted = max(p.Done-r.Done, 0), max(p.MaybeDuplicate-r.MaybeDuplicate, 0), max(p.Deleted-r.Deleted, 0)
	text := p.String()
	if p.State == Done && p.Matched == 0 && r.Action != resume {
		text = noMatch
	}
	return Record{By: r.By, Action: r.Action, Source: p.Redrive.Source, Which: p.Redrive.Which(), Redrive: p.Redrive.ID, Count: p.Done + p.Deleted, Result: text}
}

// act is an action that is no redrive, such as an export. Its begin is in the audit before
// it changes anything, and its file is locked while the process lives.
type act struct {
	journal *Journal
	line    auditLine
	release func() error
	noted   time.Time
	note    string // in a result without an error
}

// actProgress is a line in the file of an act: what it has certainly done.
type actProgress struct {
	Count int `json:"count"`
	Line  int `json:"line,omitzero"` // of an import: all lines up to it
}

func actFile(id string) string { return filepath.Join("acts", id) }

// undertake writes down that an action begins.
func (j *Journal) undertake(r Record) (*act, error) {
	a := &act{journal: j, line: auditLine{Record: r, Act: strings.ToLower(rand.Text())}, noted: time.Now()}
	if err := j.make(); err != nil {
		return nil, err
	}
	release, err := lock(filepath.Join(j.dir, actFile(a.line.Act)))
	if err != nil {
		return nil, fmt.Errorf("desk: the journal: %w", err)
	}
	a.release = release
	begin := a.line
	begin.Result = began
	if err := errors.Join(a.write(actProgress{}), j.noteLine(begin)); err != nil {
		return nil, errors.Join(err, a.forget())
	}
	return a, nil
}

func (a *act) write(p actProgress) error { return a.journal.append(actFile(a.line.Act), p, false) }

// reached writes down now and then how many letters are done.
func (a *act) reached(n int) error {
	if time.Since(a.noted) < noteEvery {
		return nil
	}
	a.noted = time.Now()
	return a.write(actProgress{Count: n})
}

// end writes down how the action ended, and returns err with the journal's own.
func (a *act) end(n int, err error) error {
	a.line.Count, a.line.Result = n, result(err)
	if err == nil && a.note != "" {
		a.line.Result += ", " + a.note
	}
	if noted := a.journal.noteLine(a.line); noted != nil {
		return errors.Join(err, noted, a.release()) // the file still tells that it has no end
	}
	return errors.Join(err, a.forget())
}

func (a *act) forget() error {
	err := a.release()
	if e := os.Remove(filepath.Join(a.journal.dir, actFile(a.line.Act))); e != nil && !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	return nil
}

// unendedAct is unended for an act.
func (j *Journal) unendedAct(l auditLine) (r Record, over bool) {
	r = l.Record
	var p actProgress
	known := false
	err := j.lines(actFile(l.Act), func(text []byte) {
		var one actProgress
		if json.Unmarshal(text, &one) == nil {
			p, known = one, true
		}
	})
	busy, there := held(filepath.Join(j.dir, actFile(l.Act)))
	if err != nil || !known || !there {
		return r, true
	}
	r.Count, r.Unfinished = p.Count, true
	state := CutOff
	if busy {
		state = Running
	}
	switch {
	case p.Count > 0 && p.Line > 0:
		r.Result = fmt.Sprintf("%s: %s or more, all up to line %d", state, count(p.Count, "letter"), p.Line)
	case p.Count > 0:
		r.Result = fmt.Sprintf("%s: %s or more", state, count(p.Count, "letter"))
	default:
		r.Result = fmt.Sprintf("%s: how many letters are done is not known", state)
	}
	return r, false
}
