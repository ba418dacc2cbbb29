package elastic_test

import (
	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/rehop/rehop/internal/example"
	"github.com/rehop/rehop/store/elastic"
)

// The examples connect to a broker in the process.
var connect, check = example.Connect, example.Check

// client returns what a program has of elasticsearch.NewClient.
func client() esapi.Transport { return elastic.NewIndex() }
