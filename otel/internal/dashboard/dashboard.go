// Package dashboard makes the dashboard for Grafana, with the fields that Grafana's
// public schema documents.
package dashboard

import (
	"encoding/json"

	. "github.com/rehop/rehop/otel/internal/catalog" //nolint:staticcheck // the queries are read beside the catalog
)

// Query is one line, or one set of lines, of a panel.
type Query struct {
	Expr   string
	Legend string
}

// Panel answers one question.
type Panel struct {
	Title   string
	Help    string
	Unit    string // Grafana's: short, s, cps
	Stacked bool
	States  bool // a state timeline, of series that are 1
	Width   int  // of 24
	Queries []Query
}

// Row is one of the three questions.
type Row struct {
	Title  string
	Panels []Panel
}

const (
	every    = "[$__rate_interval]"
	oneQueue = "=~$queue"
)

func rate(series string) string { return "rate(" + series + every + ")" }

func quantile(q string, m Metric, labels ...string) string {
	return "histogram_quantile(" + q + ", sum " + By(append([]string{"le"}, labels...)...) + " (" + rate(m.BucketsOf(Destination, oneQueue)) + "))"
}

func legend(labels ...string) string {
	s := ""
	for i, l := range labels {
		if i > 0 {
			s += " "
		}
		s += "{{" + Label(l) + "}}"
	}
	return s
}

