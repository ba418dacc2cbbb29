package main

import (
	"bytes"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
)

// Signs of Chinese text take two columns of a terminal, and marks above a letter none.
func TestColumnsBeginBelowTheirHeadings(t *testing.T) {
	var out bytes.Buffer
	table(&out, []string{"ID", "ERROR", "MESSAGE ID"}, [][]string{{"1", "库存不足", "m-1"}, {"22", "no stock", "m-2"}, {"3", "Zu\u0308rich…", ""}})
	const want = "ID  ERROR     MESSAGE ID\n" +
		"1   库存不足  m-1\n" +
		"22  no stock  m-2\n" +
		"3   Zu\u0308rich…   \n"
	if got := out.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOneIsNotCalledSeveral(t *testing.T) {
	for n, want := range map[int]string{1: "sent back      once before,|body (1 byte)", 2: "sent back      2 times before,|body (2 bytes)"} {
		var out bytes.Buffer
		must(t, (&app{streams: streams{out: &out}}).show(desk.Letter{Redrives: n, Publishing: amqp.Publishing{Body: make([]byte, n)}}))
		for _, text := range strings.Split(want, "|") {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%d: no %q in %s", n, text, out.String())
			}
		}
	}
}
