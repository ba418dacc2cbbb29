package wire

import (
	"encoding/binary"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Flags of the properties that are set.
const (
	FlagContentType     = 1 << 15
	FlagContentEncoding = 1 << 14
	FlagHeaders         = 1 << 13
	FlagDeliveryMode    = 1 << 12
	FlagPriority        = 1 << 11
	FlagCorrelationID   = 1 << 10
	FlagReplyTo         = 1 << 9
	FlagExpiration      = 1 << 8
	FlagMessageID       = 1 << 7
	FlagTimestamp       = 1 << 6
	FlagType            = 1 << 5
	FlagUserID          = 1 << 4
	FlagAppID           = 1 << 3
	FlagClusterID       = 1 << 2
)

// Properties of a message. A field counts only where its flag is set: an empty
// property and none are not the same.
type Properties struct {
	Flags           uint16
	ContentType     string
	ContentEncoding string
	Headers         amqp.Table
	DeliveryMode    uint8
	Priority        uint8
	CorrelationID   string
	ReplyTo         string
	Expiration      string
	MessageID       string
	Timestamp       time.Time
	Type            string
	UserID          string
	AppID           string
	ClusterID       string
}

// Has tells whether the property is set.
func (p *Properties) Has(flag uint16) bool { return p.Flags&flag != 0 }

func (p *Properties) decode(r *reader) {
	p.Flags = r.u16()
	for more := p.Flags; more&1 != 0 && r.err == nil; {
		more = r.u16()
		p.Flags &^= 1
	}
	text := func(flag uint16, to *string) {
		if p.Has(flag) {
			*to = r.short()
		}
	}
	text(FlagContentType, &p.ContentType)
	text(FlagContentEncoding, &p.ContentEncoding)
	if p.Has(FlagHeaders) {
		p.Headers = r.table()
	}
	if p.Has(FlagDeliveryMode) {
		p.DeliveryMode = r.u8()
	}
	if p.Has(FlagPriority) {
		p.Priority = r.u8()
	}
	text(FlagCorrelationID, &p.CorrelationID)
	text(FlagReplyTo, &p.ReplyTo)
	text(FlagExpiration, &p.Expiration)
	text(FlagMessageID, &p.MessageID)
	if p.Has(FlagTimestamp) {
		p.Timestamp = time.Unix(int64(r.u64()), 0)
	}
	text(FlagType, &p.Type)
	text(FlagUserID, &p.UserID)
	text(FlagAppID, &p.AppID)
	text(FlagClusterID, &p.ClusterID)
}

func (p *Properties) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, p.Flags)
	text := func(flag uint16, s string) {
		if p.Has(flag) {
			b = appendShort(b, s)
		}
	}
	text(FlagContentType, p.ContentType)
	text(FlagContentEncoding, p.ContentEncoding)
	if p.Has(FlagHeaders) {
		b = AppendTable(b, p.Headers)
	}
	if p.Has(FlagDeliveryMode) {
		b = append(b, p.DeliveryMode)
	}
	if p.Has(FlagPriority) {
		b = append(b, p.Priority)
	}
	text(FlagCorrelationID, p.CorrelationID)
	text(FlagReplyTo, p.ReplyTo)
	text(FlagExpiration, p.Expiration)
	text(FlagMessageID, p.MessageID)
	if p.Has(FlagTimestamp) {
		b = binary.BigEndian.AppendUint64(b, uint64(p.Timestamp.Unix()))
	}
	text(FlagType, p.Type)
	text(FlagUserID, p.UserID)
	text(FlagAppID, p.AppID)
	text(FlagClusterID, p.ClusterID)
	return b
}
