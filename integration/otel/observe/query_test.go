package main

import (
	"strings"
	"testing"
)

// Each query is an expression of the dashboard or a metric of an alert with a name, and no word of a comment.
func TestQueriesAreThoseOfTheFiles(t *testing.T) {
	queries, err := readQueries("../../../otel")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queries {
		if q.from == "alert " || strings.Contains(q.expr, "_test") {
			t.Errorf("%q has the query %q", q.from, q.expr)
		}
	}
}
