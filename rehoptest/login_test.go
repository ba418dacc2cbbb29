package rehoptest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

func TestConfigFaults(t *testing.T) {
	_, err := rehoptest.NewBroker(rehoptest.Config{
		Version: "4.7", Vhosts: []string{}, MaxMessageSize: -1, Heartbeat: time.Millisecond, ConsumerTimeout: -1, DeadLetterTimeout: -1,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{`Version is "4.7"`, "Vhosts", "MaxMessageSize", "Heartbeat", "ConsumerTimeout", "DeadLetterTimeout"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("the error does not name %s: %v", field, err)
		}
	}
}

func TestLogin(t *testing.T) {
	cfg := rehoptest.Config{
		Version: "4.3", Users: map[string]string{"anna": "secret"}, External: "robot", Vhosts: []string{"/", "shop"},
	}
	b, err := rehoptest.NewBroker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c := &client{T: t, broker: b}
	for name, test := range map[string]struct {
		url  string
		cfg  amqp.Config
		code int
	}{
		"plain":                {"amqp://anna:secret@broker/", amqp.Config{}, 0},
		"another virtual host": {"amqp://anna:secret@broker/shop", amqp.Config{}, 0},
		"external":             {"amqp://broker/", amqp.Config{SASL: []amqp.Authentication{&amqp.ExternalAuth{}}}, 0},
		"wrong password":       {"amqp://anna:guess@broker/", amqp.Config{}, 403},
		"unknown user":         {"amqp://guest:guest@broker/", amqp.Config{}, 403},
		"unknown virtual host": {"amqp://anna:secret@broker/nowhere", amqp.Config{}, 530},
		"small frames":         {"amqp://anna:secret@broker/", amqp.Config{FrameSize: 4096}, 403}, // what the library makes of a silent end
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := c.login(test.url, test.cfg)
			if got := code(err); got != test.code || (err == nil) != (test.code == 0) {
				t.Errorf("%v, want the code %d", err, test.code)
			}
			if err == nil {
				_ = conn.Close()
			}
		})
	}
}

func TestWhatIsOutIsRefused(t *testing.T) {
	for name, do := range map[string]func(*amqp.Channel) error{
		"transactions": func(ch *amqp.Channel) error { return ch.Tx() },
		"streams": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("s", true, false, false, false, amqp.Table{"x-queue-type": "stream"})
			return err
		},
		"direct reply-to": func(ch *amqp.Channel) error {
			_, err := ch.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rehoptest.Config{}, func(c *client) {
				if err := do(c.ch); code(err) != 540 || !strings.Contains(err.Error(), "rehoptest has no "+name) {
					t.Errorf("%v, want 540 that says why", err)
				}
			})
		})
	}
}

func TestALongReplyIsCut(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		name := strings.Repeat("q", 200)
		_, err := c.ch.QueueDeclarePassive(strings.Repeat("q", 250), true, false, false, false, nil)
		var e *amqp.Error
		if !errors.As(err, &e) || len(e.Reason) != 255 || !strings.HasSuffix(e.Reason, "q...") || !strings.Contains(e.Reason, name) {
			c.Errorf("%v, want 255 bytes with three dots at the end", err)
		}
	})
}

// RabbitMQ's own users accept any: their password stays what it was.
func TestNewSecret(t *testing.T) {
	inBubble(t, rehoptest.Config{}, func(c *client) {
		c.must(c.conn.UpdateSecret("another", "it is time"))
		c.connect()
	})
}
