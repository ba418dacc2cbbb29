package typed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"strings"
)

// Body returns an error if a body that was JSON is none after an edit: a slip that would make
// another letter. Many a text is a value of JSON by chance, such as 42, so that of a value which is neither an object
// nor an array the content type says whether it is JSON.
func Body(was, is []byte, contentType string) error {
	var one json.RawMessage
	if !LooksLikeJSON(was) && !isJSON(contentType) || !json.Valid(was) {
		return nil
	}
	if err := json.Unmarshal(is, &one); err != nil {
		return fmt.Errorf("the body was JSON, and is none now: %w", err)
	}
	return nil
}

// LooksLikeJSON reports whether a body begins as an object or an array does.
func LooksLikeJSON(body []byte) bool {
	b := bytes.TrimLeft(body, " \t\r\n")
	return len(b) > 0 && (b[0] == '{' || b[0] == '[')
}

// isJSON reports whether a content type is one of JSON.
func isJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType) // in lower case
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}
