package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/rehoptest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shell runs commands against a broker in the process.
type shell struct {
	*testing.T
	broker *rehoptest.Broker
	url    string
	tty    bool
	outTTY bool
	answer string
	in     io.Reader // instead of answer

	out, err string // of the last command
}

func open(t *testing.T) *shell {
	t.Helper()
	for _, name := range []string{"AMQP_URL", "AMQP_VHOST", "AMQP_MANAGEMENT_URL", "REHOP_CONFIG"} {
		t.Setenv(name, "")
	}
	t.Setenv("REHOP_JOURNAL", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	must(t, err)
	t.Cleanup(func() { broker.Close() })
	address, err := broker.Listen()
	must(t, err)
	s := &shell{T: t, broker: broker, url: "amqp://guest:guest@" + address}
	conn, err := amqp.Dial(s.url)
	must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(t, err)
	must(t, ch.Confirm(false))
	for _, q := range []string{"orders", "orders.dlq"} {
		_, err = ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(-1)})
		must(t, err)
	}
	for i := range 6 {
		why := "no stock"
		if i%2 == 1 {
			why = "no such customer \x1b[31mred"
		}
		c, err := ch.PublishWithDeferredConfirm("", "orders.dlq", false, false, amqp.Publishing{
			MessageId: fmt.Sprint("m-", i), Body: fmt.Appendf(nil, `{"order":%d}`, i),
			Headers: amqp.Table{"x-rehop-queue": "orders", "x-rehop-exchange": "shop", "x-rehop-routing-key": "order.paid", "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(5), "x-rehop-error": why},
		})
		must(t, err)
		c.Wait()
	}
	t.Setenv("AMQP_URL", s.url)
	return s
}

