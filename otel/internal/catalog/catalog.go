// Package catalog lists the metrics of rehop. The instruments and the table in the docs
// are made from this list. The tests of package otel compare the dashboard and the alerts
// with it.
package catalog

import "strings"

// Kind of an instrument.
type Kind uint8

// The kinds.
const (
	Counter   Kind = iota + 1 // only grows
	Gauge                     // a value of now
	Histogram                 // a distribution
)

func (k Kind) String() string { return [...]string{"invalid", "counter", "gauge", "histogram"}[k] }

// Labels of the semantic conventions for messaging, and ours.
const (
	System      = "messaging.system"           // always rabbitmq
	Operation   = "messaging.operation.name"   // publish or process
	Destination = "messaging.destination.name" // the exchange of a producer, the queue of everything else
	ErrorType   = "error.type"

	Place       = "rehop.place"           // producer.Place of a publish
	Outcome     = "rehop.outcome"         // consumer.Action of a run of the handler
	Disposition = "rehop.disposition"     // consumer.Disposition of a message
	Cause       = "rehop.cause"           // rehop.Cause of a dead letter
	Connection  = "rehop.connection.name" // the name given to Telemetry.Connection
	Role        = "rehop.connection.role" // publish or consume
	Status      = "rehop.status"          // connection.Status, or healthy, degraded, unhealthy
	Component   = "rehop.component"       // the name given to Telemetry.Health
	Store       = "rehop.store"           // Store.Name
	State       = "rehop.state"           // store.State
	Part        = "rehop.queue.part"      // work, wait, dead-letter or other
)

// Metric is one instrument.
type Metric struct {
	Name    string
	Unit    string // UCUM, such as s or {message}
	Kind    Kind
	Help    string
	Labels  []string  // besides System
	Buckets []float64 // upper bounds, of a Histogram
}

var (
	short  = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60}
	longer = []float64{0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800}
)

// What a producer does.
var (
	Sent = Metric{
		Name: "messaging.client.sent.messages", Unit: "{message}", Kind: Counter,
		Help:   "Messages that have a receipt.",
		Labels: []string{Operation, Destination, Place, ErrorType},
	}
	PublishDuration = Metric{
		Name: "messaging.client.operation.duration", Unit: "s", Kind: Histogram,
		Help:   "Time from the call of Publish to the receipt.",
		Labels: []string{Operation, Destination, Place, ErrorType}, Buckets: short,
	}
	Unconfirmed = Metric{
		Name: "rehop.producer.unconfirmed", Unit: "{message}", Kind: Gauge,
		Help: "Messages that have no receipt yet.",
	}
	Retried = Metric{
		Name: "rehop.producer.retries", Unit: "{message}", Kind: Counter,
		Help:   "Tries to publish that were cut off and repeated.",
		Labels: []string{Destination, ErrorType},
	}
)

// What a consumer does.
var (
	Consumed = Metric{
		Name: "messaging.client.consumed.messages", Unit: "{message}", Kind: Counter,
		Help:   "Deliveries that a worker, a goroutine that runs the handler, took.",
		Labels: []string{Operation, Destination},
	}
	Settled = Metric{
		Name: "rehop.consumer.settled", Unit: "{message}", Kind: Counter,
		Help:   "Deliveries that the consumer has finished, by the place of the message afterwards.",
		Labels: []string{Destination, Disposition, Cause, ErrorType},
	}
	InHand = Metric{
		Name: "rehop.consumer.in_hand", Unit: "{message}", Kind: Gauge,
		Help:   "Deliveries that a worker took and that are not settled: at every moment, messaging.client.consumed.messages less rehop.consumer.settled.",
		Labels: []string{Destination},
	}
	Prefetch = Metric{
		Name: "rehop.consumer.prefetch", Unit: "{message}", Kind: Gauge,
		Help:   "Unsettled messages that consumers ask the broker for.",
		Labels: []string{Destination},
	}
	ProcessDuration = Metric{
		Name: "messaging.process.duration", Unit: "s", Kind: Histogram,
		Help:   "Time that the handler took, for each run with each message. A message of a batch has the time of the whole batch.",
		Labels: []string{Operation, Destination, Outcome, ErrorType}, Buckets: short,
	}
	Attempts = Metric{
		Name: "rehop.consumer.attempts", Unit: "{attempt}", Kind: Histogram,
		Help:   "Number of the attempt in which a message was done.",
		Labels: []string{Destination}, Buckets: []float64{1, 2, 3, 4, 5, 6, 8, 11, 16},
	}
	Age = Metric{
		Name: "rehop.consumer.message.age", Unit: "s", Kind: Histogram,
		Help:   "Age of a message when a worker took it for its first attempt, by its timestamp in whole seconds.",
		Labels: []string{Destination}, Buckets: longer,
	}
	Lateness = Metric{
		Name: "rehop.consumer.lateness", Unit: "s", Kind: Histogram,
		Help:   "How long after its due time a message came back from its wait. Only copies and carried messages have a due time.",
		Labels: []string{Destination}, Buckets: append([]float64{0.001, 0.01, 0.05}, longer[:12]...),
	}
	Held = Metric{
		Name: "rehop.consumer.held", Unit: "{message}", Kind: Gauge,
		Help:   "Messages whose handler said Hold or HoldFor, by the type of its error.",
		Labels: []string{Destination, ErrorType},
	}
	CopiesUnconfirmed = Metric{
		Name: "rehop.consumer.copies.unconfirmed", Unit: "{message}", Kind: Gauge,
		Help:   "Copies to waits and dead-letter queues that the broker has not confirmed.",
		Labels: []string{Destination},
	}
)