// Rows returns the panels.
func Rows() []Row {
	return []Row{
		{"How far behind are we?", []Panel{
			{Title: "Messages waiting to be handled", Unit: "short", Width: 8,
				Help:    "Ready in the work queues, from the broker. It grows when handlers are slower than producers, or when none runs.",
				Queries: []Query{{"max " + By(Destination) + " (" + QueueMessages.Of(Part, "work", Destination, oneQueue) + ")", legend(Destination)}}},
			{Title: "Published, delivered and done, per second", Unit: "cps", Width: 8,
				Help: "Where less is done than published for long, the queue grows. A message that fails is delivered for each attempt.",
				Queries: []Query{
					{"sum (" + rate(Sent.Of(Place, "queue")) + ")", "published"},
					{"sum " + By(Destination) + " (" + rate(Consumed.Of(Destination, oneQueue)) + ")", "delivered " + legend(Destination)},
					{"sum " + By(Destination) + " (" + rate(Settled.Of(Disposition, "done", Destination, oneQueue)) + ")", "done " + legend(Destination)},
				}},
			{Title: "Age of messages at their first attempt", Unit: "s", Width: 8,
				Help: "From the message's timestamp, in whole seconds. No queue tells the age of its oldest message, so this is the one of the messages that are handled.",
				Queries: []Query{
					{quantile("0.5", Age, Destination), "half " + legend(Destination)},
					{quantile("0.95", Age, Destination), "95 % " + legend(Destination)},
				}},
			{Title: "Messages that wait for their next attempt", Unit: "short", Width: 8, Stacked: true,
				Help:    "Ready in the wait queues. They come back by themselves.",
				Queries: []Query{{"max " + By(Destination) + " (" + QueueMessages.Of(Part, "wait") + ")", legend(Destination)}}},
			{Title: "Dead letters that wait for a person", Unit: "short", Width: 8, Stacked: true,
				Help: "Ready in the dead-letter queues, and held or parked in stores.",
				Queries: []Query{
					{"max " + By(Destination) + " (" + QueueMessages.Of(Part, "dead-letter") + ")", legend(Destination)},
					{"max " + By(Store, State) + " (" + Letters.Of(State, "=~held|parked") + ")", legend(Store, State)},
				}},
			{Title: "Messages that the Forwarder has to publish", Unit: "short", Width: 4,
				Queries: []Query{{"max " + By(Store, State) + " (" + Letters.Of(State, "=~ready|scheduled") + ")", legend(Store, State)}}},
			{Title: "Age of the oldest message in a store", Unit: "s", Width: 4,
				Queries: []Query{{"max " + By(Store, State) + " (" + OldestLetter.Of(State, "!=archived") + ")", legend(Store, State)}}},
			{Title: "In hand, of the prefetch", Unit: "short", Width: 8,
				Help: "Deliveries that workers have taken and that are not settled. At its Concurrency a consumer is busy.",
				Queries: []Query{
					{"sum " + By(Destination) + " (" + InHand.Of(Destination, oneQueue) + ")", "in hand " + legend(Destination)},
					{"sum " + By(Destination) + " (" + Prefetch.Of(Destination, oneQueue) + ")", "prefetch " + legend(Destination)},
				}},
			{Title: "Time of a handler", Unit: "s", Width: 8,
				Queries: []Query{
					{quantile("0.5", ProcessDuration, Destination), "half " + legend(Destination)},
					{quantile("0.99", ProcessDuration, Destination), "99 % " + legend(Destination)},
				}},
			{Title: "Time from publish to confirm", Unit: "s", Width: 8,
				Queries: []Query{
					{"histogram_quantile(0.5, sum " + By("le", Destination) + " (" + rate(PublishDuration.BucketsOf()) + "))", "half " + legend(Destination)},
					{"histogram_quantile(0.99, sum " + By("le", Destination) + " (" + rate(PublishDuration.BucketsOf()) + "))", "99 % " + legend(Destination)},
				}},
			{Title: "How late waits end", Unit: "s", Width: 8,
				Help:    "Where a due time is known: of copies, by the consumer's or the carrier's clock. A nack leaves no due time.",
				Queries: []Query{{"histogram_quantile(0.95, sum " + By("le", Destination) + " (" + rate(Lateness.BucketsOf()) + "))", "95 % " + legend(Destination)}}},
			{Title: "Attempt in which messages are done", Unit: "short", Width: 8,
				Queries: []Query{{quantile("0.95", Attempts, Destination), "95 % " + legend(Destination)}}},
			{Title: "Consumers of each queue", Unit: "short", Width: 8,
				Queries: []Query{{"max " + By(Destination) + " (" + QueueConsumers.Of(Part, "work", Destination, oneQueue) + ")", legend(Destination)}}},
		}},
		{"What fails, and why?", []Panel{
			{Title: "Where messages go, per second", Unit: "cps", Width: 8, Stacked: true,
				Queries: []Query{{"sum " + By(Disposition) + " (" + rate(Settled.Of(Destination, oneQueue)) + ")", legend(Disposition)}}},
			{Title: "Dead letters by cause and type of error", Unit: "short", Width: 8, Stacked: true,
				Help:    "Within the interval. Letters that the broker makes are only seen in the depth of the dead-letter queue.",
				Queries: []Query{{"sum " + By(Destination, Cause, ErrorType) + " (increase(" + Settled.Of(Disposition, "dead-letter", Destination, oneQueue) + every + "))", legend(Destination, Cause, ErrorType)}}},
			{Title: "Failed runs of handlers by type of error, per second", Unit: "cps", Width: 8, Stacked: true,
				Queries: []Query{{"sum " + By(Destination, Outcome, ErrorType) + " (" + rate(ProcessDuration.CountOf(Outcome, "!=done", Destination, oneQueue)) + ")", legend(Destination, Outcome, ErrorType)}}},
			{Title: "Published elsewhere, or not at all, per second", Unit: "cps", Width: 8, Stacked: true,
				Help:    "fallback: safe in a sink. unknown: not known to be safe, the caller has the error.",
				Queries: []Query{{"sum " + By(Destination, Place, ErrorType) + " (" + rate(Sent.Of(Place, "!=queue")) + ")", legend(Place, Destination, ErrorType)}}},
			{Title: "Tries repeated, per second", Unit: "cps", Width: 8,
				Queries: []Query{{"sum " + By(Destination, ErrorType) + " (" + rate(Retried.Of()) + ")", legend(Destination, ErrorType)}}},
			{Title: "Messages that the Forwarder has tried, per second", Unit: "cps", Width: 8,
				Queries: []Query{{"sum " + By(Destination, ErrorType) + " (" + rate(Forwarded.Of()) + ")", legend(Destination, ErrorType)}}},
			{Title: "Waiting for the broker or a service", Unit: "short", Width: 8,
				Help: "Messages without a receipt, copies without a confirm, and messages that handlers hold by Hold or HoldFor.",
				Queries: []Query{
					{"sum (" + Unconfirmed.Of() + ")", "published, not confirmed"},
					{"sum " + By(Destination) + " (" + CopiesUnconfirmed.Of() + ")", "copies of " + legend(Destination)},
					{"sum " + By(Destination, ErrorType) + " (" + Held.Of() + ")", "held " + legend(Destination, ErrorType)},
				}},
			{Title: "Connections", Unit: "short", Width: 8, States: true,
				Queries: []Query{{"max " + By(Connection, Role, Status) + " (" + ConnectionStatus.Of() + ") == 1", legend(Connection, Role, Status)}}},
			{Title: "Health", Unit: "short", Width: 8, States: true,
				Queries: []Query{{"max " + By(Component, Status) + " (" + Health.Of() + ") == 1", legend(Component, Status)}}},
			{Title: "Connects, and open sessions", Unit: "short", Width: 8,
				Queries: []Query{
					{"sum " + By(Connection, Role) + " (increase(" + Connects.Of() + every + "))", "connects " + legend(Connection, Role)},
					{"sum " + By(Connection, Role) + " (" + Sessions.Of() + ")", "sessions " + legend(Connection, Role)},
				}},
			{Title: "Failed dials, per second", Unit: "cps", Width: 8,
				Queries: []Query{{"sum " + By(Connection, ErrorType) + " (" + rate(DialDuration.CountOf(ErrorType, "!=")) + ")", legend(Connection, ErrorType)}}},
		}},
	}
}

