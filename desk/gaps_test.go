//go:build unix

package desk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/rehoptest"
)

// childTask is the variable with the task of a process that is to be killed.
const childTask = "REHOP_DESK_CHILD"

type killedTask struct {
	Address, Journal, Moment string
	Nth                      int
	InFlight                 int // letters under way at a time
	Action                   Action
	Limit                    int
	Nameless                 bool   // letters that are all alike, without message ids
	Duplicates               bool   // each letter is there twice, with its message id
	Act                      string // an export or import, in place of a redrive
	Store                    string // the file of the letters, in place of a queue
	Edit                     bool   // the letters are sent with a change
}

func (k killedTask) live() (*Live, func() error, error) {
	conn, err := connection.Open(context.Background(), connection.Config{URLs: []string{"amqp://guest:guest@" + k.Address}})
	if err != nil {
		return nil, nil, err
	}
	journal, err := OpenJournal(k.Journal)
	if err != nil {
		return nil, nil, err
	}
	l, err := NewLive(conn, "letters", LiveConfig{Journal: journal})
	return l, conn.Close, err
}

func (k killedTask) redrive() Redrive {
	r := Redrive{ID: "killed", Action: k.Action, All: true, Rate: 50, Limit: k.Limit, By: By{Who: "ada"}}
	if body := []byte("changed"); k.Edit {
		r.Edit, r.CopyTo = &Edit{Body: &body}, k.Journal+"/originals.jsonl"
	}
	switch k.Action {
	case Drop:
		r.CopyTo = k.Journal + "/dropped.jsonl"
	case Move:
		r.To = address("elsewhere")
	}
	return r
}

func init() {
	if task := os.Getenv(childTask); task != "" {
		beKilled(task)
	}
}