// run runs a command line and checks its exit code; -1: any.
func (s *shell) run(code int, args ...string) {
	s.Helper()
	var out, err bytes.Buffer
	in := s.in
	if in == nil {
		in = strings.NewReader(s.answer)
	}
	got := run(s.Context(), args, streams{in: in, out: &out, err: &err, inTTY: s.tty, outTTY: s.outTTY})
	s.out, s.err = out.String(), err.String()
	if got != code && code >= 0 {
		s.Errorf("rehop %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, s.out, s.err)
	}
}

func (s *shell) prints(parts ...string) {
	s.Helper()
	for _, part := range parts {
		if !strings.Contains(s.out+s.err, part) {
			s.Errorf("does not print %q:\n%s%s", part, s.out, s.err)
		}
	}
}

func (s *shell) has(queue string, n int) {
	s.Helper()
	if q, _ := s.broker.Queue(queue); len(q.Ready) != n {
		s.Errorf("%s has %d letters, want %d", queue, len(q.Ready), n)
	}
}

func TestLookingAround(t *testing.T) {
	s := open(t)
	s.run(exitDone, "dlq", "peek", "orders.dlq", "-n", "2")
	s.prints("m-0", "m-1", "no stock", "2 of 6 shown")
	if strings.Contains(s.out, "\x1b") {
		t.Error("a letter reaches the terminal with its escapes")
	}
	s.run(exitDone, "dlq", "groups", "orders.dlq")
	s.prints("GROUP", "no stock", "no such customer")
	if strings.Contains(s.out, "ERROR OF ONE") {
		t.Error("a group is called by one of its letters")
	}
	s.run(exitDone, "dlq", "groups", "orders.dlq", "-o", "json")
	s.prints(`"error": "no stock`)
	s.run(exitDone, "dlq", "list", "orders.dlq", "--error", "stock", "--output", "json")
	var list struct {
		Letters []letterJSON
		Matched int
	}
	must(t, json.Unmarshal([]byte(s.out), &list))
	if list.Matched != 3 || list.Letters[0].Queue != "orders" || list.Letters[0].Attempts != 5 {
		t.Errorf("%+v", list)
	}
	s.run(exitDone, "dlq", "show", "orders.dlq", list.Letters[0].ID)
	s.prints("no stock", "life", "published to exchange \"shop\" with key \"order.paid\"", `"order": 0`)
	s.run(exitNothing, "dlq", "show", "orders.dlq", "none")
	s.prints("rehop: there is no such letter", "18 hexadecimal digits", "rehop dlq list")
	if n := len(list.Letters[0].ID); n != 18 {
		t.Errorf("an id has %d digits, and the help says 18", n)
	}
	s.run(exitFailed, "queues")
	s.prints("AMQP_MANAGEMENT_URL")
	s.run(exitDone, "doctor")
	s.prints("connected to", "management")
	s.run(exitDone, "dlq", "list", "orders.dlq", "--output", "wide")
	s.prints("order.paid", "BYTES")
	s.has("orders.dlq", 6)
}

func TestQueuesSayHowOldTheirNumbersAre(t *testing.T) {
	s := open(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"page_count":1,"items":[{"name":"orders.dlq","type":"quorum","messages_ready":6,"arguments":{},"head_message_timestamp":1700000000123}]}`)
	}))
	defer api.Close()
	address := "http://guest:guest@" + strings.TrimPrefix(api.URL, "http://")
	for _, line := range []string{"queues", "dlq list"} {
		s.run(exitDone, append([]string{"--management-url", address}, strings.Fields(line)...)...)
		s.prints("orders.dlq", "taken at ", "lag by up to 10 s")
		began := time.Now()
		s.run(exitDone, append([]string{"--management-url", address, "-o", "json"}, strings.Fields(line)...)...)
		var queues []desk.Queue
		must(t, json.Unmarshal([]byte(s.out), &queues))
		if len(queues) == 1 && !queues[0].Oldest.IsZero() {
			t.Errorf("milliseconds are taken for %v", queues[0].Oldest)
		}
		if len(queues) != 1 || queues[0].At.Before(began) || queues[0].At.After(time.Now()) {
			t.Errorf("taken at %v", queues)
		}
	}
}

func TestTheNullDeviceIsNoTerminal(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stdin") // standard input has another name too
	must(t, os.Symlink(os.DevNull, name))
	null, err := os.Open(name)
	must(t, err)
	defer null.Close()
	if isTerminal(null) {
		t.Error("the null device is taken for a terminal")
	}
}

func TestWrongCommandLines(t *testing.T) {
	s := open(t)
	for _, line := range []string{
		"dlq peek", "dlq send orders.dlq", "dlq peek orders.dlq --colour", "--output xml queues", "dlq edit orders.dlq x", "dlq edit orders.dlq x --header tenant",
		"dlq send orders.dlq --all --yes --rate -0.5", "dlq send orders.dlq --all --yes --rate NaN", "dlq drop orders.dlq --all --copy /tmp/never", "dlq groups", "dlq show orders.dlq",
		"bogus", "dlq bogus", "redrives bogus", "queues bogus",
	} {
		s.run(exitUsage, strings.Fields(line)...)
	}
	s.prints("rehop:")
	s.has("orders.dlq", 6)
	t.Setenv("AMQP_URL", "")
	s.run(exitUsage, "queues")
	s.prints("--url")
	s.run(exitFailed, "--url", "amqp://guest:wrong@"+strings.TrimPrefix(s.url, "amqp://guest:guest@"), "doctor")
	s.prints("password")
	if strings.Contains(s.out+s.err, "wrong@") {
		t.Error("a password is printed")
	}
}

func TestAStoreThatIsNotThereIsNotMade(t *testing.T) {
	s := open(t)
	name := filepath.Join(t.TempDir(), "typo.db")
	for _, line := range []string{"dlq list", "dlq groups", "dlq send --all --yes", "dlq export", "desk"} {
		s.run(exitFailed, append(strings.Fields(line), "--store", name)...)
		s.prints("--store", "typo.db", "rehop dlq collect")
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			t.Fatalf("%s has made the file: %v", line, err)
		}
	}
}

// A span that reaches nowhere would select more letters than were asked for.
func TestASpanIsMoreThanZero(t *testing.T) {
	s := open(t)
	for _, line := range []string{"--newer -1h", "--newer 0s", "--older -24h", "--older 0"} {
		s.run(exitUsage, append(strings.Fields("dlq send orders.dlq --error stock"), strings.Fields(line)...)...)
		s.prints(strings.Fields(line)[0], strings.Fields(line)[1], "more than 0")
		s.has("orders.dlq", 6)
	}
}

func TestAnIDMayHaveACommaInIt(t *testing.T) {
	s := open(t)
	conn, err := amqp.Dial(s.url)
	must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(t, err)
	must(t, ch.Confirm(false))
	c, err := ch.PublishWithDeferredConfirm("", "orders.dlq", false, false, amqp.Publishing{MessageId: "m-0,m-1"})
	must(t, err)
	c.Wait()
	s.run(exitDone, "dlq", "peek", "orders.dlq", "-n", "7")
	for want, ids := range map[int][]string{1: {"m-0,m-1"}, 3: {"m-0,m-1", "m-2", "m-4"}} {
		args := []string{"dlq", "list", "orders.dlq", "--output", "json"}
		for _, id := range ids {
			args = append(args, "--message-id", id)
		}
		s.run(exitDone, args...)
		var list struct {
			Letters []letterJSON
			Matched int
		}
		must(t, json.Unmarshal([]byte(s.out), &list))
		if list.Matched != want || list.Letters[len(list.Letters)-1].MessageID != "m-0,m-1" {
			t.Errorf("%q: %+v", ids, list)
		}
	}
}

func TestSendingBack(t *testing.T) {
	s := open(t)
	s.run(exitDone, "dlq", "send", "orders.dlq", "--all", "--dry-run")
	s.prints("m-0")
	s.has("orders", 0)
	s.run(exitDone, "dlq", "send", "orders.dlq", "--error", "no stock", "--why", "stock came in", "--redrive", "first")
	s.prints("redrive first done: 3 sent")
	s.has("orders", 3)
	s.run(exitNothing, "dlq", "send", "orders.dlq", "--error", "no stock", "--redrive", "empty")
	s.prints("no letter matched")
	s.run(exitPartly, "dlq", "send", "orders.dlq", "--error", "customer", "--to", "missing", "--redrive", "second", "-y")
	s.prints("rehop redrives resume second")
	s.run(exitFailed, "dlq", "send", "nosuch.dlq", "--all", "--yes")
	s.prints("nosuch.dlq")
	if strings.Contains(s.out+s.err, "resume") {
		t.Errorf("a mistyped queue is to be gone on with: %s%s", s.out, s.err)
	}
	s.run(exitDone, "redrives")
	s.prints("first", "second", "missing")
	s.run(exitDone, "dlq", "audit", "-o", "json")
	s.prints("stock came in")
	if strings.Contains(s.out, "empty") {
		t.Errorf("the audit has a redrive that no letter matched: %s", s.out)
	}
	s.run(exitDone, "redrives", "stop", "second")
	s.run(exitPartly, "redrives", "resume", "second", "--why", "somebody has made it")
	s.run(exitDone, "dlq", "audit")
	s.prints("resume", "somebody has made it")
	s.run(exitUsage, "dlq", "move", "orders.dlq", "--all", "--to", "orders") // nobody to ask
	s.prints("--yes")
	s.run(exitUsage, "dlq", "send", "orders.dlq", "--all")
	s.prints("--yes")
	s.tty, s.answer = true, "no\n"
	s.run(exitFailed, "dlq", "move", "orders.dlq", "--all", "--to", "orders")
	s.prints("[y/N]", "3 letters", "nothing was done")
	s.answer = "y\n"
	s.run(exitDone, "dlq", "move", "orders.dlq", "--all", "--to", "orders")
	s.has("orders", 6)
	s.has("orders.dlq", 0)
}

// A letter that may be one that was sent stays, and the command says how to decide.
func TestALetterMaybeSentStaysUntilSomebodyDecides(t *testing.T) {
	for answer, want := range map[string]struct{ letters, sent int }{"delete": {0, 5}, "again": {0, 6}} {
		t.Run(answer, func(t *testing.T) {
			s := open(t)
			s.run(exitDone, "dlq", "peek", "orders.dlq", "-n", "1", "-o", "json")
			var head struct{ Letters []struct{ ID string } }
			must(t, json.Unmarshal([]byte(s.out), &head))
			folder := filepath.Join(os.Getenv("REHOP_JOURNAL"), "redrives")
			must(t, os.MkdirAll(folder, 0o700))
			must(t, os.WriteFile(filepath.Join(folder, "first.jsonl"), fmt.Appendf(nil, `{"redrive":{"id":"first","action":"send","all":true,"source":"queue orders.dlq"}}
{"try":[%q]}
{"sent":[%[1]q]}
`, head.Letters[0].ID), 0o600))
			s.run(exitPartly, "redrives", "resume", "first")
			s.prints("1 perhaps sent", `"m-0"`, "rehop redrives resume first --maybe-sent delete", "--maybe-sent again")
			s.has("orders.dlq", 1)
			s.run(exitUsage, "redrives", "resume", "first", "--maybe-sent", "perhaps")
			s.run(exitDone, "redrives", "resume", "first", "--maybe-sent", answer)
			s.has("orders.dlq", want.letters)
			s.has("orders", want.sent)
		})
	}
}

// A redrive that has sent as many letters as its limit, such as an edit, sends none that may have been sent. The command does not say that it would.
func TestALetterMaybeSentBeyondTheLimitIsForAnotherRedrive(t *testing.T) {
	s := open(t)
	s.run(exitDone, "dlq", "peek", "orders.dlq", "-n", "1", "-o", "json")
	var head struct{ Letters []struct{ ID string } }
	must(t, json.Unmarshal([]byte(s.out), &head))
	folder := filepath.Join(os.Getenv("REHOP_JOURNAL"), "redrives")
	must(t, os.MkdirAll(folder, 0o700))
	must(t, os.WriteFile(filepath.Join(folder, "first.jsonl"), fmt.Appendf(nil, `{"redrive":{"id":"first","action":"send","all":true,"limit":1,"source":"queue orders.dlq"}}
{"try":[%q]}
{"sent":[%[1]q]}
`, head.Letters[0].ID), 0o600))
	s.run(exitPartly, "redrives", "resume", "first")
	s.prints("1 perhaps sent", "rehop redrives resume first --maybe-sent delete", "if it has not, another redrive takes them")
	if strings.Contains(s.err, "--maybe-sent again") {
		t.Errorf("an answer that changes nothing: %s", s.err)
	}
}

// To read a journal that is not there makes none.
func TestReadingMakesNoJournal(t *testing.T) {
	s := open(t)
	folder := filepath.Join(t.TempDir(), "state", "rehop")
	t.Setenv("REHOP_JOURNAL", folder)
	s.run(exitDone, "redrives")
	s.run(exitDone, "dlq", "audit")
	s.run(exitFailed, "redrives", "stop", "none")
	s.run(exitFailed, "redrives", "resume", "none")
	if _, err := os.Stat(filepath.Dir(folder)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder above it: %v, want that it is not there", err)
	}
	s.run(exitDone, "dlq", "send", "orders.dlq", "--error", "no stock")
	s.run(exitDone, "redrives")
	s.prints("done")
}

func TestLettersInTheHandsOfAnotherConsumer(t *testing.T) {
	s := open(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"name":"orders.dlq","type":"quorum","messages_ready":0,"messages_unacknowledged":6,"arguments":{"x-delivery-limit":-1}}`)
	}))
	defer api.Close()
	address := "http://guest:guest@" + strings.TrimPrefix(api.URL, "http://")
	conn, err := amqp.Dial(s.url)
	must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(t, err)
	must(t, ch.Qos(6, 0, false))
	deliveries, err := ch.Consume("orders.dlq", "", false, false, false, false, nil)
	must(t, err)
	for range 6 {
		<-deliveries
	}
	s.run(exitNothing, "dlq", "send", "orders.dlq", "--error", "stock")
	s.prints("no letter matched", "the queue has other consumers, which may")

	// Letters of which nothing is known are no reason to call an answer whole.
	s.run(exitPartly, "dlq", "export", "orders.dlq")
	s.prints("would leave letters out", "what was ready, 0 letters: the queue has other consumers, which may have letters in hand")
	s.run(exitNothing, "dlq", "list", "orders.dlq")
	s.prints("what was ready, 0 letters: the queue has other consumers")
	s.run(exitNothing, "dlq", "send", "orders.dlq", "--error", "stock", "--management-url", address)
	s.prints("no letter matched", "other consumers had at most 6 letters in hand when the management API counted them, up to 10 s ago")
	s.run(exitPartly, "dlq", "export", "orders.dlq", "--management-url", address)
	s.prints("other consumers had at most 6 letters in hand when the management API counted them, up to 10 s ago")
	s.dead("orders.dlq", "orders", "ready-1", "ready-2")
	s.run(exitPartly, "dlq", "export", "orders.dlq")
	s.run(exitDone, "dlq", "export", "orders.dlq", "--limit", "2")
	s.run(exitDone, "dlq", "list", "orders.dlq")
	s.prints("ready-1", "about what was ready, 2 letters: other consumers had at most 6 letters in hand when the management API counted them, up to 10 s ago")

	s.broker.Drain("orders.dlq")
	must(t, ch.Ack(0, true))
	must(t, ch.Close())
	s.run(exitNothing, "dlq", "send", "orders.dlq", "--error", "stock", "--management-url", address) // which says what was
	if strings.Contains(s.out+s.err, "consumer") {
		t.Errorf("there is no other consumer: %s%s", s.out, s.err)
	}
}

