package connection

import (
	"bytes"
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
