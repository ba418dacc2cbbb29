package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rehop/rehop/topology"
)

// goName is a field of a struct, as programs of Go write it.
var goName = regexp.MustCompile(`\b[A-Z]\w+\.[A-Z]|\bURLs\[|strconv\.|\btime: |\b(ManagementURL|Vhost|Credentials)\b`)

// An error about the command line names the flag or argument, the value, and the values that
// are taken, in no words of Go.
func TestFaultsOfTheCommandLine(t *testing.T) {
	s := open(t)
	letters := s.collect("orders.dlq")
	s.dead("orders.dlq", "orders", "x-1")
	all := []string{"dlq", "send", "orders.dlq", "--all", "--yes"}
	list := []string{"dlq", "list", "orders.dlq"}
	stored := []string{"dlq", "list", "--store", letters}
	for _, tt := range []struct {
		line []string
		want string
	}{
		{append(all, "--rate", "-1"), "--rate is -1, want 0 for no bound, or 0.001 to 100,000 letters a second"},
		{append(all, "--rate", "fast"), `--rate is "fast", want a number, such as 100 or 0.5`},
		{append(all, "--rate"), "--rate wants a value: letters per second, such as 100 or 0.5; 0: no bound"},
		{append(all, "--limit", "-1"), "--limit is -1, want 0 (no bound) or more"},
		{append(all, "--limit", "x"), `--limit is "x", want a whole number`},
		{append(all, "--canary", "-1s"), "--canary is -1s, want 0 or more, for Send"},
		{append(all, "--canary", "yesterday"), `--canary is "yesterday", want a duration, such as 90s, 5m or 24h`},
		{append(all, "--redrive", "a.b"), `--redrive is "a.b", want up to 64 letters, digits, dashes and underscores`},
		{append(all, "--to", "orders.dlq"), `--to is "orders.dlq", the queue that the letters are in`},
		{append(all, "--to", ""), `--to is "", want send there instead`},
		{append(all, "--to", "amqp://bob:secret@host/"), `--to is a URL, which is not shown; want send there instead`},
		{append(all, "--to", "a:b.rehop.return/a:b@2", "--limit", "x"), `--limit is "x", want a whole number`}, // a name of ours is none
		{[]string{"dlq", "edit", "orders.dlq", "x", "--key", "k", "--to", "amqp://bob:secret@host/"}, `--to is a URL`},
		{append(all, "--to", " "), `--to is " ", want send there instead`},
		{append(all, "--redrive", ""), `--redrive is "", want id of the redrive`},
		{append(all, "--error", "stock"), `there are --all and a filter, error="stock": give --all for all letters, or the filter`},
		{append(list, "--all"), "there is no flag --all: without a filter rehop dlq list takes all letters"},
		{[]string{"dlq", "export", "orders.dlq", "--all"}, "there is no flag --all: without a filter rehop dlq export takes all letters"},
		{append(list, "--store", ""), `--store is "", want collected letters`},
		{[]string{"dlq", "export", "orders.dlq", "--file", ""}, `--file is "", want a new file`},
		{[]string{"dlq", "edit", "orders.dlq", "x", "--to", ""}, `--to is "", want send there instead`},
		{append(all, "--to", "/"), "--to is empty, want an exchange and a routing key, or the name of a queue as the key"},
		{append(list, "--newer", "yesterday"), `--newer is "yesterday", want a duration of more than 0, such as 90m or 24h`},
		{append(list, "--older", "-1h"), `--older is "-1h", want a duration of more than 0, such as 90m or 24h`},
		{append(list, "--window", "20000"), "--window is 20000, want 1 to 10000"},
		{append(list, "--limit", "-1"), "--limit is -1, want 1 to 1000, or 0 for 100"},
		{append(list, "--limit", "5000"), "--limit is 5000, want 1 to 1000, or 0 for 100"},
		{append(list, "--after", "-1"), "--after is -1, want 0 or more"},
		{append(stored, "--limit", "5000"), "--limit is 5000, want 1 to 1000, or 0 for 100"},
		{append(stored, "--after", "-1"), "--after is -1, want 0 or more"},
		{append(stored, "--state", "held,lost"), `--state is "lost", want held, parked, archived or ready`},
		{append(list, "--limt", "5"), "there is no flag --limt, did you mean --limit?; see rehop dlq list --help"},
		{append(list, "-x"), "there is no flag -x; see rehop dlq list --help"},
		{append(list, "--=x"), "a flag is written --name or --name=value; see rehop dlq list --help"},
		{append(list, "--yes=maybe"), `--yes is "maybe", want true or false`},
		{append(list, "-o", "xml"), `--output is "xml", want table, wide or json`},
		{[]string{"dlq", "peek", "orders.dlq", "-n", "-1"}, "--limit is -1, want 1 or more"},
		{[]string{"dlq", "audit", "-n", "-1"}, "--limit is -1, want 0 or more"},
		{[]string{"dlq", "import", "orders.dlq", "/dev/null", "--from", "-1"}, "--from is -1, want a line from 1, or 0 for the first"},
		{[]string{"dlq", "edit", "orders.dlq", "x", "--header", "x-rehop-a=b"}, `--header: header "x-rehop-a", want 1 to 255 bytes, and none that rehop or the broker writes`},
		{[]string{"dlq", "edit", "orders.dlq", "x", "--remove-header", "x-death"}, `--remove-header: header "x-death", want 1 to 255 bytes, and none that rehop or the broker writes`},
		{[]string{"dlq", "edit", "orders.dlq", "x", "--body", "/none"}, "--body: open /none: "},
		{[]string{"dlq", "drop", "orders.dlq", "--all"}, `rehop dlq drop needs --copy: file that the letters are appended to first; such as: rehop dlq drop orders.dlq --error "no such customer" --copy dropped.jsonl`},
		{[]string{"dlq", "drop", "orders.dlq", "--all", "--copy", ""}, "rehop dlq drop needs --copy: "},
		{[]string{"dlq", "move", "orders.dlq", "--all"}, "rehop dlq move needs --to: a queue, exchange/key, or /queue if its name has a slash; such as: rehop dlq move orders.dlq --older 720h --to orders.parked"},
		{[]string{"dlq", "collect", "orders.dlq"}, "rehop dlq collect needs --store: SQLite file, made if there is none, or postgres:// or mysql:// URL; such as: rehop dlq collect "},
		{[]string{"dlq", "peek"}, "type rehop dlq peek QUEUE: no argument was given; see rehop dlq peek --help"},
		{[]string{"dlq", "peek", "a", "b"}, "type rehop dlq peek QUEUE: 2 arguments were given; see "},
		{[]string{"doctor", "now"}, "rehop doctor takes no arguments: 1 argument was given; see rehop doctor --help"},
		{[]string{"queue"}, `rehop has no command "queue", did you mean queues?; see rehop --help`},
		{[]string{"dlq", "bogus"}, `rehop dlq has no command "bogus"; see rehop dlq --help`},
		{[]string{"help", "dlq", "lits"}, `rehop dlq has no command "lits", did you mean list?; see rehop dlq --help`},
		{[]string{"completion", "csh"}, `rehop completion has no command "csh", did you mean `},
		{[]string{"desk", "--listen", "bogus"}, `--listen is "bogus": address bogus: missing port in address`},
		{[]string{"desk", "--token-file", "/none"}, "--token-file: open /none: "},
		{[]string{"desk", "--tls-cert", "/none", "--tls-key", "/none", "--listen", "127.0.0.1:0"}, "--tls-cert and --tls-key: open /none: "},
		{[]string{"doctor", "--config", "/none"}, "--config: open /none: "},
	} {
		s.run(exitUsage, tt.line...)
		if !strings.Contains(s.err, "rehop: "+tt.want) {
			t.Errorf("rehop %s prints %swant %s", strings.Join(tt.line, " "), s.err, tt.want)
		}
		if goName.MatchString(s.err) {
			t.Errorf("rehop %s speaks of Go: %s", strings.Join(tt.line, " "), s.err)
		}
	}
	s.has("orders.dlq", 1)
}

