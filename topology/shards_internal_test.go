package topology

import "testing"

// A declaration is refused for messages that nobody is known to handle, and for no silence of the broker.
func TestUnreadShards(t *testing.T) {
	for _, tt := range []struct {
		rule string
		b    beyond
		want bool
	}{
		{"empty", beyond{}, false},
		{"messages and no consumer", beyond{messages: 1}, true},
		{"messages and a consumer", beyond{messages: 1, consumers: 1}, false},
		{"messages in a wait, and nothing is known of the queue", beyond{messages: 1, consumers: -1, unknown: true}, false},
		{"messages and no consumer, and nothing is known of a wait", beyond{messages: 1, unknown: true}, true},
	} {
		if got := tt.b.unread(); got != tt.want {
			t.Errorf("%s: unread is %t, want %t", tt.rule, got, tt.want)
		}
	}
}
