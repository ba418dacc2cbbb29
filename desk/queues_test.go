package desk

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
)

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
