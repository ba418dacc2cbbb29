package desk

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/transport"
)

// ImportOptions are for Import.
type ImportOptions struct {
	Queue string // that the letters go to
	From  int    // the line to begin with, from 1: for a file that was imported in part
	File  string // the name of what is read, for the audit; may be empty
	Again bool   // allows letters that the queue has had by an earlier import
	By    By
}

// ErrImported is wrapped by the error of an [Import] that has not begun: the audit has an import of
// the same content into the same queue.
var ErrImported = errors.New("has had these letters")

// Imported says how far [Import] has come.
type Imported struct {
	Letters int // that the queue has confirmed

	// Next is the first line that the queue has not confirmed: ImportOptions.From of an
	// Import that goes on.
	Next int

	// Ahead counts the letters of Next and the lines behind it that the queue has
	// confirmed, or may have. An Import that goes on publishes them once more.
	Ahead int

	// MaybeDuplicate counts the letters of Letters that may be in the queue twice,
	// because their connection ended before their confirm.
	MaybeDuplicate int
}

// maxLine bounds a line of a file: a body of 128 MiB in base64, with headers.
const maxLine = 192 << 20

// importBatch is how many letters are published together, and importBytes how large
// they may be. A process that dies leaves no more than one batch in doubt.
const (
	importBatch = 256
	importBytes = 8 << 20
)

// Import publishes letters that Export has written to a queue, each with every property
// and header that it had, in the order of the lines, confirmed. It ends at the first
// line that is at fault or that the broker does not take, and its error names the line.
// If the process is killed, the audit says how far the Import had come. A user-id of
// another user becomes the header x-rehop-user-id, because the broker would refuse it.
//
// An r that is an [io.Seeker] is read twice. If the audit has an import of the same content into the
// queue, Import publishes nothing and returns [ErrImported], unless o.Again is set, or o.From goes on with
// one that ended early. What comes from a pipe is known when all of it is read, and is not refused.
func Import(ctx context.Context, conn *connection.Conn, r io.Reader, journal *Journal, o ImportOptions) (done Imported, err error) {
	var errs []error
	if o.Queue == "" {
		errs = append(errs, errors.New("desk: ImportOptions.Queue is empty, want the name of a queue"))
	}
	if o.From < 0 {
		errs = append(errs, fmt.Errorf("desk: ImportOptions.From is %d, want a line from 1, or 0 for the first", o.From))
	}
	if err := errors.Join(errs...); err != nil {
		return done, rehop.WithClass(err, rehop.ClassBug)
	}
	record := Record{By: o.By, Action: "import", Source: "queue " + o.Queue, File: o.File}
	if record.SHA256, err = sumOf(r); err != nil {
		return done, fmt.Errorf("desk: %w", err)
	}
	if record.SHA256 != "" && !o.Again {
		if err := journal.refuseImported(record, o); err != nil {
			return done, err
		}
	}
	done.Next = max(o.From, 1)
	user, err := userOf(ctx, conn)
	if err != nil {
		return done, err
	}
	record.Which = record.imported(o)
	a, err := journal.undertake(record)
	if err != nil {
		return done, err
	}
	sum := sha256.New()
	if record.SHA256 == "" {
		r = io.TeeReader(r, sum)
	}
	publisher := confirm.New(conn, confirm.Limits{Messages: importBatch})
	i := &importing{act: a, done: &done, publisher: publisher}
	err = errors.Join(i.all(ctx, r, o, user), publisher.Close())
	switch {
	case err != nil && done.Ahead > 0:
		err = fmt.Errorf("%w (the queue may have %s from there on)", err, count(done.Ahead, "letter"))
	case done.MaybeDuplicate > 0:
		a.note = fmt.Sprintf("%s perhaps twice", count(done.MaybeDuplicate, "letter"))
	}
	if record.SHA256 == "" && err == nil { // all of it was read
		a.line.SHA256 = hex.EncodeToString(sum.Sum(nil))
		a.line.Which = a.line.imported(o)
	}
	return done, a.end(done.Letters, err)
}

// sumOf returns the sum of what r has still to read, and goes back to where it was; empty if r cannot go back.
func sumOf(r io.Reader) (string, error) {
	s, can := r.(io.Seeker)
	if !can {
		return "", nil
	}
	at, err := s.Seek(0, io.SeekCurrent)
	if err != nil {
		return "", nil //nolint:nilerr // a pipe is a file, too
	}
	sum := sha256.New()
	if _, err = io.Copy(sum, r); err == nil {
		_, err = s.Seek(at, io.SeekStart)
	}
	return hex.EncodeToString(sum.Sum(nil)), err
}

