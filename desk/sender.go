package desk

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/foreign"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// sendTimeout is how long a message may take to be confirmed.
const sendTimeout = 30 * time.Second

// errNoTarget says that nothing on a letter says where it is sent back to.
var errNoTarget = errors.New("its headers do not say which queue failed: name a target")

// hasNoTarget reports whether an error says that a letter is left until somebody names a target.
func hasNoTarget(err error) bool {
	var doubt *resend.DoubtError
	return errors.Is(err, errNoTarget) || errors.As(err, &doubt)
}

// untargeted says why n letters were left until somebody names a target. err is that of the first one.
func untargeted(n int, err error) string {
	switch n {
	case 0:
		return ""
	case 1:
		return err.Error()
	}
	return fmt.Sprintf("%s were left for want of a target; of the first one: %v", count(n, "letter"), err)
}

// unsendableError is why a letter cannot be sent to any target.
type unsendableError struct{ error }

func (e *unsendableError) Unwrap() error { return e.error }

// isUnsendable reports whether an error is about a letter, and its target was not asked.
func isUnsendable(err error) bool {
	var e *unsendableError
	return errors.As(err, &e)
}

// unreadable returns why a letter can neither be sent nor kept elsewhere, nil if it can.
// Package connection has put its note in place of all headers.
func (l Letter) unreadable() error {
	why, is := header.Text(l.Publishing.Headers[header.Unreadable])
	if !is || len(l.Publishing.Headers) != 1 {
		return nil
	}
	return &unsendableError{fmt.Errorf("the client library cannot read its headers (%s), so they would be lost: move it on the broker, with a shovel or the management page", why)}
}

// target returns where a letter goes; the zero Address if that is not known.
func (r Redrive) target(l Letter) (to topology.Address) {
	if r.To != nil {
		return *r.To
	}
	to, _ = l.Target()
	return to
}

// resend returns the message that is sent for a letter, and where to.
func (r Redrive) resend(l Letter, user string) (topology.Address, amqp.Publishing, error) {
	if err := l.unreadable(); err != nil {
		return topology.Address{}, amqp.Publishing{}, err
	}
	if r.Action == Move {
		p := l.Publishing
		p.Headers, _ = header.Clone(p.Headers).(amqp.Table)
		header.Relay(&p, user)
		return *r.To, p, nil
	}
	m := l.message()
	r.Edit.apply(&m)
	to, known := l.Target()
	if r.To != nil {
		to, known = *r.To, true
	}
	switch {
	case !known && l.Doubt != "":
		return to, amqp.Publishing{}, &resend.DoubtError{Doubt: l.Doubt}
	case !known:
		return to, amqp.Publishing{}, errNoTarget
	}
	p := published(m, l, to, r.ID)
	header.Relay(&p, user)
	if err := header.Check(p); err != nil {
		return to, p, &unsendableError{err}
	}
	return to, p, nil
}

// published returns the publishing of a message that is sent back by a redrive. It is
// at the beginning of its life, but for the headers that say where it was first
// published to, how often it was sent back, and by which redrive.
func published(m producer.Message, l Letter, to topology.Address, redrive string) amqp.Publishing {
	p := amqp.Publishing{
		Headers: foreign.Strip(header.Strip(m.Headers), foreign.Framework(l.Framework)), ContentType: m.ContentType, ContentEncoding: m.ContentEncoding,
		DeliveryMode: amqp.Persistent, Priority: m.Priority, CorrelationId: m.CorrelationID, ReplyTo: m.ReplyTo,
		MessageId: m.ID, Timestamp: m.Timestamp, Type: m.Type, UserId: m.UserID, AppId: m.AppID, Body: m.Body,
	}
	if sender := header.Sender(m.Headers, m.UserID); sender != "" {
		p.Headers[header.UserID] = sender
	}
	if m.Expiration > 0 { // a person wants it handled, however many are before it
		p.Headers[header.Expiration] = fmt.Sprint(m.Expiration.Milliseconds())
	}
	if m.Priority > 0 {
		p.Headers[header.Priority] = int64(m.Priority)
	}
	if m.Replays > 0 {
		p.Headers[header.Replays] = min(int64(m.Replays), header.MaxCount)
	}
	if m.OrderKey != "" {
		p.Headers[header.OrderKey] = m.OrderKey
	}
	if l.hasOrigin && (topology.Address{Exchange: m.Exchange, RoutingKey: m.RoutingKey}) != to {
		p.Headers[header.Exchange], p.Headers[header.RoutingKey] = m.Exchange, m.RoutingKey
	}
	p.Headers[header.Redrives] = min(int64(l.Redrives)+1, header.MaxCount)
	p.Headers[header.RedriveID] = redrive
	return p
}