// What a connection does.
var (
	ConnectionStatus = Metric{
		Name: "rehop.connection.status", Unit: "{status}", Kind: Gauge,
		Help:   "1 for the present status of a socket, 0 for the others. If the broker cannot hand over a message, its queue has a socket of its own for a while, which is not counted.",
		Labels: []string{Connection, Role, Status},
	}
	Connects = Metric{
		Name: "rehop.connection.connects", Unit: "{connection}", Kind: Counter,
		Help:   "Times a socket came up.",
		Labels: []string{Connection, Role},
	}
	Sessions = Metric{
		Name: "rehop.connection.sessions", Unit: "{session}", Kind: Gauge,
		Help:   "Open channels.",
		Labels: []string{Connection, Role},
	}
	DialDuration = Metric{
		Name: "rehop.connection.dial.duration", Unit: "s", Kind: Histogram,
		Help:   "Time that one try at one URL took.",
		Labels: []string{Connection, Role, ErrorType}, Buckets: short,
	}
)

// What the Forwarder does, and what somebody asks for: queues, stores, health.
var (
	Forwarded = Metric{
		Name: "rehop.store.forwarded", Unit: "{message}", Kind: Counter,
		Help:   "Messages that the Forwarder published, or could not publish: then error.type says why.",
		Labels: []string{Destination, ErrorType},
	}
	Letters = Metric{
		Name: "rehop.store.letters", Unit: "{message}", Kind: Gauge,
		Help:   "Messages in a store.",
		Labels: []string{Store, State},
	}
	OldestLetter = Metric{
		Name: "rehop.store.oldest", Unit: "s", Kind: Gauge,
		Help:   "Time since the oldest message in this state was stored.",
		Labels: []string{Store, State},
	}
	QueueMessages = Metric{
		Name: "rehop.queue.messages", Unit: "{message}", Kind: Gauge,
		Help:   "Messages that are ready in a queue, from the broker.",
		Labels: []string{Destination, Part},
	}
	QueueConsumers = Metric{
		Name: "rehop.queue.consumers", Unit: "{consumer}", Kind: Gauge,
		Help:   "Consumers of a queue, from the broker.",
		Labels: []string{Destination, Part},
	}
	Health = Metric{
		Name: "rehop.health", Unit: "{status}", Kind: Gauge,
		Help:   "1 for the present health of a component, 0 for the others.",
		Labels: []string{Component, Status},
	}
)

// All returns the list, in the order of the docs.
func All() []Metric {
	return []Metric{
		Sent, PublishDuration, Unconfirmed, Retried,
		Consumed, Settled, InHand, Prefetch, ProcessDuration, Attempts, Age, Lateness, Held, CopiesUnconfirmed,
		ConnectionStatus, Connects, Sessions, DialDuration,
		Forwarded, Letters, OldestLetter,
		QueueMessages, QueueConsumers, Health,
	}
}

// Prometheus returns the name under which OpenTelemetry's Prometheus exporter
// shows the metric. Of a Histogram it is the family: its series have _bucket, _sum
// and _count behind it.
func (m Metric) Prometheus() string {
	name := Label(m.Name)
	if m.Unit == "s" {
		name += "_seconds"
	}
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// Label returns the name that a label has in Prometheus.
func Label(name string) string { return strings.ReplaceAll(name, ".", "_") }
