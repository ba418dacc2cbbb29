package otel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// promtool is of Debian's package prometheus.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func TestPromtoolFindsTheRulesRightAndTheirTestsPass(t *testing.T) {
	promtool(t, "../../otel/alerts", "check", "rules", "rehop.yml")
	promtool(t, "../../otel/alerts", "test", "rules", "rehop_test.yml")
}

// The queries become rules, which promtool can read.
func TestPromtoolFindsTheQueriesOfTheDashboardRight(t *testing.T) {
	raw, err := os.ReadFile("../../otel/dashboards/rehop.json")
	check(t, err)
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	check(t, json.Unmarshal(raw, &board))
	rules, n := "groups:\n  - name: dashboard\n    rules:\n", 0
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			if q.Expr != "" {
				n++
				rules += fmt.Sprintf("      - {record: query_%d, expr: %q}\n", n, strings.ReplaceAll(q.Expr, "$__rate_interval", "1m"))
			}
		}
	}
	if n == 0 {
		t.Fatal("the dashboard has no queries")
	}
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "dashboard.yml"), []byte(rules), 0o600))
	promtool(t, dir, "check", "rules", "dashboard.yml")
}
