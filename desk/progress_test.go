package desk

import "testing"

// The error of one letter is not told as that of all.
func TestAProgressSaysWhoseItsErrorIs(t *testing.T) {
	for _, tt := range []struct {
		rule string
		p    Progress
		want string
	}{
		{"of the one that failed", Progress{State: Done, Done: 2, Failed: 1, Error: "nacked"}, "done: 2 sent, 1 failed: nacked"},
		{"of the last one that failed", Progress{State: Done, Done: 2, Failed: 3, Skipped: 1, Error: "nacked"}, "done: 2 sent, 3 failed, 1 left out; last error: nacked"},
		{"of the last one so far", Progress{State: Running, Failed: 3, Matched: 9, Error: "nacked"}, "running: 0 of at least 9 sent, 3 failed; last error: nacked"},
		{"of the last one, beside a note", Progress{State: CutOff, Failed: 2, Error: "nacked", Note: "a note"}, "cut off: 0 sent, 2 failed; last error: nacked; a note"},
		{"of the redrive", Progress{State: Failed, Failed: 3, Error: "the target takes no messages"}, "failed: 0 sent, 3 failed; last error: the target takes no messages"},
	} {
		tt.p.Redrive.Action = Send
		if got := tt.p.String(); got != tt.want {
			t.Errorf("%s:\n%s\n%s", tt.rule, got, tt.want)
		}
	}
}