// A file for copies that cannot be written is not that of a flag: an edit has none, and neither has a resume.
func TestAFaultOfACopyNamesNoFlag(t *testing.T) {
	if text := (&app{}).rename("desk: Redrive.CopyTo: open /journal/dropped/a.jsonl: permission denied"); text != "the copy: open /journal/dropped/a.jsonl: permission denied" {
		t.Error(text)
	}
}

// The faults of the URLs of a broker name the flag that has them, and else the variable.
func TestFaultsOfTheBrokersAddress(t *testing.T) {
	s := open(t)
	for _, tt := range []struct{ url, management, line, want string }{
		{"amqp://host", "", "--management-url host", "--management-url does not start with http:// or https://"},
		{"amqp://host", "", "--management-url http://host", "--management-url names no user, want one, or AMQP_USER and AMQP_PASSWORD"},
		{"amqp://host", "host", "", "AMQP_MANAGEMENT_URL does not start with http:// or https://"},
		{"", "", "--url host", "--url does not start with amqp:// or amqps://"},
		{"", "", "--url amqp://host --url amqp://host:0", "URL 2 of --url has a port outside 1 to 65535"},
		{"", "", "--url amqp://host/a --vhost b", `--url is amqp://guest@host:5672/a, want no virtual host, or --vhost's "b"`},
		{"host", "", "", "AMQP_URL does not start with amqp:// or amqps://"},
		{"amqp://host/a", "", "--vhost b", `AMQP_URL is amqp://guest@host:5672/a, want no virtual host, or --vhost's "b"`},
	} {
		for _, command := range []string{"queues", "dlq peek orders.dlq", "doctor"} {
			t.Setenv("AMQP_URL", tt.url)
			t.Setenv("AMQP_VHOST", "")
			t.Setenv("AMQP_MANAGEMENT_URL", tt.management)
			want := exitUsage
			if command == "doctor" { // which reports it with the rest
				want = exitFailed
			}
			s.run(want, strings.Fields(tt.line+" "+command)...)
			s.prints("connection: " + tt.want)
			if goName.MatchString(s.out + s.err) {
				t.Errorf("rehop %s %s speaks of Go: %s%s", tt.line, command, s.out, s.err)
			}
		}
	}
}

