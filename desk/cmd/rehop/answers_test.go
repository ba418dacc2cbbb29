package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// manage serves a management API for the queues of the broker.
func (s *shell) manage() {
	info := func(name string) map[string]any {
		q, _ := s.broker.Queue(name)
		return map[string]any{
			"name": name, "type": q.Type, "arguments": q.Arguments, "messages_ready": len(q.Ready), "messages_unacknowledged": len(q.Unacked), "consumers": q.Consumers,
		}
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		if name, one := strings.CutPrefix(r.URL.Path, "/api/queues///"); one {
			answer = info(name)
		} else {
			items := []any{}
			for _, name := range s.broker.Queues() {
				items = append(items, info(name))
			}
			answer = map[string]any{"page_count": 1, "items": items}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			s.Error(err)
		}
	}))
	s.Cleanup(api.Close)
	s.Setenv("AMQP_MANAGEMENT_URL", "http://guest:guest@"+strings.TrimPrefix(api.URL, "http://"))
}

func (s *shell) declare(specs ...topology.Spec) {
	s.Helper()
	conn, err := connection.Open(s.Context(), connection.Config{URLs: []string{s.url}})
	must(s, err)
	defer conn.Close()
	must(s, topology.Declare(s.Context(), conn, specs...))
}

// dead publishes letters of a work queue.
func (s *shell) body(id, body string) {
	s.Helper()
	_, err := s.broker.Publish(rehoptest.Message{RoutingKey: "orders.dlq", Publishing: amqp.Publishing{MessageId: id, Body: []byte(body), Headers: amqp.Table{"x-rehop-queue": "orders"}}})
	must(s, err)
}

func (s *shell) dead(dlq, queue string, ids ...string) {
	s.Helper()
	for _, id := range ids {
		_, err := s.broker.Publish(rehoptest.Message{RoutingKey: dlq, Publishing: amqp.Publishing{MessageId: id, Headers: amqp.Table{"x-rehop-queue": queue, "x-rehop-error": "it's full"}}})
		must(s, err)
	}
}

func TestLanesNameTheDeadLetterQueueThatTheyShare(t *testing.T) {
	s := open(t)
	s.manage()
	s.declare(topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "express"}, {Name: "normal"}}, OneDeadLetterQueue: true})
	s.dead("sms.dlq", "sms.normal", "s-1", "s-2")
	s.run(exitDone, "queues")
	for _, row := range []string{`sms\.express +0 +0 +0 +2 in sms\.dlq +0`, `sms\.normal +0 +0 +0 +2 in sms\.dlq +0`, `sms\.dlq +2 +0 +0 +- +0`, `orders +0 +0 +0 +6 +0`} {
		if !regexp.MustCompile(`(?m)^` + row).MatchString(s.out) {
			t.Errorf("no row %q:\n%s", row, s.out)
		}
	}
	s.run(exitDone, "doctor")
	s.prints("sms.dlq: 2 dead letters", "orders.dlq: 6 dead letters")
}

func TestALetterIsShownByItsMessageID(t *testing.T) {
	s := open(t)
	s.dead("orders.dlq", "orders", "twice", "it's mine")
	s.dead("orders.dlq", "mails", "twice")
	s.run(exitDone, "dlq", "show", "orders.dlq", "m-3")
	s.prints("m-3", "no such customer")
	s.run(exitDone, "dlq", "audit", "-n", "1")
	s.prints("show", "queue orders.dlq")
	s.run(exitDone, "dlq", "show", "orders.dlq", "it's mine")
	s.run(exitFailed, "dlq", "show", "orders.dlq", "twice")
	s.prints("2 letters have the message id twice", "rehop dlq list orders.dlq --message-id twice")
	s.run(exitNothing, "dlq", "show", "orders.dlq", "of another", "--window", "50")
	s.prints("there is no such letter", `rehop dlq list orders.dlq --window 50 --message-id 'of another'`)

	letters := s.collect("orders.dlq")
	s.run(exitDone, "dlq", "show", "--store", letters, "m-3")
	s.prints("m-3", "no such customer")
	s.run(exitDone, "dlq", "audit", "-n", "1")
	s.prints("show", "letters.db")
	s.run(exitFailed, "dlq", "show", "--store", letters, "twice")
	s.prints("2 letters have", "rehop dlq list --store "+letters+" --message-id twice")
	s.run(exitNothing, "dlq", "show", "--store", letters, "none")
	s.prints("an id is a number", "--message-id none")
}

