package foreign

import (
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
)

func TestRead(t *testing.T) {
	at := time.Date(2026, 11, 11, 2, 26, 58, 462_000, time.UTC)
	for _, tt := range []struct {
		rule    string
		headers amqp.Table
		want    Failure
	}{
		{"Spring AMQP: the innermost exception, and where the message came from", amqp.Table{
			"x-exception-message": "no stock", "x-original-exchange": "shop", "x-original-routingKey": "order.paid",
			"x-exception-stacktrace": "org.Outer: failed\n\tat a.B(C.java:1)\nCaused by: shop.NoStock: no stock\n\tat d.E(F.java:2)",
		}, Failure{Framework: SpringAMQP, Exchange: "shop", RoutingKey: "order.paid", HasOrigin: true, Cause: rehop.CauseExhausted, Error: "no stock", ErrorType: "shop.NoStock",
			Stack: "org.Outer: failed\n\tat a.B(C.java:1)\nCaused by: shop.NoStock: no stock\n\tat d.E(F.java:2)"}},
		{"Spring AMQP without a cause: the exception itself", amqp.Table{"x-exception-stacktrace": "shop.NoStock: no stock\n\tat d.E(F.java:2)"},
			Failure{Framework: SpringAMQP, Cause: rehop.CauseExhausted, ErrorType: "shop.NoStock", Stack: "shop.NoStock: no stock\n\tat d.E(F.java:2)"}},
		{"NServiceBus: the queue without its machine", amqp.Table{
			"NServiceBus.FailedQ": "Sales@web-1", "NServiceBus.TimeOfFailure": "2026-11-11 02:26:58:000462 Z", "NServiceBus.ProcessingMachine": "web-1",
			"NServiceBus.ExceptionInfo.ExceptionType": "Shop.NoStock", "NServiceBus.ExceptionInfo.Message": "no stock", "NServiceBus.ExceptionInfo.StackTrace": "at X",
		}, Failure{Framework: NServiceBus, Queue: "Sales", Cause: rehop.CauseExhausted, Error: "no stock", ErrorType: "Shop.NoStock", Stack: "at X", Host: "web-1", At: at}},
		{"MassTransit: the queue is the last part of the input address", amqp.Table{
			"MT-Reason": "fault", "MT-Fault-ExceptionType": "Shop.NoStock", "MT-Fault-Message": "no stock", "MT-Fault-Timestamp": "2026-11-11T02:26:58.0004620Z",
			"MT-Fault-InputAddress": "rabbitmq://host/vhost/orders?bind=true", "MT-Fault-RetryCount": int32(2), "MT-Host-MachineName": "web-1",
		}, Failure{Framework: MassTransit, Queue: "orders", Cause: rehop.CauseExhausted, Error: "no stock", ErrorType: "Shop.NoStock", Host: "web-1", Attempts: 3, At: at}},
		{"MassTransit: a message that no consumer is for", amqp.Table{"MT-Reason": "dead-letter"}, Failure{Framework: MassTransit, Cause: rehop.CauseUnhandled}},
		{"values that make no sense count as absent", amqp.Table{"MT-Fault-Message": []byte("no stock"), "MT-Fault-Timestamp": "yesterday", "MT-Fault-RetryCount": "-7", "MT-Fault-InputAddress": "%"},
			Failure{Framework: MassTransit, Cause: rehop.CauseExhausted, Error: "no stock"}},
	} {
		got, ok := Read(tt.headers)
		if !ok || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s:\n%+v, want\n%+v", tt.rule, got, tt.want)
		}
		kept := tt.headers
		kept["tenant"] = "acme"
		left := Strip(kept, got.Framework)
		if left["MT-Host-MachineName"] != nil {
			delete(left, "MT-Host-MachineName") // says who published it
		}
		if len(left) != 1 || left["tenant"] != "acme" {
			t.Errorf("%s: of the headers are left %v", tt.rule, left)
		}
	}
	if f, ok := Read(amqp.Table{"tenant": "acme", "x-death": []any{}}); ok {
		t.Errorf("a message of none of them: %+v", f)
	}
}

// Text that is too long for a name of AMQP is none.
func TestTextThatIsNoName(t *testing.T) {
	long := strings.Repeat("x", 256)
	for rule, headers := range map[string]amqp.Table{
		"queue of NServiceBus":   {"NServiceBus.FailedQ": long},
		"address of MassTransit": {"MT-Reason": "fault", "MT-Fault-InputAddress": "rabbitmq://host/" + long},
		"exchange of Spring":     {"x-exception-message": "no", "x-original-exchange": long, "x-original-routingKey": "k"},
		"routing key of Spring":  {"x-exception-message": "no", "x-original-exchange": "e", "x-original-routingKey": long},
	} {
		f, ok := Read(headers)
		if !ok || f.Queue != "" || f.HasOrigin || f.Exchange+f.RoutingKey != "" {
			t.Errorf("%s: %.60v, %v", rule, f, ok)
		}
	}
	if f, _ := Read(amqp.Table{"NServiceBus.FailedQ": long[1:]}); f.Queue != long[1:] {
		t.Errorf("a name of 255 bytes: %.60v", f)
	}
}
