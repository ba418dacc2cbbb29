package catalog

import "strings"

// Of returns the series of a metric that match, such as of("rehop.place", "queue").
// A value with a sign before it (=~, !=, !~) keeps that sign.
func (m Metric) Of(matchers ...string) string { return selector(m.Prometheus(), matchers) }

// Buckets of a Histogram.
func (m Metric) BucketsOf(matchers ...string) string {
	return selector(m.Prometheus()+"_bucket", matchers)
}

// CountOf is how many values a Histogram has.
func (m Metric) CountOf(matchers ...string) string {
	return selector(m.Prometheus()+"_count", matchers)
}

func selector(name string, matchers []string) string {
	if len(matchers) == 0 {
		return name
	}
	var b strings.Builder
	b.WriteString(name + "{")
	for i := 0; i < len(matchers); i += 2 {
		if i > 0 {
			b.WriteString(", ")
		}
		value, sign := matchers[i+1], "="
		for _, s := range []string{"=~", "!=", "!~"} {
			if strings.HasPrefix(value, s) {
				sign, value = s, value[len(s):]
			}
		}
		b.WriteString(Label(matchers[i]) + sign + `"` + value + `"`)
	}
	return b.String() + "}"
}

// By is the clause that keeps labels.
func By(labels ...string) string {
	names := make([]string, len(labels))
	for i, l := range labels {
		names[i] = Label(l)
	}
	return "by (" + strings.Join(names, ", ") + ")"
}
