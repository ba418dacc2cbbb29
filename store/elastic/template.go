package elastic

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/rehop/rehop/connection"
)

// Template returns the index template that Open writes under the name of
// Config.Index, for those who write it themselves.
func Template(cfg Config) (json.RawMessage, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, connection.WithClass(err, connection.Bug)
	}
	return template(cfg), nil
}

type object = map[string]any

func template(cfg Config) json.RawMessage {
	keyword := object{"type": "keyword", "ignore_above": 8191}
	text := object{"type": "text", "analyzer": cfg.Analyzer}
	date := object{"type": "date"}
	settings := object{}
	if cfg.Policy != "" {
		settings["index.lifecycle.name"] = cfg.Policy
		settings["index.lifecycle.rollover_alias"] = cfg.Index
	}
	raw, err := json.Marshal(object{
		"index_patterns": []string{cfg.Index, cfg.Index + "-*"},
		"priority":       200,
		"template": object{
			"settings": settings,
			"mappings": object{
				"_meta":   object{"rehop": 1},
				"dynamic": false,
				"properties": object{
					"message_id": keyword, "exchange": keyword, "routing_key": keyword, "queue": keyword,
					"cause": keyword, "error_type": keyword, "fingerprint": keyword,
					"error": text, "body": text, "headers": text, "properties": text,
					"body_base64":  object{"type": "keyword", "index": false, "doc_values": false},
					"attempts":     object{"type": "integer"},
					"unconfirmed":  object{"type": "boolean"},
					"first_failed": date, "failed": date, "stored": date,
					"tie": object{"type": "long"},
				},
			},
		},
	})
	if err != nil {
		panic(err) // all of it is text and numbers
	}
	return raw
}

func (s *Store) writeTemplate(ctx context.Context) error {
	return s.do(ctx, esapi.IndicesPutIndexTemplateRequest{Name: s.cfg.Index, Body: bytes.NewReader(template(s.cfg))}, nil)
}