func TestEditing(t *testing.T) {
	s := open(t)
	s.run(exitDone, "dlq", "list", "orders.dlq", "-o", "json")
	var list struct{ Letters []letterJSON }
	must(t, json.Unmarshal([]byte(s.out), &list))
	body := filepath.Join(t.TempDir(), "body.json")
	must(t, os.WriteFile(body, []byte(`{"order":`), 0o600))
	s.run(exitUsage, "dlq", "edit", "orders.dlq", list.Letters[2].ID, "--body", body)
	s.prints("--body: the body was JSON, and is none now: unexpected end")
	s.has("orders", 0)
	must(t, os.WriteFile(body, []byte(`{"order":"mended"}`), 0o600))
	s.run(exitDone, "dlq", "edit", "orders.dlq", list.Letters[2].ID, "--body", body, "--header", "tenant=acme")
	s.has("orders", 1)
	q, _ := s.broker.Queue("orders")
	if m := q.Ready[0]; string(m.Body) != `{"order":"mended"}` || m.Headers["tenant"] != "acme" || m.MessageId != "m-2" {
		t.Errorf("sent: %+v", m)
	}
	s.prints("-   \"order\": 2\n", "+   \"order\": \"mended\"\n", "header tenant: none -> acme\n", "the original is in ", "; it goes back as a letter with: rehop dlq import orders.dlq ")
	_, back, _ := strings.Cut(s.err, "letter with: rehop ")
	s.run(exitDone, strings.Fields(back)...)
	s.has("orders.dlq", 6)

	// Where somebody can answer, the difference is shown, and nothing is done without a yes.
	s.tty, s.answer = true, "n\n"
	edit := []string{"dlq", "edit", "orders.dlq", "m-2", "--body", body, "--content-type", "text/plain"}
	s.run(exitFailed, edit...)
	s.prints("-   \"order\": 2\n", "content type: none -> text/plain\n", "Send the changed message of 1 letter of queue orders.dlq (id=", "? [y/N] ", "nothing was done")
	s.has("orders.dlq", 6)
	s.answer = "y\n"
	s.run(exitDone, edit...)
	s.answer = ""
	s.run(exitDone, "dlq", "edit", "orders.dlq", "m-3", "--key", "order.late", "--remove-header", "none", "--yes")
	s.prints("routing key: order.paid -> order.late\n")
	s.has("orders", 3)
}

