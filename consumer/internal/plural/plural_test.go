package plural

import "testing"

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 messages", 1: "1 message", 2: "2 messages"} {
		if got := Of(n, "message"); got != want {
			t.Errorf("Of(%d) = %q, want %q", n, got, want)
		}
	}
}
