package page_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// failure is why messages of a shop fail.
type failure struct {
	cause, errorType, text, stack string
	share                         int // of a hundred
}

var failures = []failure{
	{"exhausted", "*stock.UnavailableError", "reserve stock for article %d: no stock in warehouse Leipzig", "", 46},
	{"exhausted", "*url.Error", "Post \"https://pay.example/charges\": dial tcp 10.4.0.17:443: connect: connection refused", "", 27},
	{"permanent", "*json.UnmarshalTypeError", "decode order %d: json: cannot unmarshal string into Go struct field Order.amount of type int64", "", 14},
	{"crash-loop", "", "the consumers died while they had it", "", 7},
	{"permanent", "runtime.Error", "panic: runtime error: index out of range [3] with length 3", "goroutine 84 [running]:\nshop/invoice.(*Lines).At(...)\n\t/src/shop/invoice/lines.go:41\nshop/invoice.Total({0xc0002a4000, 0x3, 0x4})\n\t/src/shop/invoice/total.go:27 +0x1b4\nshop/worker.handle({0x9f1c20, 0xc0000a2000}, 0xc00031a000)\n\t/src/shop/worker/handle.go:88 +0x2f1\n", 6},
}

// dead makes a queue of dead letters with n letters that have failed over the last
// hours, and returns the names of the work queue and of that queue.
func dead(t *testing.T, b *broker.Broker, s *site, name string, n int) (work, letters string) {
	t.Helper()
	work, letters = name, name+".dlq"
	must(t, topology.Declare(t.Context(), s.conn, topology.Exchange{Name: "shop"}, topology.WorkQueue{Name: work, Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order." + name}}}))
	ch := channel(t, b)
	forget(t, ch, work, letters)
	must(t, ch.Confirm(false))
	random := rand.New(rand.NewPCG(1, uint64(n)))
	var last *amqp.DeferredConfirmation
	for i := range n {
		f := failures[0]
		for at, k := random.IntN(100), 0; k < len(failures); k++ {
			if at -= failures[k].share; at < 0 {
				f = failures[k]
				break
			}
		}
		text := f.text
		if f.share == 46 || f.share == 14 {
			text = fmt.Sprintf(f.text, 40000+random.IntN(60000))
		}
		failed := time.Now().Add(-time.Duration(float64(18*time.Hour) * random.Float64() * random.Float64()))
		headers := amqp.Table{
			"tenant": []string{"acme", "globex", "initech"}[i%3], "traceparent": fmt.Sprintf("00-%032x-%016x-01", random.Uint64(), random.Uint64()),
			"x-rehop-queue": work, "x-rehop-exchange": "shop", "x-rehop-routing-key": "order." + name, "x-rehop-final-attempts": int64(5),
			"x-rehop-cause": f.cause, "x-rehop-error": text, "x-rehop-failed-at": failed, "x-rehop-first-failed-at": failed.Add(-36 * time.Minute),
			"x-rehop-host": fmt.Sprintf("worker-%d", i%4),
		}
		if f.errorType != "" {
			headers["x-rehop-error-type"] = f.errorType
		}
		if f.stack != "" {
			headers["x-rehop-stack"] = f.stack
		}
		if i%17 == 5 {
			headers["x-rehop-redrives"] = int64(1 + i%2)
			headers["x-rehop-redrive-id"] = "20261122-101500-k3v9xa"
		}
		var err error
		last, err = ch.PublishWithDeferredConfirm("", letters, false, false, amqp.Publishing{
			MessageId: id(name, i), DeliveryMode: amqp.Persistent, ContentType: "application/json", Type: "order.paid", Timestamp: failed.Add(-37 * time.Minute), Headers: headers,
			Body: fmt.Appendf(nil, `{"order":%d,"customer":{"id":%d,"name":"Ayşe Yıldız","vip":%t},"lines":[{"article":%d,"count":%d,"price":"19.90"},{"article":7731,"count":1,"price":"4.50"}],"amount":"44.30","currency":"EUR","paid":true}`,
				100000+i, 5000+i%40, i%9 == 0, 40000+random.IntN(60000), 1+i%3),
		})
		must(t, err)
	}
	if last != nil {
		last.Wait()
	}
	has(t, b, letters, n)
	return work, letters
}

func id(name string, i int) string { return fmt.Sprintf("%s-%05d", name, i) }

func channel(t *testing.T, b *broker.Broker) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(b.AMQPURL())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	return ch
}

// forget deletes queues at the end of the test: a broker that others use too is as it was.
func forget(t *testing.T, ch *amqp.Channel, queues ...string) {
	t.Helper()
	t.Cleanup(func() {
		for _, queue := range queues {
			_, _ = ch.QueueDelete(queue, false, false, false)
		}
	})
}

// has waits until so many messages are ready in a queue.
func has(t *testing.T, b *broker.Broker, queue string, n int) {
	t.Helper()
	ch := channel(t, b)
	var q amqp.Queue
	defer func() {
		if q.Messages != n {
			t.Errorf("%d messages in %s, want %d", q.Messages, queue, n)
		}
	}()
	poll.Until(t, patience, fmt.Sprintf("%d messages in %s", n, queue), func() bool {
		var err error
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		must(t, err)
		return q.Messages == n
	})
}

// drain takes all messages out of a queue.
func drain(t *testing.T, b *broker.Broker, queue string) (all []amqp.Delivery) {
	t.Helper()
	ch := channel(t, b)
	for {
		d, ok, err := ch.Get(queue, true)
		must(t, err)
		if !ok {
			return all
		}
		all = append(all, d)
	}
}
