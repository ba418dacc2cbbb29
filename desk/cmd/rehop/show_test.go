package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A letter is meant if all conditions hold, and the help says so where one may think of any.
func TestConditionsHoldTogether(t *testing.T) {
	s := open(t)
	s.run(exitDone, "dlq", "list", "orders.dlq", "-o", "json")
	var list struct{ Letters []letterJSON }
	must(t, json.Unmarshal([]byte(s.out), &list))
	s.run(exitNothing, "dlq", "list", "orders.dlq", "--id", list.Letters[0].ID, "--message-id", "m-1")
	s.run(exitDone, "dlq", "list", "orders.dlq", "--id", list.Letters[0].ID, "--id", list.Letters[1].ID, "--message-id", "m-1")
	s.prints("m-1")
	for _, command := range []string{"list", "send", "move", "drop", "groups", "export", "park"} {
		s.run(exitDone, "dlq", command, "--help")
		if n := strings.Count(s.out, "given several times: any of them; beside other conditions: all hold"); n != 2 {
			t.Errorf("%s --help says %d times how conditions go together, want it of --id and of --message-id", command, n)
		}
	}
	s.run(exitDone, "dlq", "--help")
	s.prints("--id A --message-id B are the letters with the id A that have the message id B")
}

// The whole body of a letter goes into a file, byte for byte, and a terminal gets no control characters of it.
func TestABodyIsPrintedWhole(t *testing.T) {
	s := open(t)
	body := "{\"a\": \"\x1b[31mred\",\r\n" + strings.Repeat("x", 3*maxBody)
	s.body("big", body)
	s.run(exitDone, "dlq", "show", "orders.dlq", "big", "--body")
	if s.out != body {
		t.Errorf("%d bytes are printed, want the %d of the body", len(s.out), len(body))
	}
	s.outTTY = true
	s.run(exitDone, "dlq", "show", "orders.dlq", "big", "--body")
	if strings.Contains(s.out, "\x1b") || strings.Count(s.out, "x") != 3*maxBody || strings.Contains(s.out, "message id") {
		t.Errorf("a terminal gets %.200q", s.out)
	}
	s.run(exitUsage, "dlq", "show", "orders.dlq", "big", "--body", "-o", "json")
	s.prints("--body prints the body alone")
}

// The counts of one redrive can be read after its end.
func TestARedriveIsShown(t *testing.T) {
	s := open(t)
	s.run(exitDone, "dlq", "send", "orders.dlq", "--error", "customer", "--redrive", "one", "--why", "mended")
	s.run(exitDone, "redrives", "show", "one")
	s.prints("done: 3 sent", "queue orders.dlq", `error="customer"`, who(), "mended")
	s.run(exitDone, "redrives", "show", "one", "-o", "json")
	var p struct {
		State   string
		Done    int
		Redrive struct{ ID string }
	}
	if err := json.Unmarshal([]byte(s.out), &p); err != nil || p.State != "done" || p.Done != 3 || p.Redrive.ID != "one" {
		t.Errorf("%v: %s", err, s.out)
	}
	copies := filepath.Join(t.TempDir(), "copies.jsonl")
	s.run(exitDone, "dlq", "drop", "orders.dlq", "--all", "--yes", "--copy", copies, "--redrive", "two")
	s.run(exitDone, "redrives", "show", "two")
	s.prints("done: 3 dropped", "copies are in "+copies+"; all letters of the file go back with: rehop dlq import orders.dlq "+copies)
	for command, offers := range map[string]bool{"show": true, "stop": false, "resume": false} { // both have ended, and are done
		s.run(exitDone, "__complete", "redrives", command, "")
		if strings.Contains(s.out, "one\tdone") != offers {
			t.Errorf("%s offers %q", command, s.out)
		}
	}
	s.run(exitFailed, "redrives", "show", "none")
	s.prints("there is no such redrive")
	if _, err := os.Stat(copies); err != nil {
		t.Error(err)
	}
}
