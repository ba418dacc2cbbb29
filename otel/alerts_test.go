package otel_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The fields of Prometheus and of promtool that the files have.
type (
	rules struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	rule struct {
		Alert, Expr, For string
		Labels           struct{ Severity string }
		Annotations      notes
	}
	notes struct{ Summary, Description string }

	ruleTests struct {
		RuleFiles []string `yaml:"rule_files"`
		Interval  string   `yaml:"evaluation_interval"`
		Tests     []struct {
			Name, Interval string
			Series         []struct{ Series, Values string } `yaml:"input_series"`
			Alerts         []struct {
				At    string `yaml:"eval_time"`
				Name  string `yaml:"alertname"`
				Fires []struct {
					Labels map[string]string `yaml:"exp_labels"`
					Notes  notes             `yaml:"exp_annotations"`
				} `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
)

// alerts returns the rules by their names.
func alerts(t *testing.T) map[string]rule {
	t.Helper()
	all := map[string]rule{}
	for _, g := range decode[rules](t, "alerts/rehop.yml").Groups {
		for _, r := range g.Rules {
			if _, twice := all[r.Alert]; twice {
				t.Errorf("%s is there twice", r.Alert)
			}
			all[r.Alert] = r
		}
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	return all
}

func TestEachAlertAsksForMetricsThatThereAreAndSaysWhy(t *testing.T) {
	raw, err := os.ReadFile("alerts/rehop.yml")
	check(t, err)
	for name, r := range alerts(t) {
		look(t, name, r.Expr)
		if r.For == "" || r.Annotations.Summary == "" || r.Annotations.Description == "" || !slices.Contains([]string{"page", "ticket"}, r.Labels.Severity) {
			t.Errorf("%s has no time, severity, summary or reason: %+v", name, r)
		}
		// The tests of the pages and make observe look for names in this form.
		if !strings.Contains(string(raw), "      - alert: "+name+"\n") {
			t.Errorf("%s does not begin its rule", name)
		}
	}
}

// instance is the label that Prometheus gives to the series of a process.
var instance = regexp.MustCompile(`, instance="\w+"`)

// promtool runs these tests, in integration/otel. It would find an alert silent that no rule
// has, and one whose rule asks for other series than the test has.
func TestEachAlertHasATestThatFiresAndOneThatIsSilent(t *testing.T) {
	rules, tests := alerts(t), decode[ruleTests](t, "alerts/rehop_test.yml")
	if !slices.Equal(tests.RuleFiles, []string{"rehop.yml"}) {
		t.Errorf("the tests are of %v", tests.RuleFiles)
	}
	found := map[string]bool{}
	for _, test := range tests.Tests {
		if len(test.Alerts) != 1 || len(test.Series) == 0 {
			t.Errorf("%s looks at %d alerts with %d series", test.Name, len(test.Alerts), len(test.Series))
			continue
		}
		alert := test.Alerts[0]
		rule, ok := rules[alert.Name]
		if !ok {
			t.Errorf("%s: there is no alert %q", test.Name, alert.Name)
			continue
		}
		outcome := " is silent "
		if len(alert.Fires) > 0 {
			outcome = " fires "
		}
		if !strings.HasPrefix(test.Name, rule.Alert+outcome) {
			t.Errorf("%q tests that %s%s", test.Name, rule.Alert, outcome)
		}
		found[rule.Alert+outcome] = true
		asks, _ := look(t, rule.Alert, rule.Expr)
		for _, s := range test.Series {
			series, _ := look(t, test.Name, instance.ReplaceAllString(s.Series, ""))
			for _, name := range series {
				if !slices.Contains(asks, name) {
					t.Errorf("%s: the rule does not ask for %s", test.Name, name)
				}
			}
		}
		for _, f := range alert.Fires {
			if f.Labels["severity"] != rule.Labels.Severity || f.Notes != rule.Annotations {
				t.Errorf("%s: want severity and annotations of the rule, %+v", test.Name, rule)
			}
		}
	}
	for name := range rules {
		if !found[name+" fires "] || !found[name+" is silent "] {
			t.Errorf("%s has not both", name)
		}
	}
}
