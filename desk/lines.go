package desk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/letter"
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

// marshalLetter returns a letter as a line of JSON, without the end of the line.
func marshalLetter(l Letter, from string) ([]byte, error) {
	p := l.Publishing
	if err := l.unreadable(); err != nil {
		return nil, fmt.Errorf("desk: message %q: %w", p.MessageId, err)
	}
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
		out.Properties["timestamp"] = json.RawMessage(letter.TimeJSON(p.Timestamp))
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
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	d.UseNumber() // a timestamp may have more digits than a float64
	if err := d.Decode(&in); err != nil {
		return p, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return p, errors.New("more than one JSON value")
	}
	known := texts(&p)
	for name, value := range in.Properties {
		number, isNumber := byteOf(value)
		s, isText := value.(string)
		switch {
		case isText && known[name] != nil:
			if *known[name], err = letter.Unarmour(s); err != nil {
				return p, fmt.Errorf("property %q: %w", name, err)
			}
		case name == "timestamp":
			if p.Timestamp, err = letter.ReadTime(value); err != nil {
				return p, fmt.Errorf("property %q: %w", name, err)
			}
		case isNumber && name == "delivery_mode":
			p.DeliveryMode = number
		case isNumber && name == "priority":
			p.Priority = number
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

// byteOf returns a number that is a property of one byte.
func byteOf(v any) (uint8, bool) {
	number, _ := v.(json.Number)
	n, err := strconv.ParseUint(number.String(), 10, 8)
	return uint8(n), err == nil
}
