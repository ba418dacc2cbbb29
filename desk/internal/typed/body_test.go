package typed

import (
	"strings"
	"testing"
)

// A body that was JSON stays JSON. That a text reads as a number makes no JSON of it.
func TestBody(t *testing.T) {
	const anyJSON, text = "application/json", "text/plain"
	for _, tt := range []struct {
		contentType, was, is string
		fails                bool
	}{
		{anyJSON, `{"a":1}`, `{"a":1`, true},
		{"", `[1]`, `[1`, true},
		{text, `{"a":1}`, `{"a":1`, true},
		{anyJSON, `"paid"`, `"paid`, true},
		{"Application/JSON; charset=utf-8", `42`, `4 2`, true},
		{"application/vnd.shop+json", `null`, `nul`, true},
		{anyJSON, `"paid"`, `{"state":"paid"}`, false},
		{anyJSON, `paid`, `"paid`, false},
		{anyJSON, ``, `paid`, false},
		{text, `42`, `42nd`, false},
		{"", `"paid"`, `"paid`, false},
		{"", `true`, `yes`, false},
	} {
		if err := Body([]byte(tt.was), []byte(tt.is), tt.contentType); (err != nil) != tt.fails {
			t.Errorf("%q of %q to %q: %v", tt.was, tt.contentType, tt.is, err)
		}
	}
}

// The error names the place of the slip, as an editor counts it.
func TestBodyNamesThePlace(t *testing.T) {
	for is, want := range map[string]string{
		"{\n  \"a\": é\n}": "line 2, column 8", "{\r\n\"ü\" 1}": "line 2, column 5", `{"a":1`: "line 1, column 6", "": "line 1, column 1", "{}\n\n]": "line 3, column 1",
	} {
		err := Body([]byte("{}"), []byte(is), "")
		if err == nil || !strings.HasSuffix(err.Error(), ", at "+want) {
			t.Errorf("%q: %v, want %s", is, err, want)
		}
	}
}
