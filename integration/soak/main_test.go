package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBadFlagsAreToldAtOnce(t *testing.T) {
	_, err := parseFlags([]string{"-duration", "0s", "-rate", "0", "-fault-every", "-1s", "-version", "3.9", "more"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"-duration is 0s", "-rate is 0", "-fault-every is -1s", `-version is "3.9"`, `"more"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}
