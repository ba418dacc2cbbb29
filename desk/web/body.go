package web

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk/internal/said"
	"github.com/rehop/rehop/desk/internal/typed"
)

const (
	maxShown    = 64 << 10 // bytes of a body on a page, of what is written
	maxHex      = 4 << 10  // bytes of a body on a page, in hexadecimal
	maxJSON     = 1 << 20  // bytes of a body that are read as JSON
	maxIndent   = 32       // levels of JSON that are indented
	maxHeader   = 4 << 10  // bytes of a header on a page
	maxHeaders  = 200      // on a page
	maxEditable = 1 << 20  // bytes of a body in a form
)

// visible makes a text of a letter harmless to read: control characters and marks
// that turn the direction of a text show as what they are, and bytes that are no UTF-8
// as U+FFFD.
func visible(s string) string {
	if !strings.ContainsFunc(s, hidden) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r < 0x20:
			b.WriteRune(0x2400 + r)
		case r == 0x7f:
			b.WriteRune(0x2421)
		default:
			fmt.Fprintf(&b, "[U+%04X]", r)
		}
	}
	return b.String()
}

func hidden(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case '\u200b', '\u2028', '\u2029', '\ufeff':
		return true
	}
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Bidi_Control, r)
}

// cut returns the first n bytes of a text, at the end of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func ends(n int, s string) string { return visible(said.Ends(s, n)) }

// shownBody is a body as a page shows it.
type shownBody struct {
	Mode  string   // json, text or hex
	Modes []string // that can be had
	Text  string
	Size  int
	Cut   bool // Text is a part
	Why   string
}

// showBody returns a body in one of the forms that it has, the best one unless want is
// another.
func showBody(body []byte, want string) shownBody {
	s := shownBody{Size: len(body), Modes: []string{"text", "hex"}}
	isJSON := len(body) <= maxJSON && typed.LooksLikeJSON(body) && json.Valid(body)
	if isJSON {
		s.Modes = []string{"json", "text", "hex"}
	}
	s.Mode = s.Modes[0]
	if !isJSON && !mostlyText(body) {
		s.Mode = "hex"
	}
	if slices.Contains(s.Modes, want) {
		s.Mode = want
	}
	switch s.Mode {
	case "json":
		s.Text, s.Cut = indent(body)
		s.Text = visible(s.Text)
	case "hex":
		s.Cut = len(body) > maxHex
		s.Text = hex.Dump(body[:min(len(body), maxHex)])
	default:
		s.Cut = len(body) > maxShown
		s.Text = visible(strings.ReplaceAll(string(body[:min(len(body), maxShown)]), "\r\n", "\n"))
	}
	return s
}

// mostlyText reports whether the beginning of a body is UTF-8 without many control
// characters.
func mostlyText(body []byte) bool {
	head := body[:min(len(body), 1<<10)]
	odd := 0
	for len(head) > 0 {
		r, n := utf8.DecodeRune(head)
		if r == utf8.RuneError && n == 1 && len(head) >= utf8.UTFMax || r < 0x20 && r != '\n' && r != '\t' && r != '\r' {
			odd++
		}
		head = head[n:]
	}
	return odd*10 <= min(len(body), 1<<10)
}