// imported says for people which letters an import is about.
func (r Record) imported(o ImportOptions) string {
	var parts []string
	if r.File != "" {
		parts = append(parts, "file="+strconv.Quote(r.File))
	}
	if r.SHA256 != "" {
		parts = append(parts, "sha256="+r.SHA256[:12])
	}
	if o.From > 1 {
		parts = append(parts, fmt.Sprintf("lines from %d", o.From))
	}
	return strings.Join(parts, " ")
}

// refuseImported returns ErrImported if the audit has an import like the one of r, and no line is named that goes on
// with it.
func (j *Journal) refuseImported(r Record, o ImportOptions) error {
	var before *Record
	_, err := j.records(true, func(was Record) bool {
		if was.Action == r.Action && was.Source == r.Source && was.SHA256 == r.SHA256 && (was.Count > 0 || was.Unfinished) {
			before = &was
		}
		return before == nil
	})
	if err != nil || before == nil {
		return err
	}
	isDone := !before.Unfinished && strings.HasPrefix(before.Result, result(nil))
	if o.From > 1 && !isDone {
		return nil
	}
	text := fmt.Sprintf("%s at %s by %s", count(before.Count, "letter"), before.At.UTC().Format(time.DateTime+" UTC"), cmp.Or(before.By.Who, "somebody"))
	if before.File != "" {
		text += ", from " + before.File
	}
	return fmt.Errorf("desk: queue %s %w: %s (%s)", o.Queue, ErrImported, text, strings.TrimPrefix(before.Result, "desk: "))
}

// importing is an import that is under way.
type importing struct {
	act       *act
	done      *Imported
	publisher *confirm.Publisher
	batch     []*confirm.Message
	size      int // of its bodies
}

func (i *importing) all(ctx context.Context, r io.Reader, o ImportOptions, user string) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number := 0
	for lines.Scan() {
		number++
		text := bytes.TrimSpace(lines.Bytes())
		if number < o.From || len(text) == 0 {
			continue
		}
		p, err := unmarshalLetter(text)
		if err != nil {
			if failed := i.flush(ctx); failed != nil {
				return failed
			}
			i.done.Next = number
			if isCutOff(text) {
				i.done.Next++
				err = errors.New("it was cut off with the process that wrote it, which had not dropped its letter: go on behind it")
			}
			return fmt.Errorf("desk: line %d: %w", number, err)
		}
		header.Relay(&p, user)
		i.batch = append(i.batch, &confirm.Message{RoutingKey: o.Queue, Publishing: p, Number: number, Timeout: sendTimeout, Header: header.Size(p)})
		if i.size += len(p.Body); len(i.batch) == importBatch || i.size >= importBytes {
			if err := i.flush(ctx); err != nil {
				return err
			}
		}
	}
	if err := i.flush(ctx); err != nil {
		return err
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("desk: line %d: %w", number+1, err)
	}
	return nil
}

// isCutOff reports whether a line is the beginning of one that marshalLetter returns.
func isCutOff(text []byte) bool {
	var syntax *json.SyntaxError
	err := json.Unmarshal(text, new(any))
	return bytes.HasPrefix(text, []byte(`{"from":`)) && errors.As(err, &syntax) && syntax.Offset == int64(len(text))
}

// flush publishes the batch and waits for its answers.
func (i *importing) flush(ctx context.Context) error {
	i.publisher.Send(ctx, i.batch...)
	var failed error
	for _, m := range i.batch {
		err := m.Wait(ctx)
		if err == nil {
			i.done.Letters++
			if m.Repeated {
				i.done.MaybeDuplicate++
			}
		}
		switch {
		case failed != nil && (err == nil || errors.Is(err, confirm.ErrUnconfirmed)):
			i.done.Ahead++
		case failed != nil:
		case err == nil:
			i.done.Next = m.Number + 1
		default:
			failed = fmt.Errorf("desk: line %d: %w", m.Number, err)
			if i.done.Next = m.Number; errors.Is(err, confirm.ErrUnconfirmed) {
				i.done.Ahead++
			}
		}
	}
	i.batch, i.size = nil, 0
	return errors.Join(failed, i.act.write(actProgress{Count: i.done.Letters, Line: i.done.Next - 1}))
}

// userOf is the user of a connection.
func userOf(ctx context.Context, conn *connection.Conn) (string, error) {
	user, _, err := loginOf(ctx, conn)
	return user, err
}

// loginOf is userOf, with what brokerOf returns.
func loginOf(ctx context.Context, conn *connection.Conn) (user, broker string, err error) {
	session, err := conn.Session(ctx, connection.Publish)
	if err != nil {
		return "", "", fmt.Errorf("desk: %w", err)
	}
	defer session.Close()
	return transport.Inside.Session(session).User(), brokerOf(conn, session.Server()), nil
}
