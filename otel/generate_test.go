package otel_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehop/rehop/otel/internal/alert"
	"github.com/rehop/rehop/otel/internal/catalog"
	"github.com/rehop/rehop/otel/internal/dashboard"
	"github.com/rehop/rehop/otel/internal/generate"
)

// The page of the docs is no part of the module: make lint compares it.
func TestTheGeneratedFilesAreTheOnesOfTheCatalog(t *testing.T) {
	files, err := generate.Files()
	check(t, err)
	for path, want := range files {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not the one that go generate writes (%v)", path, err)
		}
	}
}

// names are those of the catalog and of nothing else.
func TestQueriesUseOnlyMetricsAndLabelsThatThereAre(t *testing.T) {
	known := map[string]bool{}
	for _, m := range catalog.All() {
		known[m.Prometheus()] = true
		for _, l := range m.Labels {
			known[catalog.Label(l)] = true
		}
	}
	word := regexp.MustCompile(`\b(rehop|messaging|error)_[a-z_]+`)
	look := func(where, expr string) {
		for _, name := range word.FindAllString(expr, -1) {
			if !known[name] && !known[strings.TrimSuffix(name, "_bucket")] && !known[strings.TrimSuffix(name, "_count")] {
				t.Errorf("%s: %s is not in the catalog", where, name)
			}
		}
	}
	used := ""
	for _, row := range dashboard.Rows() {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				look(p.Title, q.Expr)
				look(p.Title, q.Legend)
				used += q.Expr
			}
		}
	}
	for _, r := range alert.Rules() {
		look(r.Name, r.Expr)
	}
	for _, m := range catalog.All() {
		if !strings.Contains(used, m.Prometheus()) {
			t.Errorf("no panel shows %s", m.Name)
		}
	}
}

func TestEachAlertHasATestThatFiresAndOneThatIsSilent(t *testing.T) {
	for _, r := range alert.Rules() {
		silent := func(t alert.Test) bool { return t.Fires == nil }
		fires := func(t alert.Test) bool { return t.Fires != nil }
		if !slices.ContainsFunc(r.Tests, silent) || !slices.ContainsFunc(r.Tests, fires) {
			t.Errorf("%s has not both", r.Name)
		}
	}
}

func TestTheDashboardsPanelsDoNotOverlap(t *testing.T) {
	raw, err := os.ReadFile("dashboards/rehop.json")
	check(t, err)
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
		}
	}
	check(t, json.Unmarshal(raw, &board))
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q: id %d, %+v", p.Title, p.ID, p.GridPos)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" {
					t.Fatalf("%q is on %q", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
	}
}
