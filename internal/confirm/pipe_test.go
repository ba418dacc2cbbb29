package confirm

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func inFlight(id, key string) *Pending {
	return &Pending{message: Message{Exchange: "shop", Key: key, Publishing: amqp.Publishing{MessageId: id}}}
}

func TestAReturnIsMatchedByIDExchangeAndKey(t *testing.T) {
	p := &pipe{returns: make(chan amqp.Return, 8)}
	other, twin1, twin2, key := inFlight("1", "a"), inFlight("2", "a"), inFlight("2", "a"), inFlight("2", "b")
	for _, m := range []*Pending{other, twin1, twin2, key} {
		p.add(m)
	}
	p.returns <- amqp.Return{Exchange: "shop", RoutingKey: "a", MessageId: "2", ReplyCode: 312}
	p.returns <- amqp.Return{Exchange: "shop", RoutingKey: "a", MessageId: "gone"}
	p.drainReturns()
	for _, tt := range []struct {
		rule string
		m    *Pending
		want bool
	}{
		{"another id", other, false},
		{"the same id", twin1, true},
		{"a message of the same id: rather doubled than lost", twin2, true},
		{"another key", key, false},
	} {
		if got := tt.m.returned != nil; got != tt.want {
			t.Errorf("%s: returned = %t, want %t", tt.rule, got, tt.want)
		}
	}
}

func TestMessagesInFlightLeaveInAnyOrder(t *testing.T) {
	p := &pipe{}
	a, b, c := inFlight("a", ""), inFlight("b", ""), inFlight("c", "")
	for _, m := range []*Pending{a, b, c} {
		p.add(m)
	}
	p.remove(b)
	if p.first != a || p.last != c || a.next != c || c.prev != a {
		t.Error("removing the middle breaks the list")
	}
	p.remove(c)
	p.remove(a)
	if p.first != nil || p.last != nil {
		t.Error("the list is not empty at the end")
	}
}

func TestWhatARefusalIs(t *testing.T) {
	missing := &RefusedError{Exchange: "nowhere", Cause: &amqp.Error{Code: amqp.NotFound}}
	tooLarge := &RefusedError{Cause: &amqp.Error{Code: amqp.PreconditionFailed}}
	returned := &ReturnedError{}
	for _, tt := range []struct {
		rule      string
		err, is   error
		isNothing error
	}{
		{"a missing exchange takes no message", missing, ErrReturned, ErrRefused},
		{"a message that is not allowed", tooLarge, ErrRefused, ErrReturned},
		{"no queue", returned, ErrReturned, ErrRefused},
	} {
		if !errors.Is(tt.err, tt.is) || errors.Is(tt.err, tt.isNothing) || errors.Is(tt.err, ErrUnconfirmed) {
			t.Errorf("%s: %v is of the wrong kind", tt.rule, tt.err)
		}
	}
}
