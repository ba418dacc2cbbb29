package desk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/transport"
)

// line is a letter as a line of JSON. Its message gives back every property and header
// with its type. The other fields were read from the headers, for people and programs
// to look at, and are not read back.
type line struct {
	From string `json:"from,omitzero"`

	Queue      string    `json:"queue,omitzero"`
	Cause      string    `json:"cause,omitzero"`
	Error      string    `json:"error,omitzero"`
	Attempts   int       `json:"attempts,omitzero"`
	Failed     time.Time `json:"failed,omitzero"`
	Exchange   string    `json:"exchange,omitzero"`
	RoutingKey string    `json:"routing_key,omitzero"`

	Properties map[string]any  `json:"properties,omitzero"`
	Headers    json.RawMessage `json:"headers,omitzero"`
	Body       string          `json:"body,omitzero"`
	Base64     []byte          `json:"body_base64,omitzero"` // a body that is not UTF-8
}

// texts are the properties that are texts, by their names in AMQP.
func texts(p *amqp.Publishing) map[string]*string {
	return map[string]*string{
		"content_type": &p.ContentType, "content_encoding": &p.ContentEncoding, "correlation_id": &p.CorrelationId,
		"reply_to": &p.ReplyTo, "expiration": &p.Expiration, "message_id": &p.MessageId, "type": &p.Type,
		"user_id": &p.UserId, "app_id": &p.AppId,
	}
}

