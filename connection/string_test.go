package connection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
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
	const login = "guest:topsecret"
	for rule, set := range map[string]map[string]string{
		"a URL as the virtual host":          {"AMQP_URL": "amqp://127.0.0.1:1", "AMQP_VHOST": "amqp://" + login + "@host"},
		"the password as the name of a file": {"AMQP_URL": "amqp://127.0.0.1:1", "AMQP_USER": "guest", "AMQP_PASSWORD_FILE": "topsecret"},
		"a login with an encoded colon":      {"AMQP_URL": "amqp://guest%3Atopsecret@127.0.0.1:1"},
	} {
		for name, value := range set {
			t.Setenv(name, value)
		}
		cfg, err := FromEnv("AMQP")
		if err == nil {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			var conn *Conn
			if conn, err = Open(ctx, cfg); err == nil {
				_ = conn.Close()
			}
			_, failed := cfg.credentialsNow(t)
			err = errors.Join(err, failed)
		}
		if err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v", rule, err)
		}
		for name := range set {
			t.Setenv(name, "")
		}
	}
}

// credentialsNow asks for the login, as a connection does.
func (c Config) credentialsNow(t *testing.T) (Credentials, error) {
	if c.Credentials == nil {
		return Credentials{}, nil
	}
	return c.Credentials(t.Context())
}