// An id that names no letter, or several, begins no redrive.
func TestALetterIsEditedByItsMessageID(t *testing.T) {
	s := open(t)
	s.dead("orders.dlq", "orders", "twice")
	s.dead("orders.dlq", "mails", "twice")
	s.run(exitFailed, "dlq", "edit", "orders.dlq", "twice", "--header", "tenant=acme")
	s.prints("2 letters have the message id twice; name one by its id: rehop dlq list orders.dlq --message-id twice")
	s.run(exitNothing, "dlq", "edit", "orders.dlq", "none", "--header", "tenant=acme")
	s.prints("there is no such letter", "--message-id none")
	s.run(exitDone, "redrives", "-o", "json")
	if strings.TrimSpace(s.out) != "[]" {
		t.Errorf("a redrive has begun: %s", s.out)
	}
	s.run(exitDone, "dlq", "edit", "orders.dlq", "m-3", "--header", "tenant=acme")
	s.has("orders", 1)
	s.has("orders.dlq", 7)

	letters := s.collect("orders.dlq")
	s.run(exitFailed, "dlq", "edit", "--store", letters, "twice", "--header", "tenant=acme")
	s.run(exitDone, "dlq", "edit", "--store", letters, "m-4", "--header", "tenant=acme")
	s.run(exitDone, "dlq", "edit", "--store", letters, "m-4", "--header", "debug=yes", "--send")
	q, _ := s.broker.Queue("orders")
	if len(q.Ready) != 2 || q.Ready[1].Headers["tenant"] != "acme" || q.Ready[1].Headers["debug"] != "yes" {
		t.Errorf("orders has %+v, want two messages, and both edits in the second", q.Ready)
	}
}

// A letter that a Forwarder has tried says so, and when it is tried again.
func TestALetterSaysItsTriesAndItsOrderKey(t *testing.T) {
	s := open(t)
	name := filepath.Join(t.TempDir(), "letters.db")
	db, err := sqlite.Open(name)
	must(t, err)
	defer db.Close()
	letters, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
	must(t, err)
	must(t, letters.Put(t.Context(), producer.Message{RoutingKey: "orders", ID: "m-0", OrderKey: "anna"}, producer.ErrReturned))
	next := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		rule, set   string
		tries, next bool
	}{
		{"it was never tried", "next_try = 0", false, false},
		{"it was tried", fmt.Sprintf("state = 'ready', tries = 3, try_error = 'no such exchange', next_try = %d", next.UnixMilli()), true, true},
		{"somebody is publishing it, until the end of a lease", "lease = 'somebody'", true, false},
		{"it waits for a person", "lease = '', state = 'parked'", true, false},
	} {
		_, err := db.ExecContext(t.Context(), "UPDATE rehop_letters SET "+tt.set)
		must(t, err)
		s.run(exitDone, "dlq", "show", "--store", name, "1")
		s.prints("order key      anna\n")
		if tries, next := strings.Contains(s.out, "tries          3 in vain, the last: no such exchange\n"), strings.Contains(s.out, "next try       at 2030-01-02 03:04:05 UTC or later\n"); tries != tt.tries || next != tt.next {
			t.Errorf("%s: its tries are shown: %t, and the next: %t: %s", tt.rule, tries, next, s.out)
		}
		s.run(exitDone, "dlq", "show", "--store", name, "1", "-o", "json")
		var l letterJSON
		must(t, json.Unmarshal([]byte(s.out), &l))
		if l.OrderKey != "anna" || (l.Tries == 3 && l.TryError == "no such exchange") != tt.tries || l.NextTry.Equal(next) != tt.next {
			t.Errorf("%s: %+v", tt.rule, l)
		}
	}
}