// MarshalLetter returns a letter as a line of JSON, without the end of the line.
func marshalLetter(l Letter, from string) ([]byte, error) {
	p := l.Publishing
	out := line{
		From: from, Queue: l.Queue, Cause: string(l.Cause), Error: strings.ToValidUTF8(l.Error, "\uFFFD"), Attempts: l.Attempts,
		Failed: l.Failed, Exchange: l.Exchange, RoutingKey: letter.Armour(l.RoutingKey), Properties: map[string]any{},
	}
	for name, value := range texts(&p) {
		if *value != "" {
			out.Properties[name] = letter.Armour(*value)
		}
	}
	if p.DeliveryMode != 0 {
		out.Properties["delivery_mode"] = p.DeliveryMode
	}
	if p.Priority != 0 {
		out.Properties["priority"] = p.Priority
	}
	if !p.Timestamp.IsZero() {
		out.Properties["timestamp"] = p.Timestamp.UTC()
	}
	headers, err := letter.EncodeTable(p.Headers)
	if err != nil {
		return nil, fmt.Errorf("desk: message %q: headers: %w", p.MessageId, err)
	}
	if headers != "" {
		out.Headers = json.RawMessage(headers)
	}
	if utf8.Valid(p.Body) && !bytes.ContainsRune(p.Body, utf8.RuneError) {
		out.Body = string(p.Body)
	} else {
		out.Base64 = p.Body
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(out); err != nil {
		return nil, fmt.Errorf("desk: message %q: %w", p.MessageId, err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// unmarshalLetter is the inverse of marshalLetter.
func unmarshalLetter(text []byte) (p amqp.Publishing, err error) {
	var in line
	if err := json.Unmarshal(text, &in); err != nil {
		return p, err
	}
	known := texts(&p)
	for name, value := range in.Properties {
		number, isNumber := value.(float64)
		s, isText := value.(string)
		switch {
		case isText && known[name] != nil:
			if *known[name], err = letter.Unarmour(s); err != nil {
				return p, fmt.Errorf("property %q: %w", name, err)
			}
		case isText && name == "timestamp":
			if p.Timestamp, err = time.Parse(time.RFC3339Nano, s); err != nil {
				return p, fmt.Errorf("property %q: %w", name, err)
			}
		case isNumber && name == "delivery_mode" && number >= 0 && number <= 255:
			p.DeliveryMode = uint8(number)
		case isNumber && name == "priority" && number >= 0 && number <= 255:
			p.Priority = uint8(number)
		default:
			return p, fmt.Errorf("property %q is unknown, or its value is", name)
		}
	}
	if len(in.Headers) > 0 {
		if p.Headers, err = letter.DecodeTable(string(in.Headers)); err != nil {
			return p, fmt.Errorf("headers: %w", err)
		}
	}
	switch {
	case in.Body != "" && in.Base64 != nil:
		return p, errors.New("body and body_base64 exclude each other")
	case in.Base64 != nil:
		p.Body = in.Base64
	default:
		p.Body = []byte(in.Body)
	}
	return p, nil
}

// ImportError says which line of a file was not imported. All lines before it were
// imported.
type ImportError struct {
	Line int // from 1
	Err  error
}

func (e *ImportError) Error() string { return fmt.Sprintf("desk: line %d: %v", e.Line, e.Err) }

// Unwrap returns why.
func (e *ImportError) Unwrap() error { return e.Err }

// ImportOptions are for Import.
type ImportOptions struct {
	Queue string // that the letters go to
	From  int    // the line to begin with, from 1: for a file that was imported in part
	By    By
}

// maxLine bounds a line of a file: a body of 128 MiB in base64, with headers.
const maxLine = 192 << 20

// importBatch is how many letters are published together, and importBytes how large
// they may be.
const (
	importBatch = 256
	importBytes = 8 << 20
)

// Import publishes letters that Export has written to a queue, each with every property
// and header that it had, in the order of the lines, confirmed. It returns how many it
// has published, also with an error; ImportOptions.From goes on behind them. If a line
// is at fault, the error is an [*ImportError]. A user-id of another user becomes the
// header x-rehop-user-id, because the broker would refuse it.
func Import(ctx context.Context, conn *connection.Conn, r io.Reader, journal *Journal, o ImportOptions, progress func(int)) (n int, err error) {
	if o.Queue == "" || o.From < 0 {
		return 0, connection.WithClass(fmt.Errorf("desk: ImportOptions: Queue is %q and From %d, want a queue, and a line from 1", o.Queue, o.From), connection.Bug)
	}
	user, err := userOf(ctx, conn)
	if err != nil {
		return 0, err
	}
	publisher := confirm.New(conn, confirm.Limits{Messages: importBatch})
	defer publisher.Close()
	defer func() {
		err = errors.Join(err, journal.note(Record{By: o.By, Action: "import", Source: "queue " + o.Queue, Count: n, Result: result(err)}))
	}()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var batch []*confirm.Message
	size, number := 0, 0
	flush := func() error { // errors.Join leaves out its nil
		publisher.Send(ctx, batch...)
		var failed error
		for _, m := range batch {
			if err := m.Wait(ctx); err != nil && failed == nil {
				failed = &ImportError{m.Number, err}
			} else if failed == nil {
				n++
			}
		}
		batch, size = nil, 0
		if progress != nil {
			progress(n)
		}
		return failed
	}
	for lines.Scan() {
		number++
		text := bytes.TrimSpace(lines.Bytes())
		if number < o.From || len(text) == 0 {
			continue
		}
		p, err := unmarshalLetter(text)
		if err != nil {
			return n, errors.Join(flush(), &ImportError{number, err})
		}
		keepUser(&p, user)
		batch = append(batch, &confirm.Message{RoutingKey: o.Queue, Publishing: p, Number: number, Timeout: sendTimeout, Header: header.Size(p)})
		if size += len(p.Body); len(batch) == importBatch || size >= importBytes {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return n, errors.Join(flush(), &ImportError{number + 1, err})
	}
	return n, flush()
}

// userOf is the user of a connection.
func userOf(ctx context.Context, conn *connection.Conn) (string, error) {
	session, err := conn.Session(ctx, connection.Publish)
	if err != nil {
		return "", fmt.Errorf("desk: %w", err)
	}
	defer session.Close()
	return transport.Inside.Session(session).User(), nil
}
