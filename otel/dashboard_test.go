package otel_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/rehop/rehop/otel/internal/catalog"
)

// The fields of Grafana that the dashboard has.
type (
	dashboard struct {
		UID, Title, Timezone, Refresh string
		Tags                          []string
		SchemaVersion                 int `yaml:"schemaVersion"`
		Version                       int
		Editable                      bool
		GraphTooltip                  int `yaml:"graphTooltip"`
		Time                          struct{ From, To string }
		Annotations                   struct{ List []struct{} }
		Templating                    struct{ List []variable }
		Panels                        []panel
	}
	variable struct {
		Name, Label, Type, Definition string
		Query                         any
		Datasource                    source
		Hide, Refresh, Sort           int
		Multi                         bool
		IncludeAll                    bool   `yaml:"includeAll"`
		AllValue                      string `yaml:"allValue"`
		Current                       struct{ Text, Value string }
	}
	source struct{ Type, UID string }
	panel  struct {
		ID                       int
		Type, Title, Description string
		Collapsed                bool
		Panels                   []struct{}               // of a row that is collapsed
		GridPos                  struct{ X, Y, W, H int } `yaml:"gridPos"`
		Datasource               source
		Targets                  []target
		FieldConfig              struct {
			Defaults struct {
				Unit   string
				Min    int
				Custom struct {
					DrawStyle   string `yaml:"drawStyle"`
					LineWidth   int    `yaml:"lineWidth"`
					FillOpacity int    `yaml:"fillOpacity"`
					ShowPoints  string `yaml:"showPoints"`
					Stacking    struct{ Mode, Group string }
				}
			}
			Overrides []struct{}
		} `yaml:"fieldConfig"`
		Options struct {
			Mode, Content string
			ShowValue     string `yaml:"showValue"`
			MergeValues   bool   `yaml:"mergeValues"`
			Tooltip       struct{ Mode, Sort string }
			Legend        struct {
				DisplayMode string `yaml:"displayMode"`
				Placement   string
				ShowLegend  bool `yaml:"showLegend"`
			}
		}
	}
	target struct {
		RefID        string `yaml:"refId"`
		Datasource   source
		Expr         string
		LegendFormat string `yaml:"legendFormat"`
		Range        bool
		Query        string
		QueryType    string `yaml:"queryType"`
		Limit        int
	}
)

var (
	fromPrometheus = source{"prometheus", "${datasource}"}
	fromTempo      = source{"tempo", "${traces}"}
)

func TestTheDashboardShowsEachMetricAndNoOther(t *testing.T) {
	board := decode[dashboard](t, "dashboards/rehop.json")
	shown := map[string]bool{}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			if p.Datasource != q.Datasource || q.RefID == "" {
				t.Errorf("%s: query %q of %v, in a panel of %v", p.Title, q.RefID, q.Datasource, p.Datasource)
			}
			if q.Datasource == fromTempo {
				continue
			}
			series, labels := look(t, p.Title, q.Expr)
			for _, s := range series {
				shown[s] = true
			}
			for _, l := range legend.FindAllStringSubmatch(q.LegendFormat, -1) {
				if !slices.Contains(labels, l[1]) {
					t.Errorf("%s: the legend has %s, and the query groups by %v", p.Title, l[1], labels)
				}
			}
			if q.LegendFormat == "" || !q.Range || q.Datasource != fromPrometheus {
				t.Errorf("%s: %+v", p.Title, q)
			}
		}
	}
	for _, m := range catalog.All() {
		name := m.Prometheus()
		if !shown[name] && !shown[name+"_bucket"] && !shown[name+"_count"] {
			t.Errorf("no panel shows %s", m.Name)
		}
	}
}

var legend = regexp.MustCompile(`\{\{(\w+)\}\}`)

func TestTheDashboardsVariablesAreThoseThatItUses(t *testing.T) {
	raw, err := os.ReadFile("dashboards/rehop.json")
	check(t, err)
	if !json.Valid(raw) {
		t.Error("the dashboard is no JSON")
	}
	used, defined := map[string]bool{}, map[string]bool{}
	for _, v := range regexp.MustCompile(`\$\{?([a-z]\w*)`).FindAllStringSubmatch(string(raw), -1) {
		used[v[1]] = true
	}
	for _, v := range decode[dashboard](t, "dashboards/rehop.json").Templating.List {
		defined[v.Name] = true
		if !used[v.Name] {
			t.Errorf("nothing uses the variable %s", v.Name)
		}
		if v.Type == "query" {
			look(t, v.Name, v.Definition)
			if v.Query.(map[string]any)["query"] != v.Definition {
				t.Errorf("the variable %s has two queries: %v and %s", v.Name, v.Query, v.Definition)
			}
		}
	}
	for name := range used {
		if !defined[name] {
			t.Errorf("there is no variable %s", name)
		}
	}
}

func TestTheDashboardsPanelsAreWholeAndDoNotOverlap(t *testing.T) {
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range decode[dashboard](t, "dashboards/rehop.json").Panels {
		at := p.GridPos
		if ids[p.ID] || p.Title == "" || at.X < 0 || at.W < 1 || at.H < 1 || at.X+at.W > 24 {
			t.Errorf("panel %q: id %d, %+v", p.Title, p.ID, at)
		}
		ids[p.ID] = true
		for x := range at.W {
			for y := range at.H {
				cell := [2]int{at.X + x, at.Y + y}
				if taken[cell] != "" {
					t.Fatalf("%q is on %q", p.Title, taken[cell])
				}
				taken[cell] = p.Title
			}
		}
		units, queries := []string{"short", "s", "cps"}, true
		switch p.Type {
		case "row", "text":
			units, queries = []string{""}, false
		case "table":
			units = []string{""}
		case "timeseries", "state-timeline":
		default:
			t.Errorf("panel %q is a %s", p.Title, p.Type)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			refs[q.RefID] = true
		}
		if !slices.Contains(units, p.FieldConfig.Defaults.Unit) || len(p.Targets) > 0 != queries || len(refs) != len(p.Targets) {
			t.Errorf("panel %q is a %s of %q with %d queries", p.Title, p.Type, p.FieldConfig.Defaults.Unit, len(p.Targets))
		}
	}
}