func TestALongMessageIDShowsItsEnd(t *testing.T) {
	s := open(t)
	s.dead("orders.dlq", "orders", "shop-orders-"+strings.Repeat("0", 60)+"-4711")
	s.run(exitDone, "dlq", "list", "orders.dlq")
	s.prints("shop-orders-000", "000-4711")
}

// A letter that was not looked for is not called absent.
func TestALetterThatIsNotFoundMayBeElsewhere(t *testing.T) {
	s := open(t)
	s.run(exitNothing, "dlq", "show", "orders.dlq", "m-5", "--window", "2")
	s.prints("among the first 2 of 6 letters", "and no letter that was looked at has this message id")
	s.run(exitNothing, "dlq", "show", "orders.dlq", "m-9")
	s.prints("and no letter has this message id")
	letters := s.collect("orders.dlq")
	s.run(exitDone, "dlq", "archive", "--store", letters, "--message-id", "m-5")
	s.run(exitNothing, "dlq", "show", "m-5", "--store", letters)
	s.prints("and no held or parked letter has this message id")
}

// A target without a sending is no target.
func TestAnEditThatSendsNothingHasNoTarget(t *testing.T) {
	s := open(t)
	letters := s.collect("orders.dlq")
	s.run(exitUsage, "dlq", "edit", "1", "--store", letters, "--header", "tenant=acme", "--to", "orders")
	s.prints("--to is for --send")
	s.run(exitDone, "dlq", "show", "1", "--store", letters)
	if strings.Contains(s.out, "tenant") {
		t.Errorf("the letter was edited: %s", s.out)
	}
	s.run(exitDone, "dlq", "edit", "1", "--store", letters, "--header", "tenant=acme", "--to", "orders", "--send")
	s.has("orders", 1)
}

