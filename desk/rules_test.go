package desk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

func version(major, minor int) connection.Version {
	return connection.Version{Major: major, Minor: minor}
}

func TestWhichQueuesAreLookedInto(t *testing.T) {
	none := map[string]any{}
	for _, tt := range []struct {
		rule    string
		version connection.Version
		kind    string
		args    map[string]any
		policy  map[string]any
		limit   int
		refused string // a part of the reason or the advice; empty: it is looked into
	}{
		{"rehop's own on 4.x", version(4, 3), "quorum", map[string]any{"x-delivery-limit": json.Number("-1")}, none, -1, ""},
		{"rehop's own on 3.x", version(3, 10), "quorum", none, none, -1, ""},
		{"rehop's own without the management API", version(4, 0), "quorum", map[string]any{"x-delivery-limit": int64(-1), "x-message-ttl": int64(5)}, nil, -1, ""},
		{"a classic queue", version(4, 3), "classic", none, none, -1, ""},
		{"a classic queue has no delivery limit", version(4, 3), "classic", none, map[string]any{"delivery-limit": json.Number("1")}, -1, ""},
		{"a quorum queue of 4.x with the default limit", version(4, 0), "quorum", none, none, 20, ""},
		{"the lower of argument and policy", version(4, 0), "quorum", map[string]any{"x-delivery-limit": json.Number("30")}, map[string]any{"delivery-limit": json.Number("10")}, 10, ""},
		{"a limit rather than none", version(4, 0), "quorum", map[string]any{"x-delivery-limit": json.Number("-1")}, map[string]any{"delivery-limit": json.Number("10")}, 10, ""},
		{"a limit whose policies nobody knows", version(4, 0), "quorum", map[string]any{"x-delivery-limit": int64(30)}, nil, 30, "policies"},
		{"the default limit whose policies nobody knows", version(4, 0), "quorum", none, nil, 20, "policies"},
		{"a limit that is no number", version(4, 0), "quorum", map[string]any{"x-delivery-limit": "abc"}, none, 0, "not a number"},
		{"-1 on 3.x, where the first return is one too many", version(3, 10), "quorum", map[string]any{"x-delivery-limit": json.Number("-1")}, none, 0, "1 times"},
		{"a limit of 3", version(4, 3), "quorum", map[string]any{"x-delivery-limit": json.Number("3")}, none, 3, "4 times"},
		{"a stream", version(4, 3), "stream", none, none, -2, "stream"},
		{"an unknown type", version(4, 3), "mqtt", none, none, -2, "type"},
		{"a single active consumer", version(4, 3), "classic", map[string]any{"x-single-active-consumer": true}, none, -1, "single active"},
		{"a carried wait, which may have no consumer", version(4, 3), "quorum", map[string]any{"x-delivery-limit": json.Number("1000000000"), "x-single-active-consumer": true}, none, 1_000_000_000, "stop its consumer, if it has one, and collect the letters"},
		{"a length limit drops the head by default", version(4, 3), "quorum", map[string]any{"x-delivery-limit": json.Number("-1"), "x-max-length": json.Number("9")}, none, -1, "oldest"},
		{"a length limit by policy", version(4, 3), "classic", none, map[string]any{"max-length-bytes": json.Number("9")}, -1, "oldest"},
		{"a length limit that refuses", version(4, 3), "classic", map[string]any{"x-max-length": json.Number("9"), "x-overflow": "reject-publish"}, none, -1, ""},
		{"of a quorum queue the policy's overflow applies", version(4, 3), "quorum", map[string]any{"x-delivery-limit": json.Number("-1"), "x-max-length": json.Number("9"), "x-overflow": "reject-publish"}, map[string]any{"overflow": "drop-head"}, -1, "oldest"},
		{"of a classic queue the argument's", version(4, 3), "classic", map[string]any{"x-max-length": json.Number("9"), "x-overflow": "reject-publish"}, map[string]any{"overflow": "drop-head"}, -1, ""},
		{"reject-publish-dlx is drop-head on a quorum queue", version(4, 3), "quorum", map[string]any{"x-delivery-limit": json.Number("-1"), "x-max-length": json.Number("9"), "x-overflow": "reject-publish-dlx"}, none, -1, "oldest"},
		{"delayed retry", version(4, 3), "quorum", map[string]any{"x-delivery-limit": json.Number("-1")}, map[string]any{"delayed-retry-type": "all"}, -1, "delays"},
	} {
		f := queueFacts{name: "q", version: tt.version, queueType: tt.kind, arguments: tt.args, policy: tt.policy}
		if limit, _ := f.limit(); limit != tt.limit && tt.limit != -2 {
			t.Errorf("%s: limit %d, want %d", tt.rule, limit, tt.limit)
		}
		err := f.refusal()
		var refused *RefusedError
		switch {
		case tt.refused == "" && err != nil:
			t.Errorf("%s: %v", tt.rule, err)
		case tt.refused != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Reason+": "+refused.Advice, tt.refused) || refused.Advice == ""):
			t.Errorf("%s: %v, want a refusal for %q", tt.rule, err, tt.refused)
		}
	}
	if err := (queueFacts{queueType: "classic", transient: true, policy: none}).refusal(); err == nil {
		t.Error("a queue that goes with its last consumer is looked into")
	}
}

