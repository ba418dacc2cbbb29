package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/rehop/rehop"
)

// Template returns the index template that Open writes under the name of
// Config.Index, for programs that write it themselves.
func Template(cfg Config) (json.RawMessage, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, rehop.WithClass(err, rehop.ClassBug)
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
					"cause": keyword, "error_type": keyword, "fingerprint": keyword, "order_key": keyword, "redrive_id": keyword,
					"error": text, "body": text, "headers": text, "properties": text,
					"body_base64":  object{"type": "keyword", "index": false, "doc_values": false},
					"attempts":     object{"type": "integer"},
					"redrives":     object{"type": "integer"},
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

// needed are the types of the fields by which letters are found, as Elasticsearch and
// ZincSearch call them.
var needed = map[string][]string{
	"message_id": {"keyword"}, "exchange": {"keyword"}, "routing_key": {"keyword"}, "queue": {"keyword"},
	"cause": {"keyword"}, "error_type": {"keyword"}, "fingerprint": {"keyword"},
	"stored": {"date"}, "tie": {"long", "numeric"},
}

// checkMapping refuses an index whose fields have other types than those of the
// template. An index that is not there has none.
func (s *Store) checkMapping(ctx context.Context) error {
	var answer map[string]struct {
		Mappings struct {
			Properties map[string]struct{ Type string }
		}
	}
	err := s.do(ctx, esapi.IndicesGetMappingRequest{Index: []string{s.cfg.Index}}, &answer)
	var answered *responseError
	if s.noIndex(err) || errors.As(err, &answered) && answered.Status == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the mapping of %s: %w", s.cfg.Index, err)
	}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(answer)) {
		for _, field := range slices.Sorted(maps.Keys(needed)) {
			if is := answer[name].Mappings.Properties[field].Type; !slices.Contains(needed[field], is) {
				wrong = append(wrong, fmt.Sprintf("%s.%s is %q, want %q", name, field, is, needed[field][0]))
			}
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return rehop.WithClass(fmt.Errorf("the index was made without the template, so letters in it cannot be found: %s: reindex it into one that is made with the template", strings.Join(wrong, ", ")), rehop.ClassConfiguration)
}
