package whereto

import (
	"testing"

	"github.com/rehop/rehop/topology"
)

func TestATargetIsAQueueOrAnExchangeWithAKey(t *testing.T) {
	for text, want := range map[string]topology.Address{
		"orders": {RoutingKey: "orders"}, "shop/order.paid": {Exchange: "shop", RoutingKey: "order.paid"}, "shop/": {Exchange: "shop"}, "shop/a/b": {Exchange: "shop", RoutingKey: "a/b"},
		"/eu/orders": {RoutingKey: "eu/orders"}, "/orders": {RoutingKey: "orders"}, "//orders": {RoutingKey: "/orders"},
	} {
		if got, err := Read(text); err != nil || got == nil || *got != want {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
	}
	if got, err := Read(""); err != nil || got != nil {
		t.Errorf("no text is %+v, %v", got, err)
	}
	for _, url := range []string{"amqp://bob:secret@host/orders", "shop/amqp://bob:secret@host"} {
		if got, err := Read(url); err == nil || err.Error() != "is a URL, which is not shown" {
			t.Errorf("%q is %+v, %v", url, got, err)
		}
	}
}
