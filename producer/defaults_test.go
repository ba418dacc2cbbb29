package producer

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
)

func TestDefaultsAreForMessagesWithoutAValueOfTheirOwn(t *testing.T) {
	defaults := Defaults{ContentType: "application/json", AppID: "shop", Expiration: time.Hour}
	own := Message{ID: "own", RoutingKey: "open", ContentType: "text/plain", AppID: "other", Expiration: time.Minute}
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{Defaults: defaults})
		defer p.Close()
		if _, err := p.Publish(s.Context(), own); err != nil {
			s.Fatal(err)
		}
		if _, err := p.PublishAll(s.Context(), []Message{{ID: "all", RoutingKey: "open"}}); err != nil {
			s.Fatal(err)
		}
		done := make(chan error)
		p.PublishAsync(s.Context(), Message{ID: "async", RoutingKey: "open"}, func(_ Receipt, err error) { done <- err })
		if err := <-done; err != nil {
			s.Fatal(err)
		}
		q, _ := s.broker.Queue("open")
		got := map[string]amqp.Publishing{}
		for _, m := range q.Ready {
			got[m.MessageId] = m.Publishing
		}
		for id, want := range map[string][3]string{
			"own":   {"text/plain", "other", "60000"},
			"all":   {"application/json", "shop", "3600000"},
			"async": {"application/json", "shop", "3600000"},
		} {
			if m := got[id]; [3]string{m.ContentType, m.AppId, m.Expiration} != want {
				s.Errorf("%s has content type %q, app id %q, expiration %q; want %q", id, m.ContentType, m.AppId, m.Expiration, want)
			}
		}
	})
}

func TestADelayedMessageGetsNoExpirationByDefault(t *testing.T) {
	m := Message{RoutingKey: "open", Delay: time.Second}
	Defaults{Expiration: time.Hour}.complete(&m)
	if m.Expiration != 0 {
		t.Errorf("Expiration is %v, want none beside a Delay", m.Expiration)
	}
}

func TestFaultyDefaultsAreRefused(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p, err := New(s.conn, Config{Defaults: Defaults{AppID: strings.Repeat("a", 256), Expiration: time.Nanosecond}})
		if p != nil || err == nil || rehop.ClassOf(err) != rehop.ClassBug ||
			!strings.Contains(err.Error(), "is 256 bytes long") || !strings.Contains(err.Error(), "producer: Config.Defaults.Expiration") {
			s.Errorf("New = %v", err)
		}
	})
}