// collect collects the letters of a queue into a store.
func (s *shell) collect(queue string) (letters string) {
	s.Helper()
	letters = filepath.Join(s.TempDir(), "letters.db")
	s.collectInto(queue, letters)
	return letters
}

func (s *shell) collectInto(queue, letters string) {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"dlq", "collect", queue, "--store", letters}, streams{in: strings.NewReader(""), out: io.Discard, err: io.Discard})
	}()
	for q, _ := s.broker.Queue(queue); len(q.Ready)+len(q.Unacked) > 0; q, _ = s.broker.Queue(queue) {
		runtime.Gosched()
	}
	stop()
	if code := <-ended; code != exitDone {
		s.Errorf("exit code %d of collect", code)
	}
}

func TestADryRunNamesTheCommandThatListsTheRest(t *testing.T) {
	s := open(t)
	for i := range 94 {
		s.dead("orders.dlq", "orders", fmt.Sprint("f-", i))
	}
	send := []string{"dlq", "send", "orders.dlq", "--dry-run", "--error", "it's full", "--queue", "orders", "--rate", "9", "--limit", "500"}
	s.run(exitDone, send...)
	s.prints("f-93")
	if strings.Contains(s.err, "more") || strings.Contains(s.err, "shown") {
		t.Errorf("94 letters are not all shown: %s", s.err)
	}
	for i := range 7 {
		s.dead("orders.dlq", "orders", fmt.Sprint("g-", i))
	}
	s.run(exitDone, send...)
	s.prints("100 of 101 shown", `more: rehop dlq list orders.dlq --error 'it'\''s full' --queue orders --after 106`)
	s.run(exitDone, "dlq", "list", "orders.dlq", "--error", "it's full", "--queue", "orders", "--after", "106")
	s.prints("g-6")
	s.run(exitDone, "dlq", "list", "orders.dlq", "--limit", "2", "--message-id", "m-1", "--message-id", "f-1", "--message-id", "f-2", "--header", "x-rehop-queue")
	s.prints("more: rehop dlq list orders.dlq --header x-rehop-queue --limit 2 --message-id m-1 --message-id f-1 --message-id f-2 --after 8")
	letters := s.collect("orders.dlq")
	s.run(exitDone, "dlq", "list", "--store", letters, "--limit", "1", "--state", "held,parked")
	s.prints("more: rehop dlq list --store " + letters + " --limit 1 --state held --state parked --after ")
}

func TestWhatLooksHaveCountedIsNoAttempt(t *testing.T) {
	s := open(t)
	s.run(exitDone, "dlq", "list", "orders.dlq")
	s.run(exitDone, "dlq", "show", "orders.dlq", "m-0")
	s.prints("x-acquired-count: 1 (counted by the dead-letter queue: looks)", "x-rehop-final-attempts: 5\n")
	s.run(exitDone, "dlq", "export", "orders.dlq")
	s.prints(`"x-acquired-count"`)
}

func TestARedriveThatNoLetterMatchedSaysSoEverywhere(t *testing.T) {
	s := open(t)
	letters := s.collect("orders.dlq")
	s.dead("orders.dlq", "orders", "m-7")
	for redrive, args := range map[string][]string{
		"live": {"send", "orders.dlq"}, "collected": {"send", "--store", letters}, "dropped": {"drop", "--store", letters, "--copy", filepath.Join(t.TempDir(), "copy")},
	} {
		s.run(exitNothing, append([]string{"dlq", "--yes", "--redrive", redrive, "--error", "none of them"}, args...)...)
		if !strings.Contains(s.out, "redrive "+redrive+" done: 0 ") || !strings.Contains(s.out, "; no letter matched\n") || !strings.Contains(s.err, "rehop: no letter matched\n") {
			t.Errorf("prints %s%s", s.out, s.err)
		}
	}
	s.run(exitDone, "redrives")
	if n := strings.Count(s.out, "no letter matched"); n != 3 {
		t.Errorf("%d redrives say that no letter matched, want 3:\n%s", n, s.out)
	}
}

