package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/internal/said"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/store"
)

// columns counts those of a terminal that a text takes, whatever the language of the environment: two for each
// sign of Chinese.
var columns = runewidth.Condition{StrictEmojiNeutral: true}

// table prints rows under headings. package tabwriter counts each sign as one column.
func table(w io.Writer, headings []string, rows [][]string) {
	wide := make([]int, len(headings))
	rows = append([][]string{headings}, rows...)
	for _, row := range rows {
		for i := range row {
			row[i] = plain(row[i])
			wide[i] = max(wide[i], columns.StringWidth(row[i]))
		}
	}
	for _, row := range rows {
		last := len(row) - 1
		for i, text := range row[:last] {
			fmt.Fprint(w, text, strings.Repeat(" ", wide[i]-columns.StringWidth(text)+2))
		}
		fmt.Fprintln(w, row[last])
	}
}

func (a *app) json(v any) error {
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// orEmpty makes JSON show an empty list as one, and not as null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// progressJSON is a redrive with its progress for programs.
type progressJSON struct {
	Redrive redriveJSON `json:"redrive"`
	desk.Progress
}

type redriveJSON struct {
	desk.Redrive
	To *addressJSON `json:"to,omitzero"` // instead of that of the Redrive
}

type addressJSON struct {
	Exchange   string `json:"exchange,omitzero"`
	RoutingKey string `json:"routing_key,omitzero"`
}

func progressFor(p desk.Progress) progressJSON {
	return progressJSON{redriveJSON{p.Redrive, (*addressJSON)(p.Redrive.To)}, p}
}

// plain makes a text of a letter harmless to a terminal, on one line.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

// short cuts a text for a table.
func (a *app) short(s string, n int) string {
	if a.format == "wide" || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// ends cuts the middle out of an id for a table.
func (a *app) ends(s string, n int) string {
	if a.format == "wide" {
		return s
	}
	return said.Ends(s, n)
}

// ago is how long ago a time is.
func ago(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	switch d := time.Since(at); {
	case d < time.Minute:
		return strconv.Itoa(int(max(d, 0).Seconds())) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	default:
		return strconv.Itoa(int(d.Hours()/24)) + "d"
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// letterJSON is a letter for programs.
type letterJSON struct {
	ID          string         `json:"id"`
	Place       int64          `json:"place"`
	State       string         `json:"state,omitzero"`
	MessageID   string         `json:"message_id,omitzero"`
	Queue       string         `json:"queue,omitzero"`
	Exchange    string         `json:"exchange"`
	RoutingKey  string         `json:"routing_key"`
	Cause       string         `json:"cause,omitzero"`
	Error       string         `json:"error,omitzero"`
	ErrorType   string         `json:"error_type,omitzero"`
	Stack       string         `json:"stack,omitzero"`
	Host        string         `json:"host,omitzero"`
	Attempts    int            `json:"attempts,omitzero"`
	FirstFailed time.Time      `json:"first_failed,omitzero"`
	Failed      time.Time      `json:"failed,omitzero"`
	Group       string         `json:"group,omitzero"`
	Framework   string         `json:"framework,omitzero"`
	Redrives    int            `json:"redrives,omitzero"`
	RedriveID   string         `json:"redrive_id,omitzero"`
	OrderKey    string         `json:"order_key,omitzero"`
	Tries       int            `json:"tries,omitzero"`
	TryError    string         `json:"try_error,omitzero"`
	NextTry     time.Time      `json:"next_try,omitzero"`
	ContentType string         `json:"content_type,omitzero"`
	Size        int            `json:"size"`
	Headers     map[string]any `json:"headers,omitzero"`
	Body        string         `json:"body,omitzero"`
	BodyBase64  string         `json:"body_base64,omitzero"`
	Malformed   string         `json:"malformed,omitzero"`
	Doubt       string         `json:"doubt,omitzero"`
}

func forPrograms(l desk.Letter, whole bool) letterJSON {
	p := l.Publishing
	out := letterJSON{
		ID: l.ID, Place: l.Place, State: l.State, MessageID: p.MessageId, Queue: l.Queue, Exchange: l.Exchange, RoutingKey: l.RoutingKey,
		Cause: string(l.Cause), Error: l.Error, ErrorType: l.ErrorType, Host: l.Host, Attempts: l.Attempts, FirstFailed: l.FirstFailed,
		Failed: l.Failed, Group: l.Fingerprint, Framework: l.Framework, Redrives: l.Redrives, RedriveID: l.RedriveID,
		OrderKey: l.OrderKey, Tries: l.Tries, TryError: l.TryError, NextTry: l.NextTry,
		ContentType: p.ContentType, Size: len(p.Body), Malformed: l.Malformed, Doubt: l.Doubt,
	}
	if !whole {
		return out
	}
	out.Stack = l.Stack
	out.Headers = map[string]any{}
	for name, v := range p.Headers {
		out.Headers[name] = readable(v)
	}
	if utf8.Valid(p.Body) {
		out.Body = string(p.Body)
	} else {
		out.BodyBase64 = base64.StdEncoding.EncodeToString(p.Body)
	}
	return out
}

// headerText is the value of a header as people read it: text as it is, all else as an export has
// it.
func headerText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case time.Time:
		return strings.Trim(letter.TimeJSON(v), `"`)
	case amqp.Table, []any:
		if text, err := letter.EncodeTable(amqp.Table{"": v}); err == nil {
			return strings.TrimSuffix(strings.TrimPrefix(text, `{"":`), "}")
		}
	}
	return fmt.Sprint(v)
}

// readable is the value of a header that encoding/json takes.
func readable(v any) any {
	switch v := v.(type) {
	case nil, bool, string, int8, int16, int32, int64, uint8, uint16, uint32, int:
		return v
	case time.Time:
		return json.RawMessage(letter.TimeJSON(v))
	case []byte:
		return string(v)
	}
	return fmt.Sprint(v)
}

// printLetters prints a list. rest is the command line that lists the letters after it.
func (a *app) printLetters(list desk.List, rest func() string) error {
	if a.format == "json" {
		out := struct {
			Letters []letterJSON `json:"letters"`
			Matched int          `json:"matched"`
			More    bool         `json:"more,omitzero"`
			Seen    int          `json:"seen"`
			Total   int          `json:"total"`
			Bound   string       `json:"bound,omitzero"`
			Aside   string       `json:"aside,omitzero"`
			Next    int64        `json:"next,omitzero"`
		}{[]letterJSON{}, list.Matched, list.More, list.Seen.Seen, list.Total, list.Bound, list.Aside, list.Next}
		for _, l := range list.Letters {
			out.Letters = append(out.Letters, forPrograms(l, false))
		}
		return cmp.Or(a.json(out), noneOf(list.Matched, "letter", list.Bound))
	}
	headings := []string{"ID", "FAILED", "QUEUE", "CAUSE", "ERROR", "MESSAGE ID"}
	if a.format == "wide" {
		headings = append(headings, "ATTEMPTS", "SENT BACK", "EXCHANGE", "KEY", "BYTES", "BY", "STATE")
	}
	var rows [][]string
	doubted := 0
	for _, l := range list.Letters {
		if l.Doubt != "" {
			doubted++
		}
		row := []string{l.ID, ago(l.Failed), orDash(l.Queue), orDash(string(l.Cause)), orDash(a.short(l.Error, 50)), orDash(a.ends(l.Publishing.MessageId, 36))}
		if a.format == "wide" {
			row = append(row, strconv.Itoa(l.Attempts), strconv.Itoa(l.Redrives), orDash(l.Exchange), orDash(l.RoutingKey),
				strconv.Itoa(len(l.Publishing.Body)), orDash(l.Framework), orDash(l.State))
		}
		rows = append(rows, row)
	}
	table(a.out, headings, rows)
	a.bound(list.Seen, len(list.Letters), list.Matched)
	if doubted > 0 {
		fmt.Fprintf(a.err, "%d of those shown in doubt: rehop dlq show says why, and dlq send leaves them without --to\n", doubted)
	}
	if list.Next != 0 {
		fmt.Fprintf(a.err, "more: %s\n", plain(rest()))
	}
	return noneOf(list.Matched, "letter", list.Bound)
}

// noneOf is the error of a command that only shows, where a redrive would say that no letter
// matched. bound says which letters were looked at; empty: all.
func noneOf(matched int, noun, bound string) error {
	switch {
	case matched > 0:
		return nil
	case bound != "":
		return &exit{exitNothing, fmt.Errorf("no %s matched among %s", noun, bound)}
	}
	return &exit{exitNothing, fmt.Errorf("no %s matched", noun)}
}

// some is a number that may be greater.
func some(n int, more bool) string {
	if more {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}

// bound says what a list leaves out.
func (a *app) bound(s desk.Seen, shown, matched int) {
	if shown < matched {
		fmt.Fprintf(a.err, "%d of %s shown\n", shown, some(matched, s.More))
	}
	if s.Bound != "" {
		fmt.Fprintf(a.err, "about %s\n", s.Bound)
	}
	a.aside(s)
	if s.Bytes > 0 && s.Seen < s.Total { // of a queue
		fmt.Fprintln(a.err, "a store has no such bound: rehop dlq collect takes the letters out of the queue into one")
	}
}

// everyState is the value of --state for all letters of a store.
var everyState = strings.Join([]string{string(store.Held), string(store.Parked), string(store.Archived), string(store.Ready)}, ",")

// aside says which letters of a store are left out because they do not wait for a person.
func (a *app) aside(s desk.Seen) {
	if s.Aside != "" {
		fmt.Fprintf(a.err, "left out: %s; for letters of all states: --state %s\n", s.Aside, everyState)
	}
}

// show prints one letter whole.
func (a *app) show(l desk.Letter) error {
	if a.format == "json" {
		return a.json(forPrograms(l, true))
	}
	p := l.Publishing
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(a.out, "%-14s %s\n", name, plain(value))
		}
	}
	line("id", l.ID)
	line("message id", p.MessageId)
	line("failed in", l.Queue)
	line("published to", strings.TrimSpace(l.Exchange+" "+l.RoutingKey))
	line("cause", string(l.Cause))
	line("error", l.Error)
	line("error type", l.ErrorType)
	if l.Attempts > 0 {
		line("attempts", strconv.Itoa(l.Attempts))
	}
	if l.Redrives > 0 {
		times := "once"
		if l.Redrives > 1 {
			times = strconv.Itoa(l.Redrives) + " times"
		}
		line("sent back", fmt.Sprintf("%s before, last by redrive %s", times, l.RedriveID))
	}
	if l.Tries > 0 {
		line("tries", fmt.Sprintf("%d in vain, the last: %s", l.Tries, l.TryError))
	}
	if !l.NextTry.IsZero() {
		line("next try", "at "+l.NextTry.UTC().Format(time.DateTime)+" UTC or later")
	}
	line("order key", l.OrderKey)
	line("host", l.Host)
	line("group", l.Fingerprint)
	line("told by", l.Framework)
	line("state", l.State)
	line("malformed", l.Malformed)
	line("in doubt", l.Doubt)
	line("content type", p.ContentType)
	line("type", p.Type)
	line("correlation", p.CorrelationId)
	line("reply to", p.ReplyTo)
	fmt.Fprintln(a.out, "\nlife")
	for _, e := range l.Life() {
		at := strings.Repeat(" ", len(time.DateTime))
		if !e.At.IsZero() {
			at = e.At.UTC().Format(time.DateTime)
		}
		fmt.Fprintf(a.out, "  %s  %s\n", at, plain(e.What))
	}
	if len(p.Headers) > 0 {
		fmt.Fprintln(a.out, "\nheaders")
		for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
			if name == "x-rehop-stack" || name == "x-rehop-error" || name == "x-death" && a.format != "wide" {
				continue // shown above and below
			}
			value := plain(headerText(p.Headers[name]))
			if name == "x-delivery-count" || name == "x-acquired-count" {
				value += " (counted by the dead-letter queue: looks)"
			}
			fmt.Fprintf(a.out, "  %s: %s\n", plain(name), value)
		}
	}
	if l.Stack != "" {
		fmt.Fprintln(a.out, "\nstack")
		for _, row := range strings.Split(l.Stack, "\n") {
			fmt.Fprintf(a.out, "  %s\n", plain(row))
		}
	}
	fmt.Fprintf(a.out, "\nbody (%s)\n%s\n", several(len(p.Body), "byte"), a.body(p.Body))
	return nil
}

const maxBody = 4 << 10

// body is a body for a terminal.
func (a *app) body(body []byte) string {
	rest := ""
	if len(body) > maxBody && a.format != "wide" {
		rest = fmt.Sprintf("\n… %s more: --body, or --output wide or json", several(len(body)-maxBody, "byte"))
		body = body[:maxBody]
	}
	return wholeBody(body) + rest
}

// wholeBody is all of a body for a terminal.
func wholeBody(body []byte) string {
	var indented strings.Builder
	if json.Valid(body) {
		e := json.NewEncoder(&indented)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		if err := e.Encode(json.RawMessage(body)); err == nil {
			body = []byte(strings.TrimSpace(indented.String()))
		}
	}
	lines := strings.Split(strings.ToValidUTF8(string(body), "\uFFFD"), "\n")
	for i := range lines {
		lines[i] = "  " + plain(lines[i])
	}
	return strings.Join(lines, "\n")
}

func letterCount(n int) string { return several(n, "letter") }

// several writes a number of things.
func several(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
