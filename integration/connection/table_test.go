package connection_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/rehop/rehop/integration/account"
)

// What is promised. What a test measures may be three times as long, for a
// machine that is busy with other things.
const (
	slack     = 3
	heartbeat = 2 * time.Second

	// noticed is when a broker that is silent is given up.
	noticed = heartbeat * 3 / 2

	// noticedByBroker is when a broker gives up a client that is silent.
	noticedByBroker = 3 * heartbeat

	// handshake is DialTimeout here, unless a test says otherwise.
	handshake = 2 * time.Second

	// returned is when a client is back at a broker that is: after the longest
	// pause between two rounds, and a try that was under way.
	returned = 10*time.Second + handshake
)

// row is what one fault did on one version.
type row struct {
	t              *testing.T
	version, fault string
	detect, back   string
	lost, doubled  string
}

var results table

type table struct {
	mu   sync.Mutex
	rows []*row
}

// newRow adds a row to the table, and prints it at the end of the test.
func newRow(t *testing.T, version, fault string) *row {
	r := &row{t: t, version: version, fault: fault, detect: "-", back: "-", lost: "-", doubled: "-"}
	t.Cleanup(func() {
		t.Log(r)
		results.mu.Lock()
		defer results.mu.Unlock()
		results.rows = append(results.rows, r)
	})
	return r
}

func (r *row) String() string {
	return fmt.Sprintf("RabbitMQ %s, %s: time to detect %s, time to recover %s, %s lost, %s doubled",
		r.version, r.fault, r.detect, r.back, r.lost, r.doubled)
}

// detected notes how long a fault went unnoticed.
func (r *row) detected(took, promised time.Duration) {
	r.t.Helper()
	r.detect = r.within("detected", took, promised)
}

// recovered notes how long after the end of the fault all was well.
func (r *row) recovered(took, promised time.Duration) {
	r.t.Helper()
	r.back = r.within("recovered", took, promised)
}

func (r *row) within(what string, took, promised time.Duration) string {
	r.t.Helper()
	if took > slack*promised {
		r.t.Errorf("%s after %v, promised within %v", what, took, promised)
	}
	return max(took, 0).Round(time.Millisecond).String() // below 0: before the command that made it returned
}

// accounts notes what became of the messages. None may be lost, and no call of
// Publish may have failed but for what is allowed.
func (r *row) accounts(a *account.Account, failed []error, allowed ...error) {
	r.t.Helper()
	failed = slices.DeleteFunc(failed, func(err error) bool {
		return slices.ContainsFunc(allowed, func(target error) bool { return errors.Is(err, target) })
	})
	r.lost, r.doubled = fmt.Sprint(len(a.Lost())), fmt.Sprint(a.Doubled().Messages)
	r.t.Log(a)
	if err := a.Verdict(); err != nil {
		r.t.Error(err)
	}
	for _, err := range failed[:min(len(failed), 3)] {
		r.t.Errorf("%d calls of Publish failed: %v", len(failed), err)
	}
}

func (tab *table) print(w io.Writer) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	slices.SortFunc(tab.rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.fault, b.fault), cmp.Compare(a.version, b.version))
	})
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer aligned.Flush()
	fmt.Fprintln(aligned, "version\tfault\tdetect\trecover\tlost\tdoubled\t")
	for _, r := range tab.rows {
		failed := ""
		if r.t.Failed() {
			failed = "FAIL"
		}
		fmt.Fprintf(aligned, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.version, r.fault, r.detect, r.back, r.lost, r.doubled, failed)
	}
}