func TestFilter(t *testing.T) {
	at := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	l := Letter{
		ID: "a", State: "held", Queue: "orders", Exchange: "shop", RoutingKey: "order.paid", Cause: "exhausted", Error: "No Stock for 7", ErrorType: "*E", Fingerprint: "f", Failed: at,
		Publishing: amqp.Publishing{MessageId: "m", Body: []byte("body text"), Headers: amqp.Table{"tenant": "acme", "n": int32(7), "deep": amqp.Table{"list": []any{"needle"}}}},
	}
	for _, tt := range []struct {
		rule string
		f    Filter
		want bool
	}{
		{"nothing is asked", Filter{}, true},
		{"all is asked", Filter{IDs: []string{"b", "a"}, MessageIDs: []string{"m"}, States: []string{"held"}, Queue: "orders", Exchange: "shop", RoutingKey: "order.paid", Cause: "exhausted",
			ErrorType: "*E", Fingerprint: "f", Error: "no stock", Text: "body", Headers: map[string]string{"tenant": "acme", "n": "7"}, From: at, Before: at.Add(1)}, true},
		{"an empty list", Filter{IDs: []string{}}, false},
		{"an empty list of message ids", Filter{MessageIDs: []string{}}, false},
		{"another id", Filter{IDs: []string{"b"}}, false},
		{"another state", Filter{States: []string{"parked"}}, false},
		{"another queue", Filter{Queue: "bills"}, false},
		{"a header that is there", Filter{Headers: map[string]string{"n": ""}}, true},
		{"a header that is not there", Filter{Headers: map[string]string{"m": ""}}, false},
		{"a header with another value", Filter{Headers: map[string]string{"n": "8"}}, false},
		{"text deep in a header", Filter{Text: "needle"}, true},
		{"the name of a header", Filter{Text: "tenan"}, true},
		{"text in upper case", Filter{Text: "BODY"}, false},
		{"failed later", Filter{From: at.Add(1)}, false},
		{"failed before", Filter{Before: at}, false},
	} {
		if got := tt.f.Matches(l); got != tt.want {
			t.Errorf("%s: %t", tt.rule, got)
		}
		text, err := json.Marshal(tt.f)
		must(t, err)
		var back Filter
		must(t, json.Unmarshal(text, &back))
		if !reflect.DeepEqual(back, tt.f) {
			t.Errorf("%s: the journal makes %+v of %+v", tt.rule, back, tt.f)
		}
	}
	if (Filter{States: []string{"archived"}}).Matches(Letter{}) {
		t.Error("a letter in a queue has a state")
	}
	if (Filter{Before: at}).Matches(Letter{}) {
		t.Error("a letter that does not say when it failed is in a bound")
	}
}