type object = map[string]any

// JSON returns the dashboard as Grafana imports it.
func JSON() ([]byte, error) {
	prometheus := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	id, y := 0, 0
	add := func(p object, x, w, h int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, p)
	}
	const height = 8
	for _, row := range Rows() {
		add(object{"type": "row", "title": row.Title, "collapsed": false, "panels": []object{}}, 0, 24, 1)
		y++
		x := 0
		for _, p := range row.Panels {
			if x+p.Width > 24 {
				x, y = 0, y+height
			}
			add(panel(p, prometheus), x, p.Width, height)
			x += p.Width
		}
		y += height
	}
	add(object{"type": "row", "title": "Where is this message?", "collapsed": false, "panels": []object{}}, 0, 24, 1)
	y++
	add(object{
		"type": "text", "title": "One message is one trace",
		"options": object{"mode": "markdown", "content": message},
	}, 0, 8, 10)
	traces := object{"type": "tempo", "uid": "${traces}"}
	add(object{
		"type": "table", "title": "Traces of the message $message", "datasource": traces,
		"description": "Each attempt is a span with rehop.attempt; the story ends with rehop.disposition.",
		"targets":     []object{{"refId": "A", "datasource": traces, "queryType": "traceql", "query": `{ span.messaging.message.id = "$message" }`, "limit": 20}},
	}, 8, 16, 10)

	return json.MarshalIndent(object{
		"uid": "rehop", "title": "rehop", "tags": []string{"rehop", "rabbitmq"},
		"schemaVersion": 38, "version": 1, "editable": true, "timezone": "browser", "refresh": "30s", "graphTooltip": 1,
		"time":        object{"from": "now-1h", "to": "now"},
		"annotations": object{"list": []object{}},
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0},
			{"name": "traces", "label": "Tempo", "type": "datasource", "query": "tempo", "hide": 0},
			{"name": "queue", "label": "Queue", "type": "query", "datasource": prometheus, "refresh": 2, "sort": 1,
				"multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
				"query":      object{"query": "label_values(" + Consumed.Prometheus() + ", " + Label(Destination) + ")", "refId": "queue"},
				"definition": "label_values(" + Consumed.Prometheus() + ", " + Label(Destination) + ")"},
			{"name": "message", "label": "Message id", "type": "textbox", "query": "", "hide": 0},
		}},
		"panels": panels,
	}, "", "  ")
}

const message = "Enter a message id above. The table beside this lists its traces in Tempo; in another " +
	"store of traces search for the attribute `messaging.message.id`.\n\n" +
	"- `publish`: `rehop.place` says where the message was safe.\n" +
	"- `process`: one span for each attempt, with `rehop.attempt` and the error of the handler.\n" +
	"- `wait`, `dead-letter`, `queue`: how the attempt was settled, with `rehop.cause`.\n\n" +
	"Without a store of traces the operator's tools find the message by its id."

func panel(p Panel, datasource object) object {
	var targets []object
	for i, q := range p.Queries {
		targets = append(targets, object{"refId": string(rune('A' + i)), "datasource": datasource, "expr": q.Expr, "legendFormat": q.Legend, "range": true})
	}
	custom := object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
	if p.Stacked {
		custom["stacking"], custom["fillOpacity"] = object{"mode": "normal", "group": "A"}, 40
	}
	made := object{
		"type": "timeseries", "title": p.Title, "description": p.Help, "datasource": datasource, "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": p.Unit, "min": 0, "custom": custom}, "overrides": []object{}},
		"options": object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		},
	}
	if p.States {
		made["type"] = "state-timeline"
		made["fieldConfig"] = object{"defaults": object{"unit": p.Unit, "custom": object{"fillOpacity": 70, "lineWidth": 0}}, "overrides": []object{}}
		made["options"] = object{"showValue": "never", "mergeValues": true, "legend": object{"displayMode": "list", "placement": "bottom", "showLegend": false}}
	}
	return made
}
