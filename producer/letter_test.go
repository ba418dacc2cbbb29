package producer

import (
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/copies"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

func TestFromDelivery(t *testing.T) {
	at := time.Unix(1e9, 0)
	sent := Message{
		Exchange: "shop", RoutingKey: "order.paid", Body: []byte("body"), Headers: amqp.Table{"own": "header"}, ID: "1",
		ContentType: "text/plain", ContentEncoding: "gzip", Type: "t", CorrelationID: "c", ReplyTo: "r", AppID: "a", UserID: "u",
		Timestamp: at, Priority: 7, Expiration: time.Minute, OrderKey: "4711",
	}
	publishing, err := sent.publishing()
	if err != nil {
		t.Fatal(err)
	}
	delivered := func(p amqp.Publishing, exchange, key string) amqp.Delivery {
		return amqp.Delivery{
			Exchange: exchange, RoutingKey: key, Headers: p.Headers, Body: p.Body, MessageId: p.MessageId, ContentType: p.ContentType,
			ContentEncoding: p.ContentEncoding, Type: p.Type, CorrelationId: p.CorrelationId, ReplyTo: p.ReplyTo, AppId: p.AppId,
			UserId: p.UserId, Timestamp: p.Timestamp, Priority: p.Priority, Expiration: p.Expiration,
		}
	}
	fresh := delivered(publishing, "shop", "order.paid")
	letter := copies.DeadLetter(fresh, copies.Letter{Queue: "orders", Attempts: 5, User: "u", Failure: xdeath.Failure{Cause: rehop.CauseExhausted, At: at}})
	byBroker := fresh
	byBroker.Exchange, byBroker.RoutingKey, byBroker.Expiration = "orders.rehop.unrouted", "orders@4", ""
	byBroker.Headers = amqp.Table{"own": "header", header.OrderKey: "4711", "x-death": []any{amqp.Table{
		"queue": "orders", "reason": "rejected", "count": int64(1), "exchange": "shop", "routing-keys": []any{"order.paid"},
		"time": at, "original-expiration": "60000",
	}}}
	returned := fresh
	returned.Exchange, returned.RoutingKey = "orders.rehop.unrouted", "orders@1"
	returned.Expiration, returned.Headers = "", amqp.Table{"own": "header", header.OrderKey: "4711", header.Due: at.UnixMilli(), header.Queue: "orders", header.Attempts: int64(1),
		header.Exchange: "shop", header.RoutingKey: "order.paid", header.Expiration: "60000", "x-death": []any{amqp.Table{
			"queue": "orders", "reason": "delivery_limit", "count": int64(1), "exchange": "orders.rehop.return", "routing-keys": []any{"orders@1"}, "time": at,
		}, amqp.Table{
			"queue": "orders.wait.1", "reason": "expired", "count": int64(1), "exchange": "", "routing-keys": []any{"orders.wait.1"},
			"time": at, "original-expiration": "70000",
		}}}
	again := sent
	again.Headers = amqp.Table{"own": "header", header.UserID: "u"}
	archived := copies.DeadLetter(fresh, copies.Letter{Queue: "orders", Attempts: 5, User: "consumer", Failure: xdeath.Failure{Cause: rehop.CauseExhausted, At: at}})
	noted := again
	noted.UserID = ""
	nobody, fromNobody := sent, fresh
	nobody.UserID, fromNobody.UserId = "", ""
	toQueue := again
	toQueue.Exchange, toQueue.RoutingKey, toQueue.Origin = "", "orders", topology.Address{Exchange: "shop", RoutingKey: "order.paid"}
	if publishing, err = toQueue.publishing(); err != nil {
		t.Fatal(err)
	}
	straight := delivered(publishing, "", "orders")
	for _, tt := range []struct {
		rule string
		d    amqp.Delivery
		want Message
	}{
		{"a fresh delivery", fresh, again},
		{"a letter of a consumer", delivered(letter, "", "orders.dlq"), again},
		{"a letter that the broker moved", byBroker, again},
		{"a letter that the broker moved, whose consumer gave it an expiration", returned, again},
		{"a letter whose user-id is archived", delivered(archived, "orders.dlx", "orders"), noted},
		{"a delivery without a user-id", fromNobody, nobody},
		{"a delivery that was sent straight to its queue", straight, again},
		{"nothing", amqp.Delivery{RoutingKey: "q", Priority: 200}, Message{RoutingKey: "q", Priority: 9}},
	} {
		if got := FromDelivery(tt.d); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.rule, got, tt.want)
		}
	}
}