// beKilled carries out a redrive, and kills its process with SIGKILL between two steps.
func beKilled(task string) {
	var k killedTask
	err := json.Unmarshal([]byte(task), &k)
	n := 0
	gap := func(moment string) {
		if moment != k.Moment {
			return
		}
		if n++; n == k.Nth {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	switch {
	case err != nil:
	case k.Store != "":
		var c *storeSource
		if c, _, _, err = k.collected(); err == nil {
			c.gap = gap
			_, err = c.Execute(context.Background(), k.drop(), nil)
		}
	default:
		var l *Live
		if l, _, err = k.live(); err == nil {
			l.inFlight, l.gap = k.InFlight, gap
			if k.Act != "" {
				err = k.act(l)
			} else {
				_, err = l.Execute(context.Background(), k.redrive(), nil)
			}
		}
	}
	fmt.Println("it was not killed:", err)
	os.Exit(1)
}

// letters is how many letters a redrive of these tests has.
const letters = 12

// mostUnderWay returns how many letters may be under way in a redrive that has a moment
// nth times. Letters that arrive together are confirmed, noted and acked together, and on
// a busy machine all that are under way arrive together.
func mostUnderWay(moment string, nth int) int {
	if moment == "matched" || moment == "tried" {
		return letters // they are sent two at a time
	}
	return letters / nth
}

// TestAProcessThatIsKilledAtAnyMoment: whenever the process of a redrive dies, all
// letters arrive, and only those twice whose confirm it had not noted: one at most where
// it sent them one by one.
func TestAProcessThatIsKilledAtAnyMoment(t *testing.T) {
	for _, tt := range []struct {
		moment string
		twice  int // letters that may arrive twice, of those sent one by one
	}{
		{"matched", 0},
		{"tried", 0},
		{"confirmed", 1},
		{"noted", 0},
		{"acked", 0},
		{"arrived", 0},
	} {
		for _, nth := range []int{1, 4} {
			if tt.moment == "arrived" && nth > 1 {
				continue // it comes once in a redrive
			}
			for _, action := range []Action{Send, Move, Drop} {
				for _, under := range []int{1, mostUnderWay(tt.moment, nth)} {
					t.Run(fmt.Sprintf("%s %s %d of %d under way", action, tt.moment, nth, under), func(t *testing.T) {
						t.Parallel()
						may := tt.twice
						if under > 1 {
							may = under // others were under way: only the report is held to
						}
						killAndResume(t, killedTask{Journal: t.TempDir(), Moment: tt.moment, Nth: nth, InFlight: under, Action: action}, may)
					})
				}
			}
		}
	}
}

// Whenever the process of an edit dies, the original of each letter that may have been sent is in the file once.
func TestAnEditThatIsKilledKeepsEachOriginalOnce(t *testing.T) {
	for _, moment := range []string{"matched", "copied", "tried", "confirmed", "noted", "acked"} {
		for _, under := range []int{1, 2} {
			for _, k := range []killedTask{{}, {Nameless: true}, {Duplicates: true}} {
				t.Run(fmt.Sprintf("%s, %d under way, nameless %t, duplicates %t", moment, under, k.Nameless, k.Duplicates), func(t *testing.T) {
					t.Parallel()
					k.Journal, k.Moment, k.Nth, k.InFlight, k.Action, k.Edit = t.TempDir(), moment, 2, under, Send, true
					killAndResume(t, k, under)
					copies := strings.Count(string(readFile(t, k.redrive().CopyTo)), "\n")
					j, err := OpenJournal(k.Journal)
					must(t, err)
					past, err := j.history("killed")
					must(t, err)
					if copies != len(past.sent) {
						t.Errorf("the file has %d originals of %d letters that were sent", copies, len(past.sent))
					}
				})
			}
		}
	}
}

// TestAKilledRedriveKeepsToItsLimit: a redrive with a limit that is resumed carries out as
// many letters as its limit says, and leaves none in the queue that it has sent: the next
// redrive would send it again.
func TestAKilledRedriveKeepsToItsLimit(t *testing.T) {
	for _, moment := range []string{"matched", "tried", "confirmed", "noted", "acked"} {
		for _, nth := range []int{1, 2, 4} {
			for _, action := range []Action{Send, Move, Drop} {
				for _, under := range []int{1, 2} {
					if nth*under > 4 {
						continue // the redrive ends before that
					}
					t.Run(fmt.Sprintf("%s %s %d of %d under way", action, moment, nth, under), func(t *testing.T) {
						t.Parallel()
						killAndResume(t, killedTask{Journal: t.TempDir(), Moment: moment, Nth: nth, InFlight: under, Action: action, Limit: 4}, under)
					})
				}
			}
		}
	}
}

// TestLettersThatNothingTellsApart: letters without message ids that are all alike arrive
// or stay, whenever the process of a redrive dies.
func TestLettersThatNothingTellsApart(t *testing.T) {
	for _, moment := range []string{"matched", "tried", "confirmed", "noted", "acked"} {
		const nth = 4
		for _, under := range []int{1, mostUnderWay(moment, nth)} {
			t.Run(fmt.Sprintf("%s, %d under way", moment, under), func(t *testing.T) {
				t.Parallel()
				killAndResume(t, killedTask{Journal: t.TempDir(), Moment: moment, Nth: nth, InFlight: under, Action: Send, Nameless: true}, 0)
			})
		}
	}
}

// TestOfTwoLettersThatAreAlikeNoneIsLost: of two letters that are alike, also in their message id,
// a redrive sends one and leaves the other, whenever its process dies.
func TestOfTwoLettersThatAreAlikeNoneIsLost(t *testing.T) {
	for _, action := range []Action{Send, Drop} {
		for _, moment := range []string{"matched", "tried", "confirmed", "noted", "acked", "arrived"} {
			for _, under := range []int{1, 12} {
				t.Run(fmt.Sprintf("%s %s, %d under way", action, moment, under), func(t *testing.T) {
					t.Parallel()
					nth := 4
					if moment == "arrived" || under > 1 {
						nth = 1 // it may come once in a redrive
					}
					killAndResume(t, killedTask{Journal: t.TempDir(), Moment: moment, Nth: nth, InFlight: under, Action: action, Duplicates: true}, 0)
				})
			}
		}
	}
}

// killAndResume has a process killed that carries out a redrive on letters, and resumes the
// redrive. Up to may letters may arrive twice, if the report says so.
func killAndResume(t *testing.T, k killedTask, may int) {
	const n = letters
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	must(t, err)
	defer broker.Close()
	k.Address, err = broker.Listen()
	must(t, err)
	fillLetters(t, k.Address, n, func(i int) string {
		switch {
		case k.Nameless:
			return ""
		case k.Duplicates:
			return fmt.Sprint("m-", i/2)
		}
		return fmt.Sprint("m-", i)
	})
	die(t, k)
	l, end, err := k.live()
	must(t, err)
	defer end()
	before, err := l.cfg.Journal.Redrive("killed")
	must(t, err)
	if before.State != CutOff {
		t.Errorf("after the kill the redrive is %q", before.State)
	}
	audit, err := l.cfg.Journal.Audit(10)
	must(t, err)
	if len(audit) != 1 || audit[0].By.Who != "ada" || audit[0].Action != string(k.Action) || audit[0].Count != before.Done || !strings.HasPrefix(audit[0].Result, "cut off: ") {
		t.Errorf("audit after the kill: %+v", audit)
	}
	p, err := l.Resume(t.Context(), "killed", By{Who: "bob"}, nil)
	must(t, err)
	audit, err = l.cfg.Journal.Audit(10)
	must(t, err)
	if len(audit) != 2 || audit[0].By.Who != "bob" || audit[0].Action != "resume" || !strings.HasPrefix(audit[0].Result, "done: ") ||
		audit[1].By.Who != "ada" || !strings.HasPrefix(audit[1].Result, "cut off: ") || audit[0].Count+audit[1].Count != p.Done {
		t.Errorf("audit of a redrive with %d done: %+v", p.Done, audit)
	}
	if again, err := l.cfg.Journal.Redrive("killed"); err != nil || again.MaybeDuplicate != p.MaybeDuplicate || again.Done != p.Done || again.MaybeSent != p.MaybeSent {
		t.Errorf("in the journal: %v: %+v, want %+v", err, again, p)
	}
	if p.State != Done || p.MaybeSent > before.Done {
		t.Errorf("%+v; at most %d may have been sent before", p, before.Done)
	}
	if k.Nameless || k.Duplicates {
		all := 0
		for id, got := range k.everywhere(t, broker) {
			want := n
			if all += got; k.Duplicates {
				want = 2
			}
			if got < want {
				t.Errorf("%d of %q are lost", want-got, id)
			}
		}
		if all > n+p.MaybeDuplicate+p.MaybeSent {
			t.Errorf("%d letters are there of %d; %d may be there twice, and %d may have been sent", all, n, p.MaybeDuplicate, p.MaybeSent)
		}
		return
	}
	if p.MaybeSent > 0 { // each has a message id of its own, and the person knows it
		left, _ := broker.Queue("letters")
		doubted := p
		if p, err = l.Resume(t.Context(), "killed", By{Who: "bob", MaybeSent: Delete}, nil); err != nil || p.MaybeSent != 0 || p.Done != doubted.Done || p.MaybeDuplicate != doubted.MaybeDuplicate {
			t.Errorf("deleted: %v: %+v", err, p)
		}
		if after, _ := broker.Queue("letters"); len(left.Ready)-len(after.Ready) != doubted.MaybeSent {
			t.Errorf("%d letters have left the queue, of %d that may have been sent", len(left.Ready)-len(after.Ready), doubted.MaybeSent)
		}
	}
	want := cmp.Or(k.Limit, n)
	if p.Done != want {
		t.Errorf("%+v, want %d done", p, want)
	}
	if left, _ := broker.Queue("letters"); len(left.Ready) != n-want {
		t.Errorf("%d letters are left, want %d", len(left.Ready), n-want)
	}
	got := k.everywhere(t, broker)
	twice := 0
	for i := range n {
		switch c := got[fmt.Sprint("m-", i)]; {
		case c == 0:
			t.Errorf("m-%d is lost", i)
		case c > 1:
			twice++
		}
	}
	if twice > may || twice > p.MaybeDuplicate {
		t.Errorf("%d letters arrived twice; %d may, and %d by the report", twice, may, p.MaybeDuplicate)
	}
}

// everywhere returns how many letters are in the queue and in their next place, by message id.
func (k killedTask) everywhere(t *testing.T, broker *rehoptest.Broker) map[string]int {
	got := map[string]int{}
	for _, name := range []string{"letters", "work", "elsewhere"} {
		q, _ := broker.Queue(name)
		for _, m := range q.Ready {
			got[m.MessageId]++
		}
	}
	if k.Action == Drop {
		for _, line := range strings.Split(strings.TrimSpace(string(readFile(t, k.redrive().CopyTo))), "\n") {
			m, err := unmarshalLetter([]byte(line))
			must(t, err)
			got[m.MessageId]++
		}
	}
	return got
}

func die(t *testing.T, k killedTask) {
	t.Helper()
	task, err := json.Marshal(k)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), childTask+"="+string(task))
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the process ended by itself: %v: %s", err, out)
	}
}

func fillLetters(t *testing.T, addr string, n int, id func(i int) string) {
	t.Helper()
	conn, err := amqp.Dial("amqp://guest:guest@" + addr)
	must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(t, err)
	must(t, ch.Confirm(false))
	for _, q := range []string{"letters", "work", "elsewhere"} {
		_, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(-1)})
		must(t, err)
	}
	for i := range n {
		confirm, err := ch.PublishWithDeferredConfirm("", "letters", false, false, amqp.Publishing{
			MessageId: id(i), DeliveryMode: amqp.Persistent,
			Headers: amqp.Table{"x-rehop-queue": "work", "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(3)},
		})
		must(t, err)
		confirm.Wait()
	}
}
