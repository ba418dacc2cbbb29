package typed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"
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
		line, column := place(is, err)
		return fmt.Errorf("the body was JSON, and is none now: %w, at line %d, column %d", err, line, column)
	}
	return nil
}

// place returns the line and the column of the last character that was read as JSON, both from 1.
func place(body []byte, err error) (line, column int) {
	n := 0
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		n = min(max(int(syntax.Offset)-1, 0), len(body))
	}
	before := body[:n]
	begin := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[begin:]) + 1
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
