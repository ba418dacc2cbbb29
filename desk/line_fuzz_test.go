package desk

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A line gives back each property, over its whole range on the wire, and headers of each
// type, at any depth. So no letter stops an export.
func FuzzALineGivesBackTheWholeWire(f *testing.F) {
	f.Add(int64(1_700_000_000_000), byte(200), byte(1), "\xff", []byte{0xff}, int64(0))
	f.Add(int64(-1), byte(0), byte(255), "$base64:", []byte("a"), int64(1<<62))
	f.Add(int64(253402300800), byte(9), byte(2), "", []byte(nil), int64(-62135596801))
	f.Fuzz(func(t *testing.T, seconds int64, priority, mode byte, text string, body []byte, deep int64) {
		at, inside := time.Unix(seconds, 0).UTC(), time.Unix(deep, 0).UTC()
		if body == nil {
			body = []byte{}
		}
		want := amqp.Publishing{
			Timestamp: at, Priority: priority, DeliveryMode: mode, MessageId: text, Type: text, UserId: text, ReplyTo: text, AppId: text,
			CorrelationId: text, ContentType: text, ContentEncoding: text, Expiration: text, Body: body,
			Headers: amqp.Table{"at": inside, text + "x": []any{amqp.Table{"$time": inside, "p": priority}, text, body, deep, nil}, "i": deep},
		}
		line, err := marshalLetter(read(want), "queue q")
		if err != nil || bytes.ContainsRune(line, '\n') {
			t.Fatalf("%q: %v", line, err)
		}
		got, err := unmarshalLetter(line)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("read back\n%+v, %v\nof\n%+v", got, err, want)
		}
	})
}