func TestALineGivesBackEveryProperty(t *testing.T) {
	for name, p := range map[string]amqp.Publishing{
		"all": {
			ContentType: "application/json", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 7, CorrelationId: "c", ReplyTo: "r", Expiration: "1500", MessageId: "m",
			Timestamp: time.Unix(1_700_000_000, 0).UTC(), Type: "t", UserId: "u", AppId: "a", Body: []byte(`{"a":1}`),
			Headers: amqp.Table{"s": "text", "b": true, "i8": int8(1), "i16": int16(2), "i32": int32(3), "i64": int64(4), "f32": float32(1.5), "f64": math.Pi, "bytes": []byte{0, 1}, "nil": nil,
				"time": time.Unix(1_600_000_000, 0).UTC(), "decimal": amqp.Decimal{Scale: 2, Value: 345}, "table": amqp.Table{"$x": "y"}, "list": []any{int32(1), "a", amqp.Table{"k": "v"}}},
		},
		"bytes":     {MessageId: "\xff\x00", Type: "$base64:", Body: []byte{0xff, 0xfe, 0}},
		"hostile":   {MessageId: "</script>\u2028", Body: []byte("line\nline\r\n\ufffd")},
		"transient": {DeliveryMode: 1, Body: []byte{}},
		"times that no date is of": {Timestamp: time.UnixMilli(1_700_000_000_000_000).UTC(), Body: []byte{}, Headers: amqp.Table{
			"milliseconds": time.Unix(1_700_000_000_123, 0).UTC(), "deep": []any{amqp.Table{"before": time.Unix(-1<<62, 1).Truncate(time.Second).UTC()}}}},
	} {
		line, err := marshalLetter(read(p), "queue q")
		must(t, err)
		if bytes.ContainsRune(line, '\n') {
			t.Errorf("%s: more than a line", name)
		}
		back, err := unmarshalLetter(line)
		must(t, err)
		if !reflect.DeepEqual(back, p) {
			t.Errorf("%s: read back\n%+v\nof\n%+v", name, back, p)
		}
	}
	for _, faulty := range []string{`{`, `{"properties":{"colour":"red"}}`, `{"properties":{"priority":"high"}}`, `{"properties":{"priority":256}}`, `{"headers":[]}`, `{"headers":{"a":{"$int8":1000}}}`, `{"body":"a","body_base64":"YQ=="}`} {
		if _, err := unmarshalLetter([]byte(faulty)); err == nil {
			t.Errorf("%s was read", faulty)
		}
	}
}

