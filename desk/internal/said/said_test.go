package said

import "testing"

func TestText(t *testing.T) {
	for said, want := range map[string]string{
		"":                              "",
		"desk: there is no such letter": "there is no such letter",
		`failed: desk: queue "desk: a": channel closed`: `failed: queue "desk: a": channel closed`,
		"desk: Redrive.Rate is -1\ndesk: Filter.Error":  "Rate is -1\nError",
		"helpdesk: closed, Redrive.Rate":                "helpdesk: closed, Redrive.Rate",
	} {
		if got := Text(said); got != want {
			t.Errorf("%q is shown as %q, want %q", said, got, want)
		}
	}
}

func TestImport(t *testing.T) {
	for source, want := range map[string]string{
		"queue orders.dlq": `rehop dlq import orders.dlq 'my copies.jsonl'`, "queue it's": `rehop dlq import 'it'\''s' 'my copies.jsonl'`,
		"store letters.db": `rehop dlq import QUEUE 'my copies.jsonl'`,
	} {
		if got := Import(source, "my copies.jsonl"); got != want {
			t.Errorf("from %s: %s, want %s", source, got, want)
		}
	}
}

func TestTheTextOfAGroup(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"no stock":                      "no stock",
		`"030/23 45-67": not a number`:  "…: not a number",
		`"anna@example.com": not one`:   "…: not one",
		"order 17 of shop-2 has no 3x5": "order … of … has no …",
		"status 503\nand a stack":       "status …",
		`"a" 'b' 17`:                    "… … …",
	} {
		if got := Group(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
