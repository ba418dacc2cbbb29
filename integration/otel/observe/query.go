package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// query is one of the dashboard, or a metric that an alert looks at: most alerts have
// data only while they fire.
type query struct{ from, expr string }

// readQueries reads the files of the module otel.
func readQueries(otel string) (queries []query, err error) {
	raw, err := os.ReadFile(filepath.Join(otel, "dashboards/rehop.json"))
	if err != nil {
		return nil, err
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		return nil, err
	}
	for _, p := range board.Panels {
		for _, t := range p.Targets {
			if t.Expr != "" {
				queries = append(queries, query{"dashboard, " + p.Title, t.Expr})
			}
		}
	}
	if raw, err = os.ReadFile(filepath.Join(otel, "alerts/rehop.yml")); err != nil {
		return nil, err
	}
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(raw, &alerts); err != nil {
		return nil, err
	}
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			for _, series := range selector.FindAllString(clause.ReplaceAllString(r.Expr, ""), -1) {
				q := query{"alert " + r.Alert, series}
				if !slices.Contains(queries, q) {
					queries = append(queries, q)
				}
			}
		}
	}
	if len(queries) < 40 {
		return nil, fmt.Errorf("only %d queries in %s", len(queries), otel)
	}
	return queries, nil
}

// clause has labels and no metric.
var clause = regexp.MustCompile(`\b(?:by|on) \([^)]*\)`)

// selector is a metric with its matchers.
var selector = regexp.MustCompile(`\b(?:rehop|messaging)_\w+(?:\{[^}]*\})?`)

// variables of the dashboard, as Grafana would fill them in.
var variables = strings.NewReplacer("$__rate_interval", "10s", "$queue", ".*")

// series is a line: its labels, and values by time.
type series struct {
	Metric map[string]string
	Values []point
	Value  point
}

type point struct {
	at    time.Time
	value float64
}

// UnmarshalJSON reads Prometheus's [seconds, "value"].
func (p *point) UnmarshalJSON(raw []byte) error {
	var pair [2]any
	if err := json.Unmarshal(raw, &pair); err != nil {
		return err
	}
	seconds, ok := pair[0].(float64)
	text, ok2 := pair[1].(string)
	if !ok || !ok2 {
		return fmt.Errorf("%s is no point", raw)
	}
	value, err := strconv.ParseFloat(text, 64)
	p.at, p.value = time.UnixMilli(int64(seconds*1000)), value
	return err
}

func (p *prometheus) query(ctx context.Context, expr string, at time.Time) ([]series, error) {
	return p.ask(ctx, "query", url.Values{"query": {variables.Replace(expr)}, "time": {seconds(at)}})
}

func (p *prometheus) queryRange(ctx context.Context, expr string, from, to time.Time) ([]series, error) {
	return p.ask(ctx, "query_range", url.Values{"query": {variables.Replace(expr)}, "start": {seconds(from)}, "end": {seconds(to)}, "step": {"1"}})
}

func seconds(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

func (p *prometheus) ask(ctx context.Context, path string, values url.Values) ([]series, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/api/v1/"+path+"?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []series }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("prometheus: %s", answer.Error)
	}
	return answer.Data.Result, nil
}

// printAlerts says which alerts there were.
func (p *prometheus) printAlerts(ctx context.Context, from, to time.Time) error {
	all, err := p.queryRange(ctx, "sum by (alertname, alertstate) (ALERTS)", from, to)
	if err != nil {
		return err
	}
	for _, s := range all {
		fmt.Printf("%s was %s for %d s\n", s.Metric["alertname"], s.Metric["alertstate"], len(s.Values))
	}
	return nil
}
