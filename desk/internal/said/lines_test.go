package said

import (
	"strings"
	"testing"
)

func TestLinesThatDiffer(t *testing.T) {
	for _, tt := range []struct{ rule, was, is, lines string }{
		{"one line in the middle, with those around it", "1 2 3 4 5 6 7 8 9", "1 2 3 4 x 6 7 8 9", "… 2 3 4 -5 +x 6 7 8 …"},
		{"a line that comes", "1 2", "1 x 2", "1 +x 2"},
		{"a line that goes at the end", "1 2 3", "1 2", "1 2 -3"},
		{"a line that is there twice", "1 1", "1 1 1", "1 1 +1"},
		{"all lines", "1 2", "3", "-1 -2 +3"},
		{"none that is shown", "1 2", "1 2", "…in white space"},
	} {
		var got []string
		for _, l := range Lines(strings.ReplaceAll(tt.was, " ", "\n"), strings.ReplaceAll(tt.is, " ", "\n"), "in white space") {
			got = append(got, strings.TrimSpace(l.Mark)+l.Text)
		}
		if lines := strings.Join(got, " "); lines != tt.lines {
			t.Errorf("%s: %s, want %s", tt.rule, lines, tt.lines)
		}
	}
	if n := len(Lines(strings.Repeat("a\n", 1000), strings.Repeat("b\n", 1000), "in white space")); n != maxLines+1 {
		t.Errorf("%d lines of 2,000", n)
	}
}
