package compat

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// message is a message in a queue, as its file has it. Values of headers are texts that
// begin with their AMQP type.
type message struct {
	Queue           string
	Exchange        string
	RoutingKey      string
	ID              string
	Type            string `json:",omitzero"`
	ContentType     string `json:",omitzero"`
	ContentEncoding string `json:",omitzero"`
	CorrelationID   string `json:",omitzero"`
	ReplyTo         string `json:",omitzero"`
	AppID           string `json:",omitzero"`
	UserID          string `json:",omitzero"`
	Expiration      string `json:",omitzero"`
	DeliveryMode    uint8
	Priority        uint8     `json:",omitzero"`
	Timestamp       time.Time `json:",omitzero"`
	Headers         map[string]any
	Body            string
}

func encode(queue string, m rehoptest.Message) message {
	return message{
		Queue: queue, Exchange: m.Exchange, RoutingKey: m.RoutingKey, ID: m.MessageId, Type: m.Type, ContentType: m.ContentType,
		ContentEncoding: m.ContentEncoding, CorrelationID: m.CorrelationId, ReplyTo: m.ReplyTo, AppID: m.AppId, UserID: m.UserId,
		Expiration: m.Expiration, DeliveryMode: m.DeliveryMode, Priority: m.Priority, Timestamp: m.Timestamp.UTC(),
		Headers: encodeValue(m.Headers).(map[string]any), Body: string(m.Body),
	}
}

// publishing is the message again.
func (m message) publishing() (amqp.Publishing, error) {
	headers, err := decodeValue(m.Headers)
	if err != nil {
		return amqp.Publishing{}, err
	}
	return amqp.Publishing{
		MessageId: m.ID, Type: m.Type, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, CorrelationId: m.CorrelationID,
		ReplyTo: m.ReplyTo, AppId: m.AppID, UserId: m.UserID, Expiration: m.Expiration, DeliveryMode: m.DeliveryMode, Priority: m.Priority,
		Timestamp: m.Timestamp, Headers: headers.(amqp.Table), Body: []byte(m.Body),
	}, nil
}

func encodeValue(v any) any {
	switch v := v.(type) {
	case nil:
		return "nil"
	case amqp.Table:
		table := map[string]any{}
		for name, value := range v {
			table[name] = encodeValue(value)
		}
		return table
	case []any:
		list := make([]any, len(v))
		for i, value := range v {
			list[i] = encodeValue(value)
		}
		return list
	case time.Time:
		return "time " + v.UTC().Format(time.RFC3339)
	case []byte:
		return "bytes " + base64.StdEncoding.EncodeToString(v)
	}
	return fmt.Sprintf("%T %v", v, v)
}

func decodeValue(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		table := amqp.Table{}
		for name, value := range v {
			decoded, err := decodeValue(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			table[name] = decoded
		}
		return table, nil
	case []any:
		list := make([]any, len(v))
		for i, value := range v {
			var err error
			if list[i], err = decodeValue(value); err != nil {
				return nil, err
			}
		}
		return list, nil
	case string:
		kind, text, _ := strings.Cut(v, " ")
		switch kind {
		case "nil":
			return nil, nil
		case "string":
			return text, nil
		case "bool":
			return strconv.ParseBool(text)
		case "int64":
			return strconv.ParseInt(text, 10, 64)
		case "int32":
			n, err := strconv.ParseInt(text, 10, 32)
			return int32(n), err
		case "time":
			return time.Parse(time.RFC3339, text)
		case "bytes":
			return base64.StdEncoding.DecodeString(text)
		}
	}
	return nil, fmt.Errorf("%v has no known type", v)
}

func (m message) String() string {
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err.Error()
	}
	return string(text) + "\n"
}
