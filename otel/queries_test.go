package otel_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/rehop/rehop/otel/internal/catalog"
)

// decode reads a file of YAML, or of JSON, which is YAML too. A field that the value has no
// place for is an error, and so is a second field of the same name.
func decode[T any](t *testing.T, path string) (value T) {
	t.Helper()
	file, err := os.Open(path)
	check(t, err)
	defer file.Close()
	strict := yaml.NewDecoder(file)
	strict.KnownFields(true)
	if err := strict.Decode(&value); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return value
}

// exported returns the labels of each series by its name in Prometheus.
func exported() map[string][]string {
	all := map[string][]string{}
	for _, m := range catalog.All() {
		labels := []string{catalog.Label(catalog.System)}
		for _, l := range m.Labels {
			labels = append(labels, catalog.Label(l))
		}
		name := m.Prometheus()
		if m.Kind != catalog.Histogram {
			all[name] = labels
			continue
		}
		all[name+"_sum"], all[name+"_count"], all[name+"_bucket"] = labels, labels, slices.Concat(labels, []string{"le"})
	}
	return all
}

var (
	selector = regexp.MustCompile(`(\w+)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`^(\w+)(?:=|!=|=~|!~)"[^"]*"$`)
	values   = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	clause   = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	window   = regexp.MustCompile(`\[(?:\d+m|\$__rate_interval)\]`)
	word     = regexp.MustCompile(`\b[A-Za-z_]\w*`)
	promQL   = []string{"sum", "max", "rate", "increase", "histogram_quantile", "or", "unless", "offset"} // as far as there is need
)

// look returns the series that a query asks for, and the labels of its clauses. Each word
// of the query is a series that is exported, a label of it, or a word of PromQL.
func look(t *testing.T, where, query string) (series, labels []string) {
	t.Helper()
	known := exported()
	for _, s := range append(selector.FindAllStringSubmatch(query, -1), values.FindAllStringSubmatch(query, -1)...) {
		for _, m := range strings.Split(s[2], ", ") {
			if label := matcher.ReplaceAllString(m, "$1"); !slices.Contains(known[s[1]], label) {
				t.Errorf("%s: %s has no label %s", where, s[1], m)
			}
		}
	}
	for _, c := range clause.FindAllStringSubmatch(query, -1) {
		labels = append(labels, word.FindAllString(c[1], -1)...)
	}
	rest := values.ReplaceAllString(selector.ReplaceAllString(query, "$1"), "$1")
	for _, w := range word.FindAllString(window.ReplaceAllString(clause.ReplaceAllString(rest, ""), ""), -1) {
		if known[w] != nil {
			series = append(series, w)
		} else if !slices.Contains(promQL, w) {
			t.Errorf("%s: %s is no metric", where, w)
		}
	}
	for _, l := range labels {
		if !slices.ContainsFunc(series, func(s string) bool { return slices.Contains(known[s], l) }) {
			t.Errorf("%s: none of %v has a label %s", where, series, l)
		}
	}
	if len(series) == 0 {
		t.Errorf("%s: %q asks for nothing", where, query)
	}
	return series, labels
}
