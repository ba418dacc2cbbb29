package otel_test

import (
	"os/exec"
	"testing"
)

// The rules and their tests are generated; promtool is of Debian's package prometheus.
func TestPromtoolFindsTheRulesRightAndTheirTestsPass(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "rehop.yml"}, {"test", "rules", "rehop_test.yml"}} {
		promtool := exec.Command("promtool", args...)
		promtool.Dir = "../../otel/alerts"
		if out, err := promtool.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