func TestOutOfTheQueueAndBack(t *testing.T) {
	s := open(t)
	dir := t.TempDir()
	exported, dropped := filepath.Join(dir, "all.jsonl"), filepath.Join(dir, "dropped.jsonl")
	s.run(exitDone, "dlq", "export", "orders.dlq", "--file", exported)
	s.prints("6 letters written")
	s.run(exitDone, "dlq", "audit")
	s.prints(who(), "export")
	s.run(exitNothing, "dlq", "export", "orders.dlq", "--error", "of another kind")
	s.prints("0 letters written")
	s.run(exitFailed, "dlq", "export", "orders.dlq", "--file", exported) // exists
	behind := filepath.Join(dir, "behind.jsonl")
	for _, selected := range []string{"", "--error=customer", "--error=of another kind", "--limit=5"} { // one look sees 4 of 6
		s.run(exitPartly, strings.Fields("dlq export orders.dlq --window 4 --file "+behind+" "+strings.ReplaceAll(selected, " ", "_"))...)
		s.prints("0 letters written", "the first 4 of 6 letters", "collect them", "--limit")
		if left, _ := filepath.Glob(behind + "*"); len(left) > 0 {
			t.Errorf("%s: %v is left", selected, left)
		}
	}
	s.run(exitDone, "dlq", "export", "orders.dlq", "--window", "4", "--limit", "4", "--file", behind)
	s.prints("4 letters written")
	s.run(exitNothing, "dlq", "list", "orders.dlq", "--window", "4", "--message-id", "none")
	s.prints("no letter matched among the first 4 of 6 letters")
	for _, look := range []string{"list", "groups"} {
		s.run(exitDone, "dlq", look, "orders.dlq", "--window", "4")
		s.prints("the first 4 of 6 letters", "rehop dlq collect takes the letters out of the queue")
	}
	s.run(exitDone, "dlq", "drop", "orders.dlq", "--error", "customer", "--copy", dropped, "--yes")
	s.prints("copies are in " + dropped + "; all letters of the file go back with: rehop dlq import orders.dlq " + dropped + "\n")
	s.has("orders.dlq", 3)
	s.run(exitDone, "dlq", "import", "orders.dlq", dropped)
	s.has("orders.dlq", 6)
	must(t, os.WriteFile(dropped, []byte("{}\nnonsense\n"), 0o600))
	s.run(exitFailed, "dlq", "import", "orders.dlq", dropped)
	s.prints("--from 2")
	s.has("orders.dlq", 7)
}

