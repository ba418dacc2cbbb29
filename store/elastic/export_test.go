package elastic

import (
	"net/http"
	"strings"

	"github.com/elastic/go-elasticsearch/v8/esapi"
)

// NewIndex returns the transport to an index in memory, which the examples have in place of a
// client of Elasticsearch.
func NewIndex() esapi.Transport {
	return &index{busy: func(r *http.Request, _ []byte) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/_mapping") {
			return http.StatusNotFound, "{}" // Open comes before the first letter
		}
		return 0, ""
	}}
}