// indent writes valid JSON with a line for each value. It writes no more than maxShown
// bytes however deep the value is.
func indent(body []byte) (text string, isCut bool) {
	var b strings.Builder
	depth, inString, escaped := 0, false, false
	line := func() {
		b.WriteByte('\n')
		for range min(depth, maxIndent) {
			b.WriteString("  ")
		}
	}
	for i := 0; i < len(body); i++ {
		if b.Len() > maxShown {
			return b.String(), true
		}
		c := body[i]
		if inString {
			b.WriteByte(c)
			inString = escaped || c != '"'
			escaped = c == '\\' && !escaped
			continue
		}
		switch c {
		case ' ', '\t', '\r', '\n':
		case '"':
			inString = true
			b.WriteByte(c)
		case '{', '[':
			b.WriteByte(c)
			if rest := bytes.TrimLeft(body[i+1:], " \t\r\n"); len(rest) > 0 && (rest[0] == '}' || rest[0] == ']') {
				b.WriteByte(rest[0])
				i = len(body) - len(rest)
				continue
			}
			depth++
			line()
		case '}', ']':
			depth--
			line()
			b.WriteByte(c)
		case ',':
			b.WriteByte(c)
			line()
		case ':':
			b.WriteString(": ")
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), false
}

// shownHeader is a header as a page shows it.
type shownHeader struct {
	Name, Value, Type string
	Raw               string // the name as it is
	System            bool   // written by the broker or by rehop, and not to be edited
	Looks             bool   // counted by the dead-letter queue, at looks
}

// showHeaders returns headers in the order of their names, those of the message first.
func showHeaders(t amqp.Table) (own, system []shownHeader, left int) {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if len(own)+len(system) == maxHeaders {
			return own, system, len(t) - maxHeaders
		}
		h := shownHeader{Name: visible(cut(name, 256)), Raw: name, Type: typeName(t[name])}
		var b strings.Builder
		writeValue(&b, t[name], 0)
		h.Value = visible(cut(b.String(), maxHeader))
		h.Looks = name == "x-delivery-count" || name == "x-acquired-count"
		h.System = typed.Name(name) != nil
		if h.System {
			system = append(system, h)
		} else {
			own = append(own, h)
		}
	}
	return own, system, 0
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "void"
	case string:
		return "text"
	case []byte:
		return "bytes"
	case bool:
		return "boolean"
	case time.Time:
		return "time"
	case amqp.Table, map[string]any:
		return "table"
	case []any:
		return "array"
	case float32, float64, amqp.Decimal:
		return "number"
	}
	return "integer"
}

// writeValue writes the value of a header, with a line for each part of a table. It
// stops when there is enough for a page.
func writeValue(b *strings.Builder, v any, depth int) {
	if b.Len() > maxHeader || depth > 16 {
		b.WriteString("…")
		return
	}
	indent := strings.Repeat("  ", depth)
	switch v := v.(type) {
	case amqp.Table:
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 || depth > 0 {
				b.WriteString("\n" + indent)
			}
			b.WriteString(name + ": ")
			writeValue(b, v[name], depth+1)
		}
	case []any:
		for i, inner := range v {
			if i > 0 || depth > 0 {
				b.WriteString("\n" + indent)
			}
			b.WriteString("- ")
			writeValue(b, inner, depth+1)
		}
	case []byte:
		if utf8.Valid(v) {
			b.Write(v[:min(len(v), maxHeader+utf8.UTFMax)])
			return
		}
		b.WriteString(hex.EncodeToString(v[:min(len(v), maxHeader)]))
	case string:
		b.WriteString(v[:min(len(v), maxHeader+utf8.UTFMax)])
	case time.Time:
		b.WriteString(v.UTC().Format(time.RFC3339))
	default:
		fmt.Fprint(b, v)
	}
}

// editable returns a body as the text of a form, and why it cannot be one.
func editable(body []byte) (text, why string) {
	switch {
	case len(body) > maxEditable:
		return "", "The body has " + size(len(body)) + ", too much for a form."
	case !utf8.Valid(body):
		return "", "The body is not text."
	case bytes.ContainsRune(body, 0):
		return "", "The body has bytes that a form cannot hold."
	}
	crlf := bytes.Count(body, []byte("\r\n"))
	if bytes.Count(body, []byte("\r")) != crlf || crlf > 0 && bytes.Count(body, []byte("\n")) != crlf {
		return "", "The lines of the body end in different ways, which a form would change."
	}
	return string(body), ""
}

// fromForm is the inverse of editable: a browser ends all lines with CR LF, and the
// body gets the ends of lines that the original has.
func fromForm(text string, original []byte) []byte {
	if !bytes.Contains(original, []byte("\r\n")) {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	return []byte(text)
}