// A queue gets the letters of a file once, whatever the file is called, unless somebody asks for them again.
func TestAFileIsImportedOnce(t *testing.T) {
	s := open(t)
	dir := t.TempDir()
	file, other := filepath.Join(dir, "letters.jsonl"), filepath.Join(dir, "other.jsonl")
	s.run(exitDone, "dlq", "export", "orders.dlq", "--file", file)
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(other, text, 0o600))
	s.run(exitDone, "dlq", "import", "orders", file)
	s.has("orders", 6)
	s.run(exitDone, "dlq", "audit", "-o", "wide")
	s.prints("file="+strconv.Quote(file), " sha256="+fmt.Sprintf("%x", sha256.Sum256(text))[:12])
	for _, again := range []string{file, other} {
		s.run(exitFailed, "dlq", "import", "orders", again)
		s.prints("has had these letters: ", ", from "+file, "--again imports them once more")
		s.run(exitFailed, "dlq", "import", "orders", again, "--from", "3")
		s.prints("--again")
	}
	s.has("orders", 6)
	s.run(exitDone, "dlq", "import", "orders", other, "--again")
	s.run(exitDone, "dlq", "import", "orders.dlq", file)
	s.has("orders", 12)

	must(t, os.WriteFile(file, []byte("{}\nnonsense\n{}\n"), 0o600))
	s.run(exitFailed, "dlq", "import", "orders", file)
	s.prints("--from 2")
	s.run(exitFailed, "dlq", "import", "orders", file)
	s.prints("has had these letters: 1 letter at ", "line 2", "--from", "--again")
	s.run(exitDone, "dlq", "import", "orders", file, "--from", "3")
	s.has("orders", 14)
	must(t, os.WriteFile(file, []byte("nonsense\n{}\n"), 0o600))
	for range 2 { // nothing has come of it
		s.run(exitFailed, "dlq", "import", "orders", file)
		s.prints("--from 1")
	}
}

