package elastic

import (
	"strings"
	"testing"

	"github.com/elastic/go-elasticsearch/v8"
)

// A client has its login in its address. No error of the Store repeats it.
func TestNoSecretOfTheClientIsShown(t *testing.T) {
	const secret = "topsecret"
	for _, cfg := range []elasticsearch.Config{
		{Addresses: []string{"http://elastic:" + secret + "@127.0.0.1:1"}},
		{Addresses: []string{"https://elastic:" + secret + "%2F1@127.0.0.1:1/path?token=" + secret}},
		{Addresses: []string{"http://127.0.0.1:1"}, Username: "elastic", Password: secret},
		{Addresses: []string{"http://127.0.0.1:1"}, APIKey: secret},
	} {
		cfg.DisableRetry = true
		client, err := elasticsearch.NewClient(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []Config{{}, {NoTemplate: true}} {
			if _, err := Open(t.Context(), client, c); err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("Open = %v, want an error without the secret", err)
			}
		}
	}
}
