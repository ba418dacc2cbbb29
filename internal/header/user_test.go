package header

import (
	"reflect"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A message that is published once more as it is has nothing that the broker would refuse, or
// send to others once more.
func TestRelay(t *testing.T) {
	for _, tt := range []struct {
		rule       string
		have, want amqp.Publishing
	}{
		{"nothing", amqp.Publishing{}, amqp.Publishing{}},
		{"the login's own user-id", amqp.Publishing{UserId: "ops"}, amqp.Publishing{UserId: "ops"}},
		{"the login's own user-id, noted", amqp.Publishing{UserId: "ops", Headers: amqp.Table{UserID: "ops"}}, amqp.Publishing{UserId: "ops", Headers: amqp.Table{}}},
		{"the user-id of another login", amqp.Publishing{UserId: "shop"}, amqp.Publishing{Headers: amqp.Table{UserID: "shop"}}},
		{"one that is newer than the archived one", amqp.Publishing{UserId: "shop", Headers: amqp.Table{UserID: "old"}}, amqp.Publishing{Headers: amqp.Table{UserID: "shop"}}},
		{"an archived one stays a header", amqp.Publishing{Headers: amqp.Table{UserID: "ops"}}, amqp.Publishing{Headers: amqp.Table{UserID: "ops"}}},
		{"CC and BCC", amqp.Publishing{Headers: amqp.Table{CC: []any{"a"}, BCC: []any{"b"}, "own": 1}}, amqp.Publishing{Headers: amqp.Table{ArchivedCC: []any{"a", "b"}, "own": 1}}},
		{"an archive of keys", amqp.Publishing{Headers: amqp.Table{ArchivedCC: []any{"a"}}}, amqp.Publishing{Headers: amqp.Table{ArchivedCC: []any{"a"}}}},
		{"a reply on the channel of another", amqp.Publishing{ReplyTo: DirectReply}, amqp.Publishing{}},
		{"a reply to a queue", amqp.Publishing{ReplyTo: "answers"}, amqp.Publishing{ReplyTo: "answers"}},
	} {
		got := tt.have
		if Relay(&got, "ops"); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.rule, got, tt.want)
		}
	}
}
