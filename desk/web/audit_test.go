package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/rehoptest"
)

// The audit names the login for a look, and for a letter that a page shows.
func TestTheAuditNamesWhoHasLookedAndSeenALetter(t *testing.T) {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	must(t, err)
	defer broker.Close()
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
	must(t, err)
	defer conn.Close()
	session, err := conn.Session(t.Context(), connection.Publish)
	must(t, err)
	must(t, session.Do(t.Context(), func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclare("orders.dlq", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(-1)}); err != nil {
			return err
		}
		return ch.Publish("", "orders.dlq", true, false, amqp.Publishing{MessageId: "m-0", Body: []byte("order")})
	}))
	must(t, session.Close())
	journal, err := desk.OpenJournal(t.TempDir())
	must(t, err)
	h, err := New(Config{Journal: journal, Conn: conn, Queues: []string{"orders.dlq"}, Who: func(r *http.Request) string { return r.Header.Get("X-User") }})
	must(t, err)
	ask := func(who, method, path string, form url.Values) string {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-User", who)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 400 {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	ask("ada", "POST", "/look", url.Values{"queue": {"orders.dlq"}})
	page := ask("bob", "GET", "/letters?queue=orders.dlq", nil)
	_, id, _ := strings.Cut(page, `href="letter?id=`)
	id, _, _ = strings.Cut(id, "&")
	ask("eve", "GET", "/letter?queue=orders.dlq&id="+id, nil)
	records, err := journal.Audit(10)
	must(t, err)
	var got []string
	for _, r := range records {
		got = append(got, fmt.Sprintf("%s %s %d", r.By.Who, r.Action, r.Count))
	}
	if want := []string{"eve show 1", "ada look 1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