func TestTheBrokerIsNamedByFlagThenEnvironmentThenFile(t *testing.T) {
	s := open(t)
	file := filepath.Join(t.TempDir(), "config")
	must(t, os.WriteFile(file, []byte("# the broker\nAMQP_URL = "+s.url+"\n"), 0o600))
	t.Setenv("AMQP_URL", "")
	s.run(exitDone, "--config", file, "doctor")
	t.Setenv("AMQP_URL", "amqp://127.0.0.1:1")
	s.run(exitFailed, "--config", file, "doctor")
	s.run(exitDone, "--url", s.url, "doctor")
	must(t, os.WriteFile(file, []byte("PATH=/tmp\n"), 0o600))
	s.run(exitUsage, "--config", file, "doctor")
}

func TestHelpAndCompletion(t *testing.T) {
	s := open(t)
	s.run(exitDone)
	s.prints("Exit codes", "dlq")
	a := &app{}
	for _, c := range a.root().Commands() {
		for _, c := range append(c.Commands(), c) {
			if c.Name() == "help" || c.Parent().Name() == "completion" || c.Name() == "completion" {
				continue
			}
			if c.Short == "" || c.RunE == nil {
				t.Errorf("%s has no help, or does nothing", c.CommandPath())
			}
		}
	}
	for _, kind := range []string{"bash", "zsh", "fish", "powershell"} {
		s.run(exitDone, "completion", kind)
		s.prints("rehop")
	}
	s.run(exitDone, "__complete", "dlq", "list", "orders.dlq", "--cause", "ex")
	s.prints("exhausted")
}

// The script of bash runs a line once more that it completes, and inserts what several names have in
// common as it is.
func TestCompletionOffersNoNameThatAShellReads(t *testing.T) {
	s := open(t)
	s.manage()
	conn, err := amqp.Dial(s.url)
	must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(t, err)
	for _, name := range []string{
		"eu-1/orders:paid_v2@shop.dlq", "zz$(touch x)1.dlq", "zz`touch x`.dlq", "a;b.dlq", "a|b.dlq", "a&b.dlq", "a>b.dlq", "a b.dlq", "a'b.dlq", `a"b.dlq`, `a\b.dlq`, "a*.dlq", "a?.dlq",
		"{a,b}.dlq", "~a.dlq", "#a.dlq", "!a.dlq", "=a.dlq", "--url=b.dlq", "a\tb.dlq", "a\x1b.dlq",
	} {
		_, err := ch.QueueDeclare(name, true, false, false, false, nil)
		must(t, err)
	}
	s.run(exitDone, "__complete", "dlq", "list", "")
	if want := "eu-1/orders:paid_v2@shop.dlq\t0 letters\norders.dlq\t6 letters\n:4\n"; s.out != want {
		t.Errorf("completion offers %q, want %q", s.out, want)
	}
}

func TestACollectorIsInTheAudit(t *testing.T) {
	s := open(t)
	letters := filepath.Join(t.TempDir(), "letters.db")
	ctx, stop := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"dlq", "collect", "orders.dlq", "--store", letters, "--why", "spring cleaning"}, streams{in: strings.NewReader(""), out: &out, err: &errs})
	}()
	for q, _ := s.broker.Queue("orders.dlq"); len(q.Ready)+len(q.Unacked) > 0; q, _ = s.broker.Queue("orders.dlq") {
		runtime.Gosched()
	}
	s.run(exitDone, "dlq", "audit")
	s.prints("collect", "running")
	stop()
	if code := <-ended; code != exitDone || !strings.Contains(errs.String(), "6 letters collected") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	s.run(exitDone, "dlq", "audit")
	s.prints(who(), "collect", "spring cleaning", "done", "queue orders.dlq", "6")
	s.run(exitDone, "dlq", "list", "--store", letters)
	s.prints("m-0", "m-5")
}
