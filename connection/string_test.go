package connection

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestNoFormOfAConnShowsAPassword(t *testing.T) {
	conn, err := Open(t.Context(), Config{URLs: []string{"amqp://guest:topsecret@127.0.0.1:1"}, ManagementURL: "http://guest:topsecret@127.0.0.1:1", Name: "shop", Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("text", "conn", conn)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("json", "conn", conn)
	for _, text := range []string{fmt.Sprint(conn), fmt.Sprintf("%+v", conn), fmt.Sprintf("%#v", conn), log.String()} {
		if strings.Contains(text, "topsecret") {
			t.Errorf("the password is shown: %s", text)
		}
	}
	if fmt.Sprint(conn) != `connection "shop"` {
		t.Error(conn)
	}
}

func TestALoginInAWrongPlaceIsNotShown(t *testing.T) {
	for rule, tt := range map[string]struct {
		set  map[string]string
		says string
	}{
		"a URL as the virtual host":          {map[string]string{"AMQP_URL": "amqp://127.0.0.1:1", "AMQP_VHOST": "amqp://guest:topsecret@host"}, "AMQP_VHOST is a URL, which is not shown"},
		"the password as the name of a file": {map[string]string{"AMQP_URL": "amqp://127.0.0.1:1", "AMQP_USER": "guest", "AMQP_PASSWORD_FILE": "topsecret"}, "the file that AMQP_PASSWORD_FILE names cannot be read"},
	} {
		t.Run(rule, func(t *testing.T) {
			for name, value := range tt.set {
				t.Setenv(name, value)
			}
			cfg, err := FromEnv("AMQP")
			if err == nil && cfg.Credentials != nil {
				_, err = cfg.Credentials(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "topsecret") {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
	uri, err := amqp.ParseURI("amqp://guest%3Atopsecret@host")
	if err != nil || uri.Username != "guest:topsecret" {
		t.Fatalf("%+v, %v", uri, err)
	}
	for _, text := range []string{endpoint{uri: uri}.String(), explainLogin(uri, amqp.ErrCredentials, time.Time{})} {
		if strings.Contains(text, "topsecret") || !strings.Contains(text, "colon") {
			t.Errorf("a login with an encoded colon is shown: %s", text)
		}
	}
}