// What programs read has names of one form, and no zero time.
func TestTheJSONOfTheCommand(t *testing.T) {
	s := open(t)
	s.manage()
	s.declare(topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "express"}, {Name: "normal"}}, OneDeadLetterQueue: true})
	for _, line := range []string{
		"redrives", "dlq audit", "queues", "dlq list", "dlq list orders.dlq", "dlq peek orders.dlq", "dlq groups orders.dlq", "dlq show orders.dlq m-0", "doctor",
		"dlq send orders.dlq --message-id m-0 --to shop/again --dry-run", "dlq send orders.dlq --message-id m-0 --to /orders --canary 1ms --redrive sent",
		"redrives", "dlq audit",
	} {
		s.run(exitDone, append(strings.Fields(line), "-o", "json")...)
		var answer any
		must(t, json.Unmarshal([]byte(s.out), &answer))
		if answer == nil {
			t.Errorf("rehop %s: null", line)
		}
		checkJSON(t, line, answer)
	}
	s.run(exitDone, "redrives", "-o", "json")
	s.prints(`"routing_key": "orders"`)
	s.run(exitDone, "queues", "-o", "json")
	s.prints(`"dead_letters": "sms.dlq"`)
}

var snake = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func checkJSON(t *testing.T, where string, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if !snake.MatchString(name) {
				t.Errorf("rehop %s: name %q", where, name)
			}
			if name != "headers" { // whose names are the user's
				checkJSON(t, where, inner)
			}
		}
	case []any:
		for _, inner := range v {
			checkJSON(t, where, inner)
		}
	case string:
		if strings.HasPrefix(v, "0001-") {
			t.Errorf("rehop %s: time %s", where, v)
		}
	}
}

func TestACanaryThatIsTooShortIsSaid(t *testing.T) {
	s := open(t)
	s.declare(topology.WorkQueue{Name: "mails", Waits: []time.Duration{3 * time.Second, 6 * time.Second}},
		topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "express"}, {Name: "normal"}}, Waits: []time.Duration{time.Hour}, OneDeadLetterQueue: true})
	s.dead("mails.dlq", "mails", "a-1", "a-2", "a-3", "a-4", "a-5", "a-6")
	s.dead("sms.dlq", "sms.normal", "b-1")
	warns := func(warning string, args ...string) {
		t.Helper()
		s.run(exitDone, append([]string{"dlq", "send", "--canary", "10ms"}, args...)...)
		if got := strings.Contains(s.err, "warning: "); got != (warning != "") || !strings.Contains(s.err, warning) {
			t.Errorf("%q: %s; want the warning %q", args, cmp.Or(s.err, "nothing"), warning)
		}
	}
	warns("", "mails.dlq", "--message-id", "a-1") // nobody lists the waits
	s.manage()
	const ofMails = "warning: a canary of 10ms is too short: a message that is retried becomes a letter after 9s at the earliest, the waits of mails together\n"
	warns(ofMails, "mails.dlq", "--message-id", "a-2", "--redrive", "short")
	warns("the waits of sms.", "sms.dlq", "--all", "--yes")
	warns("", "mails.dlq", "--message-id", "a-3", "--to", "orders") // which has no waits
	warns("", "orders.dlq", "--message-id", "m-0")
	warns(ofMails, "orders.dlq", "--message-id", "m-1", "--to", "mails")
	s.run(exitDone, "dlq", "send", "mails.dlq", "--message-id", "a-4")
	if strings.Contains(s.err, "warning") {
		t.Errorf("a warning without a canary: %s", s.err)
	}
	s.run(exitDone, "dlq", "audit") // an operator who trusted the canary looks here
	s.prints("a canary of 10ms is too short")
	warns(ofMails, "--store", s.collect("mails.dlq"), "--message-id", "a-5")
}