// transfer is a letter on its way.
type transfer struct {
	letter   Letter
	key      string // in the journal
	identity string // under which the redrive counts it and its duplicates
	tag      uint64
	err      error // nil: it is in its next place
	tries    int   // that had no answer
	again    bool  // key is that of a letter that was sent, of which a person says that it is another one
	twice    bool  // it may be there twice
}

// destination is the next place of transfers. deliver calls arrived once for each, also
// before deliver returns, and never more than are under way.
type destination interface {
	deliver(ctx context.Context, transfers []*transfer)
	close() error
}

// publishing publishes transfers.
type publishing struct {
	redrive   Redrive
	user      string
	publisher *confirm.Publisher
	arrived   func(*transfer)
}

func (c *publishing) deliver(ctx context.Context, transfers []*transfer) {
	var messages []*confirm.Message
	for _, one := range transfers {
		to, p, err := c.redrive.resend(one.letter, c.user)
		if err != nil {
			one.err = err
			c.arrived(one)
			continue
		}
		messages = append(messages, &confirm.Message{
			Exchange: to.Exchange, RoutingKey: to.RoutingKey, Publishing: p, Owner: one, Report: c,
			Timeout: sendTimeout, Header: header.Size(p), Headroom: c.redrive.Action == Send,
		})
	}
	c.publisher.Send(ctx, messages...)
}

// Answered is that of confirm.Reporter.
func (c *publishing) Answered(messages []*confirm.Message) {
	for _, m := range messages {
		one := m.Owner.(*transfer)
		one.err, one.twice = m.Err, one.twice || m.Repeated
		c.arrived(one)
	}
}

func (c *publishing) close() error { return c.publisher.Close() }

// copying writes transfers to a file.
type copying struct {
	from    string
	arrived func(*transfer)

	mu   sync.Mutex
	file *os.File
}

func newCopying(name, from string, arrived func(*transfer)) (*copying, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		if err = syncFolder(filepath.Dir(name)); err != nil { // the file may be new
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, rehop.WithClass(fmt.Errorf("desk: Redrive.CopyTo: %w", err), rehop.ClassConfiguration)
	}
	return &copying{from: from, arrived: arrived, file: f}, nil
}

func (c *copying) deliver(_ context.Context, transfers []*transfer) {
	_ = c.write(transfers) // each has its error
	for _, one := range transfers {
		c.arrived(one)
	}
}

// write appends transfers to the file, and gives each that is not there an error. It returns that of the file, which may have
// taken some of them, such as a full disk.
func (c *copying) write(transfers []*transfer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var text []byte
	ends := make([]int, len(transfers)) // of their lines
	for i, one := range transfers {
		line, err := marshalLetter(one.letter, c.from)
		if one.err = err; err != nil { // not that of an earlier try
			continue
		}
		text = append(append(text, line...), '\n')
		ends[i] = len(text)
	}
	whole := 0
	err := endLine(c.file)
	if err == nil {
		whole, err = c.file.Write(text)
	}
	if synced := c.file.Sync(); synced != nil {
		whole, err = 0, cmp.Or(err, synced)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("desk: Redrive.CopyTo: %w", err)
	for i, one := range transfers {
		if one.err == nil && ends[i] > whole {
			one.err = err
		}
	}
	return err
}

// digests counts the letters of the file by their digests.
func (c *copying) digests() (map[string]int, error) {
	found := map[string]int{}
	for r := bufio.NewReaderSize(io.NewSectionReader(c.file, 0, math.MaxInt64), 1<<16); ; {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return found, nil // a line that was cut off is none
		}
		if err != nil {
			return nil, fmt.Errorf("desk: Redrive.CopyTo: %w", err)
		}
		var in line
		p, err := unmarshalLetter(text)
		if err != nil || json.Unmarshal(text, &in) != nil {
			continue
		}
		key, err := letter.Unarmour(in.RoutingKey)
		if err == nil {
			found[Letter{Queue: in.Queue, Exchange: in.Exchange, RoutingKey: key, Publishing: p}.digest()]++
		}
	}
}

func (c *copying) close() error { return c.file.Close() }