// A command that shows letters says that none matched with the exit code of a redrive.
func TestNoMatchHasOneExitCode(t *testing.T) {
	s := open(t)
	letters := s.collect("orders.dlq")
	s.dead("orders.dlq", "orders", "x-1")
	for _, place := range []string{"orders.dlq", "--store " + letters} {
		for want, filter := range map[int]string{exitDone: "--queue orders", exitNothing: "--queue none"} {
			for _, command := range []string{"list", "list -o json", "groups", "groups -o json", "export --file -", "send --dry-run", "send --dry-run -o json", "move --to parked --dry-run", "drop --copy never --dry-run"} {
				if strings.HasPrefix(command, "groups") && place == "orders.dlq" && want == exitDone {
					command += " --message-id x-1"
				}
				s.run(want, strings.Fields("dlq "+command+" "+place+" "+filter)...)
				if said := strings.Contains(s.err, "matched"); said != (want == exitNothing) {
					t.Errorf("rehop dlq %s %s: %s", command, place, s.err)
				}
			}
		}
		s.run(exitNothing, strings.Fields("dlq show "+place+" none")...)
		s.run(exitNothing, strings.Fields("dlq edit --key k "+place+" none")...)
	}
	s.run(exitDone, "dlq", "send", "orders.dlq", "--all", "--yes")
	for _, command := range []string{"list", "peek", "groups", "export", "send --all --yes"} {
		s.run(exitNothing, strings.Fields("dlq "+command+" orders.dlq")...)
	}
}

// A queue that does not exist is often the work queue, or a slip.
func TestAQueueThatDoesNotExistIsComparedWithOthers(t *testing.T) {
	s := open(t)
	s.declare(topology.DeadLetterQueue{Name: "billing.dlq"})
	commands := []string{"peek", "list", "groups", "export", "send --all --yes", "edit --key k", "collect --store " + filepath.Join(t.TempDir(), "letters.db")}
	says := func(queue, want string) {
		t.Helper()
		for _, command := range commands {
			line := "dlq " + command + " " + queue
			if strings.HasPrefix(command, "edit") {
				line += " 1"
			}
			s.run(exitFailed, strings.Fields(line)...)
			s.prints("no queue '"+queue+"'", want)
		}
	}
	says("billing", `did you mean "billing.dlq"?`)
	s.manage()
	says("billing", `did you mean "billing.dlq"?`)
	says("biling.dlq", `did you mean "billing.dlq"?`)
	s.run(exitFailed, "dlq", "peek", "shipping")
	if strings.Contains(s.err, "did you mean") {
		t.Errorf("nothing is near to shipping: %s", s.err)
	}
}
