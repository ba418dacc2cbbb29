package copies

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

// A copy that waits to be carried, and comes back.
func TestDueAndBack(t *testing.T) {
	due := time.UnixMilli(1_700_000_000_123)
	failed := amqp.Delivery{
		Exchange: "shop", RoutingKey: "order.paid", MessageId: "1", UserId: "service", Priority: 5, Body: []byte("b"),
		Headers: amqp.Table{"user": "header"},
	}
	wait := Retry(failed, RetryCopy{Queue: "q", Attempts: 2, At: due.Add(-time.Minute), Due: due.Add(-time.Nanosecond), User: "service"})
	if h, err := xdeath.Parse(wait.Headers); err != nil || !h.Due.Equal(due) || h.Attempts != 2 {
		t.Fatalf("the copy says due %v, %d attempts, %v; want %v rounded up, and 2", h.Due, h.Attempts, err, due)
	}
	carried := amqp.Delivery{
		Exchange: "", RoutingKey: "q.wait.2", MessageId: wait.MessageId, UserId: wait.UserId, Priority: wait.Priority, Body: wait.Body,
		Headers: widened(wait.Headers), Expiration: "7",
	}
	carried.Headers[header.DeliveryCount] = int64(3)
	carried.Headers[header.AcquiredCount] = int64(4)
	back := Back(carried, "carrier")
	h, err := xdeath.Parse(back.Headers)
	if err != nil {
		t.Fatal(err)
	}
	exchange, key, ok := h.Origin("q")
	if h.Attempt("q", true) != 3 || exchange != "shop" || key != "order.paid" || !ok || !h.Due.Equal(due) || h.DeliveryCount != 0 || h.AcquiredCount != 0 {
		t.Errorf("carried back it says %+v; want attempt 3, the producer's exchange and key, when it was due, and no count of another queue", h)
	}
	if back.MessageId != "1" || back.Priority != 5 || string(back.Body) != "b" || back.Headers["user"] != "header" || back.DeliveryMode != amqp.Persistent {
		t.Errorf("carried back it is %+v, want all of it", back)
	}
	if back.UserId != "" || h.Archived.UserID != "service" || back.Expiration != "" {
		t.Errorf("user-id %q (archived %q), expiration %q: the broker would act on them", back.UserId, h.Archived.UserID, back.Expiration)
	}
	again := Retry(amqp.Delivery{Headers: back.Headers}, RetryCopy{Queue: "q", Attempts: 3})
	if _, has := again.Headers[header.Due]; has {
		t.Error("the next copy is due when the last one was")
	}
}

// A consumer that may not look at its waits gives its copies an expiration, which
// the broker takes off, and writes down, when it has brought one back.
func TestTheExpirationOfARetryCopyIsNotTheProducers(t *testing.T) {
	for producers, want := range map[string]any{"60000": "60000", "": nil} {
		wait := Retry(amqp.Delivery{RoutingKey: "q", Expiration: producers}, RetryCopy{Queue: "q", Attempts: 1, Due: time.Now()})
		waiting := amqp.Delivery{RoutingKey: "q.wait.1", Headers: widened(wait.Headers), Expiration: "70000"}
		expired := amqp.Delivery{Exchange: "q.rehop.return", RoutingKey: "q@1", Headers: widened(wait.Headers)}
		expired.Headers[header.Death] = []any{amqp.Table{"queue": "q.wait.1", "reason": "expired", "count": int64(1), "exchange": "",
			"routing-keys": []any{"q.wait.1"}, "time": time.Unix(1_700_000_000, 0), "original-expiration": "70000"}}
		for rule, got := range map[string]amqp.Publishing{
			"carried back":          Back(waiting, ""),
			"retried again":         Retry(expired, RetryCopy{Queue: "q", Attempts: 2, Returned: true}),
			"dead-lettered":         DeadLetter(expired, Letter{Queue: "q", Attempts: 2, Returned: true}),
			"carried, then retried": Retry(amqp.Delivery{Exchange: "q.rehop.return", Headers: widened(Back(waiting, "").Headers)}, RetryCopy{Queue: "q", Attempts: 2, Returned: true}),
		} {
			if got.Headers[header.Expiration] != want || got.Expiration != "" {
				t.Errorf("%s: expiration %q, archived %v; want none, and %v", rule, got.Expiration, got.Headers[header.Expiration], want)
			}
		}
	}
}
