//go:build unix

package desk

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rehop/rehop/rehoptest"
)

// deadly kills its process with SIGKILL at the nth write or read.
type deadly struct {
	lines [][]byte // to be read, one at a time
	calls int
	nth   int
}

func (d *deadly) call() {
	if d.calls++; d.calls == d.nth {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (d *deadly) Write(p []byte) (int, error) {
	d.call()
	return len(p), nil
}

func (d *deadly) Read(p []byte) (int, error) {
	d.call()
	line := d.lines[0]
	d.lines = d.lines[1:]
	return copy(p, line), nil
}

// act exports or imports, until its process is killed.
func (k killedTask) act(l *Live) error {
	by := By{Who: "ada", Why: "a test"}
	if k.Act == "export" {
		_, err := l.Export(context.Background(), Filter{Queue: "work"}, 0, &deadly{nth: k.Nth}, by)
		return err
	}
	d := &deadly{nth: k.Nth}
	for i := range k.Nth {
		d.lines = append(d.lines, fmt.Appendf(nil, `{"properties":{"message_id":"m-%d"}}`+"\n", i))
	}
	_, err := Import(context.Background(), l.conn, d, l.cfg.Journal, ImportOptions{Queue: "letters", By: by})
	return err
}

// An export or an import whose process is killed has a record that says so, and how far
// it is known to be.
func TestAnActThatIsKilledIsInTheAudit(t *testing.T) {
	for _, tt := range []struct {
		act           string
		nth           int
		count, arrive int
		result        string
	}{
		{"export", 5, 0, 0, "cut off: how many letters are done is not known"},
		{"import", 3*importBatch + 10, 3 * importBatch, 3 * importBatch, "cut off: 768 letters or more, all up to line 768"},
	} {
		t.Run(tt.act, func(t *testing.T) {
			broker, err := rehoptest.NewBroker(rehoptest.Config{})
			must(t, err)
			defer broker.Close()
			k := killedTask{Journal: t.TempDir(), Act: tt.act, Nth: tt.nth}
			k.Address, err = broker.Listen()
			must(t, err)
			letters := 0
			if tt.act == "export" {
				letters = 12
			}
			fillLetters(t, k.Address, letters, func(i int) string { return fmt.Sprint("m-", i) })
			die(t, k)
			l, end, err := k.live()
			must(t, err)
			defer end()
			audit, err := l.cfg.Journal.Audit(10)
			must(t, err)
			if len(audit) != 1 || audit[0].By != (By{Who: "ada", Why: "a test"}) || audit[0].Action != tt.act || audit[0].Source != "queue letters" ||
				audit[0].Count != tt.count || audit[0].Result != tt.result || !audit[0].Unfinished {
				t.Errorf("audit: %+v", audit)
			}
			if tt.act == "export" {
				return
			}
			if q, _ := broker.Queue("letters"); len(q.Ready) != tt.arrive {
				t.Errorf("%d letters have arrived, want %d", len(q.Ready), tt.arrive)
			}
		})
	}
}

// An action has one record, from its begin on.
func TestTheAuditOfAnAct(t *testing.T) {
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	is := func(want string, unfinished bool) {
		t.Helper()
		audit, err := j.Audit(10)
		must(t, err)
		if len(audit) != 1 || fmt.Sprint(audit[0].Count, " ", audit[0].Result) != want || audit[0].Unfinished != unfinished {
			t.Errorf("audit: %+v, want %q", audit, want)
		}
	}
	a, err := j.undertake(Record{By: By{Who: "ada"}, Action: "export", Source: "queue q"})
	must(t, err)
	is("0 running: how many letters are done is not known", true)
	must(t, a.reached(4)) // too soon after the begin to be noted
	is("0 running: how many letters are done is not known", true)
	a.noted = a.noted.Add(-noteEvery)
	must(t, a.reached(5))
	is("5 running: 5 letters or more", true)
	must(t, a.end(7, nil))
	is("7 done", false)
	if left, err := os.ReadDir(filepath.Join(j.dir, "acts")); err != nil || len(left) > 0 {
		t.Errorf("left in the journal: %v: %v", left, err)
	}
}

// What is appended behind a line that was cut off is a line of its own.
func TestALineThatWasCutOffSwallowsNoOther(t *testing.T) {
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	cut := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(name, []byte(text), 0o600))
	}
	cut(filepath.Join(j.dir, "audit.jsonl"), `{"action":"send","by":{"who":"ad`)
	must(t, j.note(Record{Action: "stop", Result: "asked"}))
	if audit, err := j.Audit(10); err != nil || len(audit) != 1 || audit[0].Action != "stop" {
		t.Errorf("audit: %v: %+v", err, audit)
	}

	dropped := filepath.Join(j.dir, "dropped.jsonl")
	cut(dropped, `{"from":"queue q","properties":{"message_id":"m-0"},"body":"hal`)
	c, err := newCopying(dropped, "queue q", func(*transfer) {})
	must(t, err)
	letter := Letter{}
	letter.Publishing.MessageId = "m-1"
	must(t, c.write([]*transfer{{letter: letter}}))
	must(t, c.close())
	lines := bytes.Split(bytes.TrimSpace(readFile(t, dropped)), []byte("\n"))
	if len(lines) != 2 || !isCutOff(lines[0]) || isCutOff(lines[1]) {
		t.Fatalf("dropped: %q", lines)
	}
	if p, err := unmarshalLetter(lines[1]); err != nil || p.MessageId != "m-1" {
		t.Errorf("%v: %+v", err, p)
	}
}

// An import that ends early says where to go on, and how many letters that publishes once
// more.
func TestAnImportThatEndsEarly(t *testing.T) {
	lines := func(at int, instead string) string {
		var text strings.Builder
		for i := 1; i <= 5; i++ {
			if i == at {
				text.WriteString(instead + "\n")
			} else {
				fmt.Fprintf(&text, `{"properties":{"message_id":"m-%d"}}`+"\n", i)
			}
		}
		return text.String()
	}
	for _, tt := range []struct {
		text string
		want Imported
		says string
		has  int
	}{
		{lines(3, `{"body":"a","body_base64":"YQ=="}`), Imported{Letters: 2, Next: 3}, "line 3: body and body_base64 exclude each other", 2},
		{lines(4, `{"from":"queue q","body":"hal`), Imported{Letters: 3, Next: 5}, "line 4: it was cut off", 3},
		{lines(2, `{"properties":{"message_id":"m-2","expiration":"never"}}`), Imported{Letters: 4, Next: 2, Ahead: 3}, "line 2: ", 4},
	} {
		inBubble(t, "4.3", func(w *fixture) {
			w.dead()
			done, err := Import(w.Context(), w.conn, strings.NewReader(tt.text), w.journal, ImportOptions{Queue: "orders.dlq"})
			done.MaybeDuplicate = 0
			if done != tt.want || err == nil || !strings.Contains(err.Error(), tt.says) {
				w.Errorf("%+v: %v, want %+v: %s", done, err, tt.want, tt.says)
			}
			audit, auditErr := w.journal.Audit(10)
			must(w.T, auditErr)
			if len(audit) != 1 || audit[0].Count != tt.want.Letters || !strings.Contains(audit[0].Result, tt.says) || audit[0].Unfinished {
				w.Errorf("audit: %+v", audit)
			}
			w.has("orders.dlq", tt.has)
		})
	}
}
