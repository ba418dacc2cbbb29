package producer

import (
	"encoding/xml"
	"strings"
	"testing"
)

func TestAValueBecomesTheBody(t *testing.T) {
	type order struct{ Number int }
	for name, tt := range map[string]struct {
		encode         func(Message) (Message, error)
		contentType    string
		body, wantType string
	}{
		"JSON":                        {func(m Message) (Message, error) { return m.JSON(order{7}) }, "", `{"Number":7}`, "application/json"},
		"JSON with a type of its own": {func(m Message) (Message, error) { return m.JSON(order{7}) }, "application/vnd.shop+json", `{"Number":7}`, "application/vnd.shop+json"},
		"another codec": {func(m Message) (Message, error) { return m.Encode(order{7}, xml.Marshal, "application/xml") }, "",
			"<order><Number>7</Number></order>", "application/xml"},
	} {
		m, err := tt.encode(Message{RoutingKey: "k", ContentType: tt.contentType})
		if err != nil || string(m.Body) != tt.body || m.ContentType != tt.wantType || m.RoutingKey != "k" {
			t.Errorf("%s: %q of type %q, %v; want %q of type %q", name, m.Body, m.ContentType, err, tt.body, tt.wantType)
		}
	}
	m, err := Message{RoutingKey: "k"}.JSON(make(chan int))
	if err == nil || !strings.HasPrefix(err.Error(), "producer: encoding a chan int: ") || m.Body != nil || m.ContentType != "" {
		t.Errorf("a value that JSON does not know: %+v, %v", m, err)
	}
}
