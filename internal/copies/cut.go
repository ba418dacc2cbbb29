package copies

import (
	"strings"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
)

// Sizes to which texts are cut in any case.
const (
	maxStackBytes = 8 << 10
	maxErrorBytes = 4 << 10
)

// Cut cuts the headers of a copy to a budget, in the order that header.Max
// documents, such as that of header.Limit. The headers must be the copy's own.
func Cut(p amqp.Publishing, limit int) {
	if header.Size(p) <= limit {
		return
	}
	shorten(p, header.Stack, limit)
	for header.Size(p) > limit {
		list, _ := p.Headers[header.History].([]any)
		if len(list) <= 1 {
			delete(p.Headers, header.History)
			break
		}
		p.Headers[header.History] = list[:len(list)-1]
	}
	shorten(p, header.Error, limit)
	shorten(p, header.ErrorType, limit)
	shorten(p, header.Host, limit)
}

// shorten cuts one text by as much as the copy is too large.
func shorten(p amqp.Publishing, key string, limit int) {
	over := header.Size(p) - limit
	if over <= 0 {
		return
	}
	s, _ := header.Text(p.Headers[key])
	if s = cut(s, len(s)-over); s == "" {
		delete(p.Headers, key)
		return
	}
	p.Headers[key] = s
}

// cut returns at most limit bytes of s, as valid UTF-8 and without half a
// character at the end.
func cut(s string, limit int) string {
	if limit <= 0 {
		return ""
	}
	if len(s) > limit {
		s = s[:limit]
		for i := 1; i < utf8.UTFMax && i <= len(s); i++ { // drop a last character that the cut has split
			if last := s[len(s)-i:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRuneInString(last) {
					s = s[:len(s)-i]
				}
				break
			}
		}
	}
	return strings.ToValidUTF8(s, "?") // one byte for each broken run: never longer
}
