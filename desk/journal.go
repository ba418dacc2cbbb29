package desk

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/transport"
)

// Journal is a folder in which redrives are written down before they begin, and every
// action on letters. Several processes may use it at the same time.
//
//	audit.jsonl              one line for the start of each action, and one for its end
//	acts/ID                  progress of an action other than a redrive, until it ends
//	redrives/ID.jsonl        the redrive, and each of its steps
//	redrives/ID.stop         exists if somebody has stopped the redrive
//	redrives/ID.lock         has the process that works on the redrive, or did last
//	originals.jsonl          letters as they were before an edit
//	dropped/ID.jsonl         letters that a redrive with DroppedTo has deleted, or sent with an edit
type Journal struct {
	dir  string
	sync func(*os.File) error // that a power cut loses nothing of a file; a test has its own

	listing listing
}

// OpenJournal opens the journal in a folder. The first action or redrive makes the
// folder if there is none: to read makes nothing. Only the user of the process may read
// it, because it names messages.
func OpenJournal(dir string) (*Journal, error) {
	if dir == "" {
		return nil, errors.New("desk: the journal wants a folder")
	}
	for above := filepath.Clean(dir); ; above = filepath.Dir(above) {
		info, err := os.Stat(above)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is a file", above)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrNotExist) || above == filepath.Dir(above) {
			return nil, fmt.Errorf("desk: the journal: %w", err)
		}
	}
	whole, err := filepath.Abs(dir) // a redrive names files of the folder, and goes on in processes with other working directories
	if err != nil {
		return nil, fmt.Errorf("desk: the journal: %w", err)
	}
	return &Journal{dir: whole, sync: (*os.File).Sync}, nil
}

// make makes the folders of the journal, unless they are there.
func (j *Journal) make() error {
	var err error
	for _, folder := range []string{"redrives", "acts", "dropped"} {
		name := filepath.Join(j.dir, folder)
		if _, missing := os.Stat(name); missing != nil {
			err = errors.Join(err, os.MkdirAll(name, 0o700), syncFolder(j.dir), syncFolder(filepath.Dir(j.dir)))
		}
	}
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	return nil
}

// append adds a line to a file, in one write: lines of several processes do not mix.
func (j *Journal) append(name string, v any, sync bool) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	if err := j.make(); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(j.dir, name), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	if err = endLine(f); err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	if err == nil && sync {
		err = j.sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	return nil
}

// endLine ends the last line of a file that is appended to, if a process that was killed
// or a full disk has cut it off: or the next line would be a part of it.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.WriteString("\n")
	return err
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

