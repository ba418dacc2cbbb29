package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

func TestParkedLettersLeaveHealthAlone(t *testing.T) {
	s := &Store{cfg: Config{}.withDefaults(), now: time.Now}
	h := &forwardHealth{}
	h.begins(time.Now())
	f := &forwarder{health: h, store: s, publisher: answering{producer.ErrReturned}, cfg: ForwardConfig{Tries: 5}.withDefaults(), again: repeats.New(s.cfg.Logger)}
	one := &sending{forwarder: f, work: t.Context(), lease: leased{until: time.Now().Add(time.Minute)}}
	for _, tt := range []struct {
		rule     string
		tries    []int // that each entry has spent
		degraded bool
	}{
		{"a letter is parked", []int{4}, false},
		{"one is tried again", []int{0}, true},
		{"one of two is tried again", []int{4, 0}, true},
		{"all that failed are parked", []int{4, 4}, false},
	} {
		var entries []Entry
		for _, tries := range tt.tries {
			entries = append(entries, Entry{State: Ready, Tries: tries})
		}
		one.publish(t.Context(), entries, 0, func() {})
		if err := h.check(time.Now().Add(2 * awaitLimit)); (err != nil) != tt.degraded {
			t.Errorf("%s: %v", tt.rule, err)
		}
	}
}

func TestADatabaseThatIsAwayIsAnInterruptionFirst(t *testing.T) {
	now := time.Now()
	h := &forwardHealth{}
	h.begins(now)
	h.becomes(&h.database, errors.New("no route to host"), now)
	h.becomes(&h.database, errors.New("refused"), now.Add(lostLimit/2)) // the same interruption
	for after, degraded := range map[time.Duration]bool{0: true, lostLimit - 1: true, lostLimit: false, time.Hour: false} {
		if err := h.check(now.Add(after)); err == nil || err.Degraded != degraded || !err.Since.Equal(now) {
			t.Errorf("after %v: %+v, want it degraded: %t", after, err, degraded)
		}
	}
	h.becomes(&h.database, nil, now)
	if err := h.check(now.Add(time.Hour)); err != nil {
		t.Errorf("the database is back: %v", err)
	}
}

func TestHealthNamesTheEntryThatHoldsUpALine(t *testing.T) {
	now := time.Now()
	to := topology.Address{Exchange: "shop", RoutingKey: "order.paid"}
	bad := failure{id: "m-7", number: 4711, inLine: true, err: "no queue took it", next: now.Add(time.Minute)}
	for _, tt := range []struct {
		rule   string
		after  time.Duration
		latest failure
		says   string
	}{
		{"a first failure", 0, bad, ""},
		{"one that is not the first", 2 * time.Second, bad, `entry 4711 (message "m-7") to exchange "shop" with routing key "order.paid": no queue took it; the entries of its line wait behind it: park, edit or delete it`},
		{"one that stands in no line", 2 * time.Second, failure{id: "m-7", number: 4711, err: "no queue took it", next: bad.next}, `(message "m-7") to exchange "shop" with routing key "order.paid": no queue took it`},
		{"one whose next try is due", time.Minute, bad, "m-7"},
		{"one that has gone another way", time.Minute + failingMemory + time.Second, bad, ""},
		{"one that somebody has parked", 2 * time.Second, failure{number: -4711}, ""},
		{"an address that takes entries again", 2 * time.Second, failure{}, ""},
	} {
		h := &forwardHealth{}
		h.begins(now)
		h.published(to, bad, now)
		if tt.latest.number < 0 {
			h.forget([]int64{1, -tt.latest.number})
		} else {
			h.published(to, tt.latest, now)
		}
		says := ""
		if err := h.check(now.Add(tt.after)); err != nil {
			says = err.Error()
		}
		if tt.says == "" && says != "" || !strings.Contains(says, tt.says) {
			t.Errorf("%s: %q, want %q", tt.rule, says, tt.says)
		}
		if strings.Contains(says, "line") && !tt.latest.inLine {
			t.Errorf("%s: %q tells of a line", tt.rule, says)
		}
	}
}

// The bounds that Config.KeepOrder states.
func TestHowLongALineWaitsForAParking(t *testing.T) {
	for tries, want := range map[int]time.Duration{20: 58*time.Minute + 31*time.Second, 7: 63 * time.Second} {
		var sum time.Duration
		for tried := range tries {
			v := verdict(Entry{State: Ready, Tries: tried}, producer.Receipt{Err: producer.ErrReturned}, false, tries, 0, time.Unix(0, 0))
			if v.state == Parked {
				break
			}
			sum += v.next.Sub(time.Unix(0, 0))
		}
		if sum != want {
			t.Errorf("%d tries take %v, want %v", tries, sum, want)
		}
	}
}