func TestRedrivesAreChecked(t *testing.T) {
	about := About{Name: "queue q", Live: true, Queue: "q"}
	good := Redrive{Action: Send, All: true}
	if r, err := good.check(about, time.Now()); err != nil || r.ID == "" || r.Source != "queue q" {
		t.Errorf("%+v: %v", r, err)
	}
	for rule, change := range map[string]func(*Redrive){
		"nothing selects":          func(r *Redrive) { r.All = false },
		"no action":                func(r *Redrive) { r.Action = "" },
		"a rate below 0":           func(r *Redrive) { r.Rate = -1 },
		"a rate that is too low":   func(r *Redrive) { r.Rate = 1e-5 },
		"a rate that is too high":  func(r *Redrive) { r.Rate = 100_000.5 },
		"a rate that is NaN":       func(r *Redrive) { r.Rate = math.NaN() },
		"a rate that is infinite":  func(r *Redrive) { r.Rate = math.Inf(1) },
		"a limit below 0":          func(r *Redrive) { r.Limit = -1 },
		"an id that is a path":     func(r *Redrive) { r.ID = "../x" },
		"to where the letters are": func(r *Redrive) { r.To = &topology.Address{RoutingKey: "q"} },
		"to nowhere":               func(r *Redrive) { r.To = &topology.Address{} },
		"a move to nowhere":        func(r *Redrive) { r.Action = Move },
		"a copy that is not made":  func(r *Redrive) { r.CopyTo = "copies.jsonl" },
		"a drop without a file":    func(r *Redrive) { r.Action = Drop },
		"a canary that is moved":   func(r *Redrive) { r.Action, r.To, r.Canary = Move, address("other"), time.Second },
		"an edit of our headers":   func(r *Redrive) { r.Edit = &Edit{Set: map[string]string{"x-rehop-queue": "other"}} },
		"an edit of the broker's":  func(r *Redrive) { r.Edit = &Edit{Set: map[string]string{"x-first-death-queue": "other"}} },
		"a removal of a header":    func(r *Redrive) { r.Edit = &Edit{Remove: []string{"x-death"}} },
	} {
		r := good
		change(&r)
		if _, err := r.check(about, time.Now()); rehop.ClassOf(err) != rehop.ClassBug {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

func TestEdit(t *testing.T) {
	body, kind, key := []byte("new"), "text/plain", "order.late"
	e := &Edit{Body: &body, Set: map[string]string{"a": "1"}, Remove: []string{"b"}, ContentType: &kind, RoutingKey: &key}
	headers := amqp.Table{"b": "2", "c": "3"}
	m := producer.Message{Body: []byte("old"), Headers: headers}
	e.apply(&m)
	if string(m.Body) != "new" || m.ContentType != kind || m.RoutingKey != key || !reflect.DeepEqual(m.Headers, amqp.Table{"a": "1", "c": "3"}) {
		t.Errorf("%+v", m)
	}
	if len(headers) != 2 || headers["b"] != "2" {
		t.Errorf("the letter's own headers were changed: %v", headers)
	}
	text, err := json.Marshal(e)
	must(t, err)
	var back Edit
	must(t, json.Unmarshal(text, &back))
	if !reflect.DeepEqual(back, *e) {
		t.Errorf("the journal makes %+v of %+v", back, *e)
	}
}

func TestAnEditKeepsTheTypeOfAHeader(t *testing.T) {
	at := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		rule string
		was  any
		text string
		is   any
	}{
		{"a new header is a text", nil, "7", "7"},
		{"a text stays one", "6", "7", "7"},
		{"a number of each size stays one", int8(6), "-7", int8(-7)},
		{"also of 16 bits", int16(6), "7", int16(7)},
		{"of 32", int32(6), "7", int32(7)},
		{"and of 64", int64(6), "7", int64(7)},
		{"an unsigned one", byte(6), "255", byte(255)},
		{"what is too large for it is a text", byte(6), "256", "256"},
		{"what is no number is a text", int64(6), "seven", "seven"},
		{"a fraction", 0.5, "0.25", 0.25},
		{"a boolean", true, "false", false},
		{"what is no boolean is a text", true, "1", "1"},
		{"a time", at, "2026-11-02T10:00:00Z", at.AddDate(0, 0, 1)},
		{"what is no time is a text", at, "tomorrow", "tomorrow"},
		{"bytes", []byte("a"), "b", []byte("b")},
		{"a table becomes a text", amqp.Table{"a": 1}, "b", "b"},
		{"and so does an array", []any{1}, "b", "b"},
	} {
		m := producer.Message{Headers: amqp.Table{"h": tt.was}}
		if tt.was == nil {
			m.Headers = nil
		}
		(&Edit{Set: map[string]string{"h": tt.text}}).apply(&m)
		if !reflect.DeepEqual(m.Headers["h"], tt.is) {
			t.Errorf("%s: %q in the place of %v is %T %v, want %T", tt.rule, tt.text, tt.was, m.Headers["h"], m.Headers["h"], tt.is)
		}
	}
}

// Each process that works on a redrive has a record, also one that dies, and a letter is
// counted in one of them.
func TestTheAuditOfARedriveWhoseProcessesDie(t *testing.T) {
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	is := func(want ...string) {
		t.Helper()
		audit, err := j.Audit(10)
		must(t, err)
		var got []string
		for _, r := range audit {
			text := fmt.Sprint(r.By.Who, " ", r.Action, " ", r.Count, " ", r.Result)
			if r.Unfinished {
				text += "!"
			}
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("audit: %q, want %q", got, want)
		}
	}
	die := func(b *book, sent ...string) {
		t.Helper()
		must(t, errors.Join(b.write(entry{Try: sent}), b.write(entry{Sent: sent}), b.file.Close(), b.release()))
	}
	r := Redrive{ID: "one", Action: Send, Source: "queue q", By: By{Who: "ada"}}
	b, err := j.begin(r, nil)
	must(t, err)
	is("ada send 0 running: 0 sent!")
	die(b, "a")
	is("ada send 1 cut off: 1 sent!")
	must(t, j.note(Record{By: By{Who: "ada"}, Action: "send", Redrive: "one", Count: 1, Result: "cut off: 1 sent"})) // of a process that died then
	is("ada send 1 cut off: 1 sent!")
	b, err = j.begin(r, &By{Who: "bob"})
	must(t, err)
	is("bob resume 0 running: 0 sent!", "ada send 1 cut off: 1 sent")
	die(b, "b", "c")
	is("bob resume 2 cut off: 2 sent!", "ada send 1 cut off: 1 sent")
	b, err = j.begin(r, &By{Who: "eve"})
	must(t, err)
	p := b.past.progress
	p.State, p.Done = Done, p.Done+3
	must(t, b.end(p))
	is("eve resume 3 done: 3 sent", "bob resume 2 cut off: 2 sent", "ada send 1 cut off: 1 sent")

	r.ID = "two"
	b, err = j.begin(r, nil)
	must(t, err)
	must(t, b.end(Progress{Redrive: r, State: Done})) // no letter matched
	r.ID = "three"
	b, err = j.begin(r, nil)
	must(t, err)
	die(b)
	must(t, os.Remove(filepath.Join(j.dir, "redrives", "three.jsonl")))
	is("ada send 0 running or cut off!", "eve resume 3 done: 3 sent", "bob resume 2 cut off: 2 sent", "ada send 1 cut off: 1 sent")
}

func TestAJournalBearsALineThatWasCutOff(t *testing.T) {
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	b, err := j.begin(Redrive{ID: "one", Action: Send, Source: "queue q"}, nil)
	must(t, err)
	must(t, b.write(entry{Try: []string{"a", "b"}}))
	must(t, b.write(entry{Sent: []string{"a"}}))
	if _, err := j.begin(Redrive{ID: "one"}, &By{}); !errors.Is(err, errBusy) {
		t.Errorf("a redrive in work was taken: %v", err)
	}
	if p, err := j.Redrive("one"); err != nil || p.State != Running {
		t.Errorf("%+v: %v", p, err)
	}
	must(t, errors.Join(b.file.Close(), b.release())) // as the end of the process does
	f, err := os.OpenFile(filepath.Join(j.dir, "redrives", "one.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString(`{"sent":["b`)
	must(t, errors.Join(err, f.Close()))
	if p, err := j.Redrive("one"); err != nil || p.State != CutOff {
		t.Errorf("%+v: %v", p, err)
	}
	b, err = j.begin(Redrive{ID: "one", Action: Send, Source: "queue q"}, &By{})
	must(t, err)
	if !b.past.sent["a"] || b.past.sent["b"] || !b.past.open["b"] || b.past.open["a"] {
		t.Errorf("%+v", b.past)
	}
	must(t, b.end(Progress{Redrive: b.redrive, State: Done, Done: 2}))
	if p, err := j.Redrive("one"); err != nil || p.State != Done || p.Done != 2 || p.Redrive.ID != "one" {
		t.Errorf("%+v: %v", p, err)
	}
	if _, err := j.begin(Redrive{ID: "one"}, nil); err == nil {
		t.Error("a redrive with the id of another was taken")
	}
	for _, id := range []string{"", "none", "../one"} {
		if err := j.Stop(id, By{}); err == nil {
			t.Errorf("redrive %q was stopped", id)
		}
	}
	all, err := j.Redrives(10)
	if err != nil || len(all) != 1 {
		t.Errorf("%d redrives: %v", len(all), err)
	}
}

// A Conn that has not been used yet does not know the broker's version, on which the rules
// for looks depend.
func TestAnUnknownVersionRefusesNoLook(t *testing.T) {
	infos := []management.Info{{Name: "orders.dlq"}}
	infos[0].Type, infos[0].Arguments = "quorum", map[string]any{"x-delivery-limit": json.Number("-1")}
	for v, want := range map[connection.Version]bool{{}: false, version(3, 10): true, version(4, 3): false} {
		if q := fold(infos, v)[0]; (q.Refusal != "") != want {
			t.Errorf("version %v: refused by %q, want refused %t", v, q.Refusal, want)
		}
	}
}

func TestWaitsAndLevelsAreFoldedIntoTheirQueue(t *testing.T) {
	infos := []management.Info{
		{Name: "orders", Ready: 1}, {Name: "orders.wait.1", Ready: 2}, {Name: "orders.wait.2", Unacked: 3}, {Name: "orders.wait.2.3m", Ready: 4},
		{Name: "orders.dlq", Ready: 5}, {Name: "other.wait.1", Ready: 6}, {Name: "legacy_error"},
		{Name: "rehop.delays.1s.stranded"}, {Name: "rehop.delays.1s.00", Ready: 7}, {Name: "rehop.delays.1s.17.high", Unacked: 8}, {Name: "rehop.delays.10ms.01"},
	}
	for i := range infos {
		infos[i].Type = "quorum"
	}
	queues := fold(infos, version(4, 3))
	var names []string
	for _, q := range queues {
		names = append(names, q.Name)
		if q.Name == "orders" && (q.Waiting != 9 || q.Letters != 5 || q.DeadLetters != "orders.dlq" || q.IsDeadLetters) {
			t.Errorf("%+v", q)
		}
		if q.Name == "rehop.delays.1s.stranded" && q.Waiting != 15 {
			t.Errorf("%+v", q)
		}
		if (q.Name == "orders.dlq" || q.Name == "legacy_error") != q.IsDeadLetters {
			t.Errorf("%s: dead letters %t", q.Name, q.IsDeadLetters)
		}
	}
	if got := strings.Join(names, " "); got != "legacy_error orders orders.dlq other.wait.1 rehop.delays.10ms.01 rehop.delays.1s.stranded" {
		t.Errorf("queues: %s", got)
	}
}
