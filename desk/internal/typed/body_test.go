package typed

import "testing"

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
