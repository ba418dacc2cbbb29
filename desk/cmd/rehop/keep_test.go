package main

import (
	"strings"
	"testing"
)

// Collected letters are parked, archived and released by the filters of all commands.
func TestCollectedLettersAreKeptForLater(t *testing.T) {
	s := open(t)
	letters := s.collect("orders.dlq")
	for _, tt := range []struct {
		rule, line string
		code       int
		says       string
	}{
		{"letters that a filter selects are parked", "park --error stock", exitDone, "parked: 3 letters\n"},
		{"they are in the list of their state", "list --state parked --error stock", exitDone, "m-0"},
		{"what matches nothing says so", "park --error none", exitNothing, "no letter matched"},
		{"some are archived", "archive --message-id m-1", exitDone, "archived: 1 letter\n"},
		{"and leave the lists", "list --message-id m-1", exitNothing, "no letter matched"},
		{"parked ones are released", "release --state parked --why mended", exitDone, "released: 3 letters\n"},
		{"and are ready for a forwarder", "list --state ready", exitDone, "m-0"},
		{"an export says which letters it leaves out", "export", exitDone, "2 letters written\nleft out: 1 archived, 3 ready; for letters of all states: --state held,parked,archived,ready\n"},
		{"and so does a list", "list --message-id m-1", exitNothing, "left out: 1 archived; "},
		{"with their states it leaves out none", "export --state held,parked,archived,ready", exitDone, "6 letters written\n"},
		{"without a filter nothing is done", "release", exitUsage, "which letters? Give a filter"},
		{"a queue keeps nothing", "park orders.dlq --error stock", exitUsage, "type rehop dlq park --store STORE: 1 argument was given"},
	} {
		s.run(tt.code, append(strings.Fields("dlq "+tt.line), "--store", letters)...)
		if !strings.Contains(s.out+s.err, tt.says) {
			t.Errorf("%s: %s%s", tt.rule, s.out, s.err)
		}
	}
	s.run(exitUsage, "dlq", "park", "--error", "stock")
	s.prints("rehop dlq park needs --store")
	s.run(exitDone, "dlq", "audit")
	s.prints("park", "archive", "release", "mended")
}
