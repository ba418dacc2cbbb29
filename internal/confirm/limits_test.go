package confirm

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// The error of a message for which there was no room is that of an outage only if the message has met it.
func TestNoRoomIsAnOutageOnlyOfTheMessagesTarget(t *testing.T) {
	t.Parallel()
	silent := &SilentError{RoutingKey: "orders", Since: time.Now()}
	for _, tt := range []struct {
		rule    string
		outage  Outage
		wraps   bool
		says    string
		advises bool
	}{
		{"no outage", Outage{}, false, "the window is full", true},
		{"an outage that the message has met", Outage{Cause: silent}, true, `queue "orders" has not answered`, false},
		{"an outage of another target", Outage{Cause: silent, Partial: true}, false, `perhaps because of messages elsewhere: queue "orders" has not answered`, true},
	} {
		err := Limits{Messages: 1, Bytes: 1, Advice: "slow down"}.Full(tt.outage)
		if errors.As(err, new(*SilentError)) != tt.wraps || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "slow down") != tt.advises {
			t.Errorf("%s: %v", tt.rule, err)
		}
	}
}
