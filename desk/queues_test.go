package desk

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// infos are the queues of the broker, as the management API tells them.
func (w *fixture) infos() (infos []management.Info) {
	for _, name := range w.broker.Queues() {
		q, _ := w.broker.Queue(name)
		i := management.Info{Name: name, Ready: len(q.Ready), Unacked: len(q.Unacked), Consumers: q.Consumers}
		i.Type, i.Arguments = q.Type, q.Arguments
		infos = append(infos, i)
	}
	return infos
}

func TestLanesMayShareADeadLetterQueue(t *testing.T) {
	onEach(t, func(w *fixture) {
		lanes := []topology.Lane{{Name: "express"}, {Name: "of.normal"}}
		must(w.T, topology.Declare(w.Context(), w.conn,
			topology.Lanes{Name: "eu.orders", Lanes: lanes, OneDeadLetterQueue: true}, topology.Lanes{Name: "mails", Lanes: lanes},
			topology.DeadLetterQueue{Name: "eu.dlq"}))
		for range 3 {
			_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "eu.orders.dlq"})
			must(w.T, err)
		}
		want := map[string]string{
			"eu.orders.express": "eu.orders.dlq", "eu.orders.of.normal": "eu.orders.dlq", "mails.express": "mails.express.dlq", "mails.of.normal": "mails.of.normal.dlq",
		}
		for _, q := range fold(w.infos(), w.conn.Server().Version) {
			if q.DeadLetters != want[q.Name] {
				w.Errorf("%s: dead letters in %q, want %q", q.Name, q.DeadLetters, want[q.Name])
			}
			if n := 3; strings.HasPrefix(q.Name, "eu.orders.") && !q.IsDeadLetters && q.Letters != n {
				w.Errorf("%s has %d letters, want %d", q.Name, q.Letters, n)
			}
			delete(want, q.Name)
		}
		if len(want) > 0 {
			w.Errorf("not found: %v", want)
		}
	})
}

// A wait queue has a TTL or is carried, by the version of the broker.
func TestTheWaitsOfAWorkQueueAreKnownFromItsWaitQueues(t *testing.T) {
	onEach(t, func(w *fixture) {
		declare := func(waits ...time.Duration) {
			must(w.T, topology.Declare(w.Context(), w.conn, topology.WorkQueue{Name: "orders", Waits: waits}))
		}
		is := func(want time.Duration) {
			w.Helper()
			if got := waitsOf("orders", w.infos()); got != want {
				w.Errorf("the waits are %v together, want %v", got, want)
			}
		}
		is(0)
		declare(3*time.Second, 6*time.Second)
		is(9 * time.Second)
		declare(2*time.Second, 20*time.Second) // of a process that is rolled out
		is(8 * time.Second)
	})
}

func TestExamineNotesEveryQueueWithDeadLetters(t *testing.T) {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	must(t, err)
	defer broker.Close()
	address, err := broker.Listen()
	must(t, err)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"page_count": 1, "items": [
			{"name": "ledger", "type": "quorum", "consumers": 1}, {"name": "ledger.dlq", "type": "quorum", "arguments": {"x-delivery-limit": -1}, "messages_ready": 4},
			{"name": "orders.express", "type": "quorum", "consumers": 1, "arguments": {"x-dead-letter-exchange": "orders.express.rehop.dlx"}},
			{"name": "orders.normal", "type": "quorum", "messages_ready": 2, "arguments": {"x-dead-letter-exchange": "orders.normal.rehop.dlx"}},
			{"name": "orders.dlq", "type": "quorum", "arguments": {"x-delivery-limit": -1}, "messages_ready": 17, "messages_unacknowledged": 1},
			{"name": "legacy_error", "type": "classic", "arguments": {"x-single-active-consumer": true}, "messages_ready": 1}, {"name": "mails.dlq", "type": "quorum"}]}`))
	}))
	defer api.Close()
	var letters, advice, idle []string
	for _, f := range Examine(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@" + address}, ManagementURL: strings.Replace(api.URL, "//", "//guest:guest@", 1)}) {
		switch f.About {
		case "letters":
			letters, advice = append(letters, f.Says), append(advice, f.Advice)
		case "consumers":
			idle = append(idle, f.Says)
		}
		if text, err := json.Marshal(f); err != nil || !strings.HasPrefix(string(text), `{"about":`) {
			t.Errorf("JSON: %s, %v", text, err)
		}
	}
	if want := []string{"ledger.dlq: 4 dead letters", "legacy_error: 1 dead letter", "orders.dlq: 18 dead letters"}; !slices.Equal(slices.Sorted(slices.Values(letters)), want) {
		t.Errorf("notes %q, want %q", letters, want)
	}
	if !slices.Contains(advice, "look at them: rehop dlq groups orders.dlq") || slices.Contains(advice, "look at them: rehop dlq groups legacy_error") {
		t.Errorf("advice: %q", advice)
	}
	if want := []string{"orders.normal has 2 messages and no consumer"}; !slices.Equal(idle, want) {
		t.Errorf("without a consumer: %q, want %q", idle, want)
	}
}

// Who is told of a policy is told where the command is that mends it.
func TestAFindingOfAPolicyNamesTheCommandThatKnowsMore(t *testing.T) {
	info := management.Info{Name: "orders.dlq", Queue: management.Queue{Policy: "cap", Definition: map[string]any{"max-length": 50}}}
	found := policyFindings([]management.Info{info}, map[string]bool{"orders.dlq": true})
	if len(found) != 1 || !strings.Contains(found[0].Advice, "rehop topology verify") {
		t.Errorf("found %+v", found)
	}
}

// The management API may answer while the broker takes no connection: the queues are shown
// all the same, and soon.
func TestQueuesDoNotWaitForABrokerThatIsAway(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"page_count": 1, "items": [{"name": "orders.dlq", "type": "quorum", "arguments": {"x-delivery-limit": -1}}]}`))
	}))
	defer api.Close()
	conn, err := connection.Open(t.Context(), connection.Config{
		Lazy: true, URLs: []string{"amqp://guest:guest@broker"}, ManagementURL: strings.Replace(api.URL, "//", "//guest:guest@", 1),
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	queues, err := Queues(t.Context(), conn)
	if err != nil || len(queues) != 1 || queues[0].Refusal != "" {
		t.Errorf("%+v, %v; want the queue, and no refusal by a version that is not known", queues, err)
	}
	if took := time.Since(began); took > 3*versionLimit {
		t.Errorf("took %v, want %v", took, versionLimit)
	}
}
