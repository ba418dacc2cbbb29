package rehoptest

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest/internal/model"
	"github.com/rehop/rehop/rehoptest/internal/wire"
)

func messages(list []*model.Message) []Message {
	var all []Message
	for _, m := range list {
		all = append(all, Message{publishing(&m.Properties, m.Body), m.Exchange, m.Key()})
	}
	return all
}

func publishing(p *wire.Properties, body []byte) amqp.Publishing {
	return amqp.Publishing{
		Headers: p.Headers, ContentType: p.ContentType, ContentEncoding: p.ContentEncoding,
		DeliveryMode: p.DeliveryMode, Priority: p.Priority, CorrelationId: p.CorrelationID, ReplyTo: p.ReplyTo,
		Expiration: p.Expiration, MessageId: p.MessageID, Timestamp: p.Timestamp, Type: p.Type, UserId: p.UserID,
		AppId: p.AppID, Body: body,
	}
}

// properties are the properties of a publishing, with empty ones left out, as the client
// library does.
func properties(p *amqp.Publishing) wire.Properties {
	w := wire.Properties{
		Headers: p.Headers, ContentType: p.ContentType, ContentEncoding: p.ContentEncoding,
		DeliveryMode: p.DeliveryMode, Priority: p.Priority, CorrelationID: p.CorrelationId, ReplyTo: p.ReplyTo,
		Expiration: p.Expiration, MessageID: p.MessageId, Timestamp: p.Timestamp, Type: p.Type, UserID: p.UserId,
		AppID: p.AppId,
	}
	for _, f := range []struct {
		flag uint16
		set  bool
	}{
		{wire.FlagHeaders, len(p.Headers) > 0},
		{wire.FlagContentType, p.ContentType != ""},
		{wire.FlagContentEncoding, p.ContentEncoding != ""},
		{wire.FlagDeliveryMode, p.DeliveryMode > 0},
		{wire.FlagPriority, p.Priority > 0},
		{wire.FlagCorrelationID, p.CorrelationId != ""},
		{wire.FlagReplyTo, p.ReplyTo != ""},
		{wire.FlagExpiration, p.Expiration != ""},
		{wire.FlagMessageID, p.MessageId != ""},
		{wire.FlagTimestamp, !p.Timestamp.IsZero()},
		{wire.FlagType, p.Type != ""},
		{wire.FlagUserID, p.UserId != ""},
		{wire.FlagAppID, p.AppId != ""},
	} {
		if f.set {
			w.Flags |= f.flag
		}
	}
	return w
}
