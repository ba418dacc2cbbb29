package main

import (
	"regexp"
	"testing"
)

func TestEveryRowIsNamedOnceAndComplete(t *testing.T) {
	names, files := map[string]bool{}, map[string]bool{}
	for _, r := range allRows() {
		if names[r.name] || files[r.file()] {
			t.Errorf("row %q has the name of another, or its files", r.name)
		}
		names[r.name], files[r.file()] = true, true
		if r.rehop == nil || r.raw == nil || r.end == 0 || r.queue == "" {
			t.Errorf("row %q lacks a side, an end or a queue type", r.name)
		}
	}
}

func TestFilterIsARegularExpression(t *testing.T) {
	for filter, want := range map[string]int{
		"":                              37,
		"^classic: publish, 1 ":         1,
		"fail":                          5,
		"consume, concurrency (1|16)$":  4,
		"no row is named like this one": 0,
	} {
		if got := len(matching(allRows(), regexp.MustCompile(filter))); got != want {
			t.Errorf("-filter %q leaves %d rows, want %d", filter, got, want)
		}
	}
}

func TestFlagsAreCheckedTogether(t *testing.T) {
	_, err := parseFlags([]string{"-rounds", "0", "-duration", "-1s", "-filter", "("})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"-rounds is 0", "-duration is -1s", "-filter: "} {
		if !regexp.MustCompile(regexp.QuoteMeta(want)).MatchString(err.Error()) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}
