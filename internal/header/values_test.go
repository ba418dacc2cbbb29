package header

import (
	"reflect"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestStrip(t *testing.T) {
	all := amqp.Table{"user": 7, CC: []any{"k"}, BCC: []any{"k"}, "x-user": "mine", Prefix + "of-a-later-version": "x"}
	for _, key := range slices.Concat(Family, Past, []string{OrderKey, Priority, Replays, Redrives, RedriveID}) {
		all[key] = "x"
	}
	got := Strip(all)
	want := amqp.Table{"user": int64(7), CC: []any{"k"}, BCC: []any{"k"}, "x-user": "mine"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Strip = %v, want %v", got, want)
	}
	for _, nothing := range []amqp.Table{nil, {}, {Death: []any{}}} {
		if got := Strip(nothing); got != nil {
			t.Errorf("Strip(%v) = %v, want nil", nothing, got)
		}
	}
}
