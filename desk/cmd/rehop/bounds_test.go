package main

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
)

// late puts letters into the queue behind those that were looked at.
func (s *shell) late(n int) {
	s.Helper()
	conn, err := amqp.Dial(s.url)
	must(s.T, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(s.T, err)
	must(s.T, ch.Confirm(false))
	for i := range n {
		c, err := ch.PublishWithDeferredConfirm("", "orders.dlq", false, false, amqp.Publishing{
			MessageId: fmt.Sprint("late-", i),
			Headers:   amqp.Table{"x-rehop-queue": "orders", "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(5), "x-rehop-error": "no stock"},
		})
		must(s.T, err)
		c.Wait()
	}
}

// What somebody agrees to is what is done, though letters come before the answer.
func TestWhatWasAgreedToIsDone(t *testing.T) {
	for _, tt := range []struct {
		rule, line, asked string
		sent              int
	}{
		{"all", "dlq send orders.dlq --all", "send 6 letters of queue orders.dlq", 6},
		{"all, of which a look sees two", "dlq send orders.dlq --all --window 2", "send at most 6 letters of queue orders.dlq", 6},
		{"a condition", "dlq move orders.dlq --error stock --to orders", "move to orders 3 letters", 3},
		{"a limit", "dlq send orders.dlq --all --limit 2", "send 2 letters", 2},
		{"a limit that is more than there are", "dlq send orders.dlq --all --limit 100", "send 6 letters", 6},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s := open(t)
			s.tty = true
			s.in = answering(func() string { s.late(4); return "y\n" })
			s.run(exitDone, strings.Fields(tt.line)...)
			s.prints(tt.asked, fmt.Sprintf("%d ", tt.sent))
			s.has("orders", tt.sent)
			s.has("orders.dlq", 10-tt.sent)
			s.run(exitDone, "redrives")
			s.prints("OF", fmt.Sprintf("  %d  ", tt.sent))
		})
	}
}

// answering is a person who does something else before the answer.
type answering func() string

func (a answering) Read(p []byte) (int, error) { return copy(p, a()), nil }

func TestADryRunSaysItsBound(t *testing.T) {
	s := open(t)
	s.run(exitDone, "dlq", "send", "orders.dlq", "--all", "--dry-run")
	s.prints("dry run: nothing was sent; without --dry-run, 6 letters would be tried\n")
	s.run(exitDone, "dlq", "send", "orders.dlq", "--error", "stock", "--window", "2", "--dry-run")
	s.prints("without --dry-run, at most 6 letters would be tried\n")
	s.run(exitDone, "dlq", "send", "orders.dlq", "--all", "--limit", "2", "--dry-run")
	s.prints("without --dry-run, 2 letters would be tried\n")
	s.run(exitDone, "dlq", "move", "orders.dlq", "--message-id", "m-1", "--to", "orders", "--dry-run", "-o", "json")
	s.prints("dry run: nothing was moved; without --dry-run, 1 letter would be tried\n")
	s.run(exitNothing, "dlq", "drop", "orders.dlq", "--error", "other", "--copy", "never", "--dry-run")
	s.prints("dry run: nothing was dropped\n", "no letter matched")
	s.has("orders.dlq", 6)
}

// A variable of the shell that is not set is no condition, and does not go unnoticed.
func TestABlankConditionIsRefused(t *testing.T) {
	s := open(t)
	for _, flag := range []string{"--error=", "--text= ", "--queue=", "--exchange=\t", "--key=", "--cause= ", "--error-type=", "--group=", "--id=", "--message-id= ", "--header=", "--header==x", "--state="} {
		for _, command := range []string{"send", "list", "export"} {
			args := []string{"dlq", command, "orders.dlq", "--error", "stock", flag}
			if command == "send" {
				args = append(args, "--all", "--yes")
			}
			s.run(exitUsage, args...)
			name, _, _ := strings.Cut(flag, "=")
			s.prints(name)
		}
	}
	s.run(exitUsage, "dlq", "send", "orders.dlq", "--header", "tenant=a", "--header", "tenant=b")
	s.prints("--header names", "tenant", "twice")
	s.has("orders.dlq", 6)
}

func TestTheBarCountsAgainstTheBound(t *testing.T) {
	for _, tt := range []struct {
		rule string
		p    desk.Progress
		want string
	}{
		{"all", desk.Progress{State: desk.Running, Bound: 150_000, Matched: 99_099, Done: 90_056}, "[##################............] 90056 of 150000"},
		{"not counted", desk.Progress{State: desk.Running, Matched: 99_099, Done: 90_056}, "90056 of at least 99099"},
		{"a limit", desk.Progress{State: desk.Running, Matched: 5, Done: 5, Redrive: desk.Redrive{Limit: 50}}, "5 of at most 50"},
	} {
		var b strings.Builder
		a := app{streams: streams{err: &b, errTTY: true}}
		tell, _ := a.watch()
		tell(tt.p)
		if !strings.Contains(b.String(), tt.want) {
			t.Errorf("%s: %q, want %q", tt.rule, b.String(), tt.want)
		}
	}
}

// What an earlier process has done is no part of the pace of the one that goes on.
func TestThePaceIsThatOfThisProcess(t *testing.T) {
	var b strings.Builder
	a := app{streams: streams{err: &b}}
	tell, _ := a.watch()
	tell(desk.Progress{State: desk.Running, Bound: 2000, Done: 900, DoneBefore: 900})
	if strings.Contains(b.String(), "per second") {
		t.Errorf("%q, want no pace: nothing is done yet", b.String())
	}
}

// The reason of a redrive that failed stands once in what a person reads, without the name of a package.
func TestTheReasonOfAFailureIsPrintedOnce(t *testing.T) {
	s := open(t)
	s.late(10)
	for _, line := range []string{"dlq send orders.dlq --all --yes --to missing --redrive one", "redrives resume one"} {
		s.run(exitFailed, strings.Fields(line)...)
		if n := strings.Count(s.out+s.err, `"missing"`); n != 1 {
			t.Errorf("%s: the target is named %d times, want once: %s%s", line, n, s.out, s.err)
		}
		s.prints("redrive one failed: 0 sent, 10 failed", "10 letters in a row", "redrives resume one")
		for _, also := range []string{"", "redrives", "dlq audit -o wide"} {
			if also != "" {
				s.run(exitDone, strings.Fields(also)...)
			}
			if strings.Contains(s.out+s.err, "desk: ") {
				t.Errorf("%s, %s: %s%s", line, also, s.out, s.err)
			}
		}
	}
}