// backwards is lines from the last line to the first, until do returns false. It reads no more of the
// file than that.
func (j *Journal) backwards(name string, do func([]byte) bool) error {
	f, err := os.Open(filepath.Join(j.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	defer f.Close()
	at, err := f.Seek(0, io.SeekEnd)
	var rest []byte // ends where nothing was read yet, or with the end of a line
	for part, whole := int64(1<<16), false; err == nil && at > 0; {
		n := min(part, at)
		at -= n
		text := make([]byte, n, int(n)+len(rest))
		if _, err = f.ReadAt(text, at); err != nil {
			break
		}
		rest = append(text, rest...)
		if end := bytes.LastIndexByte(rest, '\n'); !whole && end >= 0 {
			rest, whole = rest[:end], true
		}
		if !whole || bytes.IndexByte(rest, '\n') < 0 {
			part *= 2 // of a long line
		}
		for whole {
			end := bytes.LastIndexByte(rest, '\n')
			if end < 0 && at > 0 {
				break // its beginning is before
			}
			if !do(bytes.TrimSpace(rest[end+1:])) || end < 0 {
				return nil
			}
			rest = rest[:end]
		}
	}
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	return nil
}

// DroppedTo returns a file in the journal's folder for [Redrive.CopyTo] of a redrive. [Journal.Prune]
// leaves it.
func (j *Journal) DroppedTo(id string) string { return filepath.Join(j.dir, "dropped", id+".jsonl") }

func (j *Journal) redriveFile(id string) string { return filepath.Join("redrives", id+".jsonl") }

// entry is a line of the file of a redrive.
type entry struct {
	Redrive    *Redrive  `json:"redrive,omitzero"`
	Look       []string  `json:"look,omitzero"`        // the letters of its Look, in a queue
	There      int       `json:"there,omitzero"`       // how many letters its place had when it began
	Seen       []string  `json:"seen,omitzero"`        // digests of letters of There that were not seen before
	Run        *run      `json:"run,omitzero"`         // a process goes on with it
	Broker     string    `json:"broker,omitzero"`      // whose letters it takes, or to which it sends them
	Try        []string  `json:"try,omitzero"`         // letters that are being published
	Kept       []string  `json:"kept,omitzero"`        // of these: their originals are in Redrive.CopyTo, before they are sent with an edit
	Sent       []string  `json:"sent,omitzero"`        // of these: confirmed
	Gone       []string  `json:"gone,omitzero"`        // of these: their place has let go of them
	Left       []string  `json:"left,omitzero"`        // of those tried: known not to be published
	Doubted    []string  `json:"doubted,omitzero"`     // of those tried: letters that may be ones that were sent
	Taking     int       `json:"taking,omitzero"`      // how many letters the process is about to have in hand
	CanaryOver bool      `json:"canary_over,omitzero"` // the canary has passed, or has come back
	Progress   *Progress `json:"progress,omitzero"`
}

// resume is Record.Action of a process that goes on with a redrive.
const resume = "resume"

// run is the work of one process on a redrive.
type run struct {
	By     By     `json:"by"`
	Action string `json:"action"`

	// What earlier processes have done.
	Done           int `json:"done"`
	MaybeDuplicate int `json:"maybe_duplicate,omitzero"`
	Deleted        int `json:"deleted,omitzero"`
}

// Redrive returns a redrive with its progress. It is running from the moment that a process has taken it,
// also while that waits for its broker.
func (j *Journal) Redrive(id string) (p Progress, err error) {
	known := false
	if redriveID.MatchString(id) {
		p, known = j.summary(id)
	}
	if !known {
		h, err := j.look(id)
		if err != nil {
			return h.progress, err
		}
		p = h.progress
	}
	if j.isTaken(p) {
		p.State, p.Error = Running, ""
	}
	return p, nil
}

// isTaken reports whether a process is about to go on with a redrive that has ended.
func (j *Journal) isTaken(p Progress) bool {
	if !p.Resumable() {
		return false
	}
	busy, _ := held(j.lockFile(p.Redrive.ID))
	return busy
}

// look returns what the file of a redrive says, and whether a process works on it.
func (j *Journal) look(id string) (past, error) {
	h, err := j.history(id)
	if err == nil && h.progress.State == Running {
		if busy, _ := held(j.lockFile(id)); !busy {
			h.progress.State = CutOff
		}
	}
	return h, err
}

func (j *Journal) lockFile(id string) string { return filepath.Join(j.dir, "redrives", id+".lock") }

// past is what the file of a redrive says.
type past struct {
	progress   Progress
	run        run             // the last one
	broker     string          // empty: not known yet
	kept       map[string]bool // letters whose originals were kept before an edit
	sent       map[string]bool // confirmed letters
	gone       map[string]bool // of these: known to have left their place
	open       map[string]bool // tried, and it is not known whether they arrived
	again      map[string]bool // of these: tried once more
	last       map[string]int  // the last number of letters that are alike, if above 1
	doubted    map[string]bool // letters that may be ones that were sent, under another key
	look       []string        // letters of Redrive.Look
	there      int             // letters that the place had when the redrive began
	seen       []string        // digests of letters of there that the redrive has seen
	passed     bool            // a process has passed through all letters of there
	inHand     int             // letters that a process which died may have had in hand
	canaryOver bool            // the canary has passed, or has come back
}

// twice is how many letters were sent that may be there twice.
func (p past) twice() int {
	n := 0
	for key := range p.again {
		if p.sent[key] {
			n++
		}
	}
	return n
}

// undeleted is how many letters were sent that are not known to have left their place.
func (p past) undeleted() int {
	n := 0
	for key := range p.sent {
		if !p.gone[key] {
			n++
		}
	}
	return n
}

// unanswered is how many letters were tried of which it is not known whether they arrived.
func (p past) unanswered() int {
	n := 0
	for key := range p.open {
		if !p.sent[key] {
			n++
		}
	}
	return n
}

func (j *Journal) history(id string) (past, error) {
	h := past{kept: map[string]bool{}, sent: map[string]bool{}, gone: map[string]bool{}, open: map[string]bool{}, again: map[string]bool{}, last: map[string]int{}, doubted: map[string]bool{}}
	if !redriveID.MatchString(id) {
		return h, fmt.Errorf("%w: %.80q", ErrNoRedrive, id)
	}
	var redrive *Redrive
	err := j.lines(j.redriveFile(id), func(line []byte) {
		var e entry
		if json.Unmarshal(line, &e) != nil {
			return
		}
		if e.Redrive != nil && redrive == nil {
			redrive, h.look = e.Redrive, e.Look
			h.run = run{By: redrive.By, Action: string(redrive.Action)}
		}
		if e.Run != nil {
			h.run = *e.Run
			h.progress.State, h.progress.Error, h.progress.Failed, h.progress.Skipped, h.progress.MaybeSent = Running, "", 0, 0, 0
		}
		if e.Broker != "" && !isNamed(h.broker) {
			h.broker = e.Broker
		}
		for _, key := range e.Try {
			if h.open[key] {
				h.again[key] = true
			}
			h.open[key] = true
			if digest, n, several := strings.Cut(key, "."); several {
				number, _ := strconv.Atoi(n) // 0 in a line that somebody has changed
				h.last[digest] = max(h.last[digest], number)
			}
		}
		for _, key := range e.Kept {
			h.kept[key] = true
		}
		for _, key := range e.Sent {
			delete(h.open, key)
			h.sent[key] = true
		}
		if h.inHand = max(h.inHand-len(e.Sent), 0); e.Taking > 0 {
			h.inHand = e.Taking
		}
		for _, key := range e.Gone {
			h.gone[key] = true
		}
		for _, key := range e.Left {
			delete(h.open, key)
		}
		for _, key := range e.Doubted {
			h.doubted[key], h.again[key] = true, true
		}
		h.there, h.seen = cmp.Or(h.there, e.There), append(h.seen, e.Seen...)
		h.canaryOver = h.canaryOver || e.CanaryOver
		if e.Progress != nil {
			if h.progress = *e.Progress; h.progress.Ended() {
				h.inHand = 0
			}
			h.passed = h.passed || h.progress.State == Done
		}
	})
	if err == nil && redrive == nil {
		err = fmt.Errorf("%w: %q", ErrNoRedrive, id)
	}
	if redrive != nil {
		h.progress.Redrive = *redrive
		h.progress.Done, h.progress.MaybeDuplicate = max(h.progress.Done, len(h.sent)), h.twice()
		h.progress.State = cmp.Or(h.progress.State, Running)
	}
	return h, err
}

// Stop stops a redrive, in whichever process it runs, within about a second. A redrive that waits for
// its broker sends nothing any more, and another one no more than the letters that were about to go. A stopped redrive can be resumed.
func (j *Journal) Stop(id string, by By) error {
	p, err := j.Redrive(id)
	if err != nil {
		return err
	}
	noted := j.note(Record{By: by, Action: "stop", Source: p.Redrive.Source, Redrive: id, Result: "asked"})
	if err := os.WriteFile(j.stopFile(id), nil, 0o600); err != nil {
		return errors.Join(noted, fmt.Errorf("desk: the journal: %w", err))
	}
	return noted
}

func (j *Journal) stopFile(id string) string { return filepath.Join(j.dir, "redrives", id+".stop") }

// forgetStop forgets a stop that was asked before somebody began the redrive, or resumes it.
func (j *Journal) forgetStop(id string) error {
	if err := os.Remove(j.stopFile(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	return nil
}

// book is the file of a redrive that this process works on.
type book struct {
	journal *Journal
	redrive Redrive
	release func() error

	mu   sync.Mutex
	file *os.File
	torn bool // a full disk has cut off its last line
	past past
}

// begin writes a redrive down, unless somebody resumes it, and takes it for this process.
func (j *Journal) begin(r Redrive, resumed *By) (*book, error) {
	by := r.By
	if resumed != nil {
		by = *resumed
	}
	return j.take(r, by, func(b *book) error { return b.open(resumed) })
}

// take takes a redrive for this process, and opens its book. Only one process works on a redrive.
func (j *Journal) take(r Redrive, by By, open func(*book) error) (*book, error) {
	if err := j.make(); err != nil {
		return nil, err
	}
	name := j.lockFile(r.ID)
	release, err := lock(name)
	for range 10 { // somebody may have looked whether it is taken
		if !errors.Is(err, errBusy) {
			break
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // a file tells nobody when it is free
		release, err = lock(name)
	}
	switch {
	case errors.Is(err, errBusy):
		return nil, heldBy(r.ID, name, err)
	case err != nil:
		return nil, fmt.Errorf("desk: redrive %s: %w", r.ID, err)
	}
	b := &book{journal: j, redrive: r, release: func() error {
		_ = os.Truncate(name, 0) // so that nobody is told of a holder that is none any more; else he is, until the next one signs
		return release()
	}}
	if err = sign(name, by); err == nil {
		err = open(b)
	} else {
		err = fmt.Errorf("desk: the journal: %w", err)
	}
	if err != nil {
		return nil, errors.Join(err, b.release())
	}
	return b, nil
}

func (b *book) open(resumed *By) error {
	name := filepath.Join(b.journal.dir, b.journal.redriveFile(b.redrive.ID))
	flags := os.O_RDWR | os.O_APPEND
	if resumed == nil {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("desk: redrive %s exists; resume it, or give another id", b.redrive.ID)
	}
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	b.file = f
	if resumed == nil {
		if err := b.journal.forgetStop(b.redrive.ID); err != nil {
			return err
		}
		if err := b.write(entry{Redrive: &b.redrive, Look: b.redrive.letters, Broker: b.redrive.broker}); err != nil {
			return err
		}
		if err := errors.Join(b.journal.sync(f), syncFolder(filepath.Dir(name))); err != nil {
			return fmt.Errorf("desk: the journal: %w", err)
		}
	} else if err := endLine(f); err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	if b.past, err = b.journal.history(b.redrive.ID); err != nil {
		return err
	}
	if resumed != nil {
		if p := b.past.progress; p.Ended() && !p.Resumable() { // another process has gone on with it meanwhile
			return isDone(b.redrive.ID)
		}
		if err := b.goOn(*resumed); err != nil {
			return err
		}
	}
	r := b.past.run.record(b.past.progress)
	r.Result = began
	return b.journal.note(r)
}

// goOn notes who goes on with the redrive. If the process before has died, the audit gets
// the end that it could not write.
func (b *book) goOn(by By) error {
	p := b.past.progress
	if p.State == Running {
		p.State = CutOff
		if err := b.journal.note(b.past.run.record(p)); err != nil {
			return err
		}
	}
	b.past.run = run{By: by, Action: resume, Done: p.Done, MaybeDuplicate: p.MaybeDuplicate, Deleted: p.Deleted}
	return b.write(entry{Run: &b.past.run})
}

// write adds a line. It is in the hands of the operating system when write returns, so
// the end of the process does not lose it. Nor does a power cut lose a line with letters
// that are about to be published, or about to leave their place: or nobody would count those
// that are published again.
func (b *book) write(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if line = append(line, '\n'); b.torn {
		line = append([]byte("\n"), line...)
	}
	n, err := b.file.Write(line)
	b.torn = err != nil && (b.torn || n > 0)
	if err == nil && (e.Try != nil || e.Sent != nil) {
		err = b.journal.sync(b.file)
	}
	if err != nil {
		return fmt.Errorf("desk: the journal: %w", err)
	}
	return nil
}

// stopped reports whether somebody has stopped the redrive.
func (b *book) stopped() bool {
	_, err := os.Stat(b.journal.stopFile(b.redrive.ID))
	return err == nil
}

// watch calls stop when somebody has stopped the redrive. watched is closed after the end of ctx.
func (b *book) watch(ctx context.Context, stop context.CancelCauseFunc) (watched <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause.For(ctx, lookForStop) {
			if b.stopped() {
				stop(errStopped)
			}
		}
	}()
	return done
}

// end notes how the redrive ended, also in the audit.
func (b *book) end(p Progress) error {
	return errors.Join(b.write(entry{Progress: &p}), b.journal.sync(b.file), b.file.Close(), b.journal.note(b.past.run.record(p)), b.release())
}

// brokerOf names the cluster of a server, unless it has no name, and the virtual host.
func brokerOf(conn *connection.Conn, server connection.Server) string {
	vhost := fmt.Sprintf("%s%q", ofVhost, transport.Inside.Conn(conn).Vhost())
	if server.Cluster == "" {
		return vhost
	}
	return fmt.Sprintf("%s%q, %s", ofCluster, server.Cluster, vhost)
}

const ofCluster, ofVhost = "cluster ", "virtual host "

// isNamed reports whether brokerOf names a cluster.
func isNamed(broker string) bool { return strings.HasPrefix(broker, ofCluster) }

// sameBroker compares what brokerOf has returned: the virtual host alone if a cluster has no name.
func sameBroker(a, b string) bool {
	if !isNamed(a) || !isNamed(b) {
		_, a, _ = strings.Cut(a, ofVhost+`"`) // in a name this quote has a backslash
		_, b, _ = strings.Cut(b, ofVhost+`"`)
	}
	return a == b
}

// knownBroker is brokerOf for the broker to which conn has connected last; empty if that has no name, or
// if conn has not connected yet.
func knownBroker(conn *connection.Conn) string {
	if conn == nil || conn.Server().Cluster == "" {
		return ""
	}
	return brokerOf(conn, conn.Server())
}

// isAt notes the broker of a redrive, and refuses one on which no earlier turn of it was: a queue of
// the same name has other letters there.
func (b *book) isAt(ctx context.Context, conn *connection.Conn, broker string) error {
	if err := b.past.refuses(ctx, conn, b.redrive.ID, broker); err != nil || broker == b.past.broker || isNamed(b.past.broker) {
		return err
	}
	b.past.broker = broker
	return b.write(entry{Broker: broker})
}

// refuses returns an error unless a redrive is about a broker, the one to which conn leads.
func (p past) refuses(ctx context.Context, conn *connection.Conn, id, broker string) error {
	if p.broker == "" || sameBroker(p.broker, broker) {
		return nil
	}
	err := fmt.Errorf("desk: redrive %s is about %s, and this is %s: resume it there, or begin another redrive here", id, p.broker, broker)
	if why := nodesOfOne(ctx, conn, p.broker, broker); why == nil {
		return nil
	} else if !errors.Is(why, errOthers) {
		err = fmt.Errorf("%w: nothing says that both are nodes of one cluster: %w", err, why)
		if rehop.ClassOf(why) == rehop.ClassTransient { // the API may say so later
			return err
		}
	}
	return rehop.WithClass(err, rehop.ClassBug)
}

// errOthers is returned for brokers whose virtual hosts differ, or that have names.
var errOthers = errors.New("brokers of different names")

// nodesOfOne returns an error unless both brokers, as brokerOf names them, are nodes of the cluster to which conn leads: a cluster
// that was given no name has another one at each node, see [management.API.IsOf].
func nodesOfOne(ctx context.Context, conn *connection.Conn, a, b string) error {
	clusters := make([]string, 2)
	for i, broker := range []string{a, b} {
		quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(broker, ofCluster))
		if err == nil {
			clusters[i], err = strconv.Unquote(quoted)
		}
		if err != nil || !management.IsNode(clusters[i]) {
			return errOthers
		}
	}
	if strings.TrimPrefix(a, ofCluster+strconv.Quote(clusters[0])) != strings.TrimPrefix(b, ofCluster+strconv.Quote(clusters[1])) {
		return errOthers
	}
	api := transport.Inside.Conn(conn).Management()
	if api == nil {
		return errors.New("connection.Config.ManagementURL is empty")
	}
	return cmp.Or(api.IsOf(ctx, clusters[0]), api.IsOf(ctx, clusters[1]))
}

// reopen takes a redrive of a source for this process, for somebody who resumes it. conn may be nil.
func reopen(ctx context.Context, j *Journal, a About, conn *connection.Conn, id string, by By) (*book, error) {
	p, err := j.Redrive(id)
	switch {
	case err != nil:
		return nil, err
	case p.Redrive.Source != a.Name:
		return nil, rehop.WithClass(fmt.Errorf("desk: redrive %s is for %s, not for %s", id, p.Redrive.Source, a.Name), rehop.ClassBug)
	case !by.MaybeSent.valid():
		return nil, rehop.WithClass(fmt.Errorf("desk: By.MaybeSent is %.40q, want again or delete, or nothing", by.MaybeSent), rehop.ClassBug)
	case p.Ended() && !p.Resumable():
		return nil, isDone(id)
	}
	return j.take(p.Redrive, by, func(b *book) error {
		if err := j.forgetStop(id); err != nil { // before this process waits for the broker: somebody may stop it then
			return err
		}
		past, err := j.history(id)
		if err == nil && past.broker != "" && conn != nil {
			err = past.refusesConn(ctx, id, conn)
		}
		if err != nil {
			return err
		}
		return b.open(&by)
	})
}

// refusesConn is refuses for the broker to which conn leads.
func (p past) refusesConn(ctx context.Context, id string, conn *connection.Conn) error {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return fmt.Errorf("desk: %w", err)
	}
	defer session.Close() // nothing was done in it
	return p.refuses(ctx, conn, id, brokerOf(conn, session.Server()))
}

func isDone(id string) error {
	return rehop.WithClass(fmt.Errorf("desk: redrive %s is done", id), rehop.ClassBug)
}
