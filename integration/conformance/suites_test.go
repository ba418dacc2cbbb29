package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/rehoptest"
)

// suite is one run of the rules: on real brokers, or on those in the process.
type suite struct {
	prefix string // of its columns
	table  *matrix.Matrix
	nodes  map[string]*node
}

var (
	table        = matrix.New("conformance", rules...)
	processTable = matrix.New("conformance of rehoptest", processRules()...)
	processNodes = map[string]*node{}

	suites = []suite{{"", table, nodes}, {"rehoptest ", processTable, processNodes}}
)

// onlyReal are the rules that need what a broker in the process has not.
var onlyReal = map[string]string{
	"declare again: a repair makes no letters":             "the brokers of these tests send again after 2 s what a missing exchange held up, rehoptest after 3 minutes as others do",
	"3.x form: the advised policy works":                   "rehoptest has no policies",
	"health: permission to read is enough":                 "rehoptest has no permissions",
	"permissions: declaring":                               "rehoptest has no permissions",
	"permissions: publishing":                              "rehoptest has no permissions",
	"permissions: consuming":                               "rehoptest has no permissions",
	"permissions: consuming by republish in place of nack": "rehoptest has no permissions",
	"permissions: consuming lanes and shards":              "rehoptest has no permissions",
	"permissions: RetryAfter by exact delays":              "rehoptest has no permissions",
	"permissions: a service with all roles":                "rehoptest has no permissions",
	"permissions: of any name":                             "rehoptest has no permissions",
	"permissions: waits that nobody carries":               "rehoptest has no permissions",
	"policies that break a promise are named":              "rehoptest has no policies",
	ruleByPolicy: "rehoptest has no policies",
	"single active consumer: a queue from before 4.3":               "rehoptest has no policies",
	"publish: a letter with the user-id of another login":           "rehoptest makes no users while it runs",
	"publish: a queue that refused is published to again":           "rehoptest has no policies",
	"a stream is refused":                                           "rehoptest has no streams",
	"a message that cannot be handed over stops its queue alone":    "rehoptest does not speak AMQP 1.0",
	"a message that cannot be handed over takes no neighbour along": "rehoptest does not speak AMQP 1.0",
	"stop: what was acked does not come back":                       "a channel of rehoptest keeps no acks back",
}

func processRules() []matrix.Rule {
	var list []matrix.Rule
	for _, r := range rules {
		why, real := onlyReal[r.Name]
		switch r.Name {
		case "health: asking draws no message":
			r.Except = func(_, _ string) string { return "messages come here while a consumer changes its prefetch" }
		case "lanes: the order of 1,000, before and after waits and dead letters", "shards: processes share them evenly, in order through those that come and go":
			r.Except = onlyNewestInProcess
		case "priority: the order of 1,000, before and after waits and dead letters":
			r.Except = func(version, queueType string) string { // each type has its own priorities
				if version == "4.3" {
					return ""
				}
				return onlyNewestInProcess(version, queueType)
			}
		case "a wait that does not answer holds no other up", "publish: a queue that does not answer holds no other up", "late settle after a close by the broker":
			r.Except = nil // needs no rabbitmqctl and no management here
		}
		if real {
			r.Except = func(_, _ string) string { return why }
		}
		list = append(list, r)
	}
	return list
}

// onlyNewestInProcess is an Except for what takes seconds of computing in each column. The tests of package
// consumer, or integration/differential, have it on every version of rehoptest.
func onlyNewestInProcess(version, queueType string) string {
	if matrix.OnlyNewest(version, queueType) != "" {
		return "the tests of the consumer, or the differential test, have it on every version"
	}
	return ""
}

// startProcessNodes starts the brokers in the process.
func startProcessNodes() error {
	for _, version := range matrix.Versions {
		b, err := rehoptest.NewBroker(rehoptest.Config{Version: version, MaxMessageSize: maxMessage})
		if err != nil {
			return err
		}
		address, err := b.Listen()
		if err != nil {
			return errors.Join(err, b.Close())
		}
		v, err := connection.ParseVersion(version)
		if err != nil {
			return errors.Join(err, b.Close())
		}
		processNodes[version] = &node{server: inProcess{b, address}, process: b, version: v, user: "guest", tooBig: maxMessage + 1}
	}
	return nil
}

// inProcess is a server of rehoptest.
type inProcess struct {
	*rehoptest.Broker
	address string
}

func (p inProcess) AMQPURL() string             { return fmt.Sprintf("amqp://guest:guest@%s/", p.address) }
func (p inProcess) ManagementURL() string       { return "" }
func (p inProcess) Close(context.Context) error { return p.Broker.Close() }
func (p inProcess) Exec(context.Context, ...string) (string, error) {
	return "", errors.New("there is no rabbitmqctl in the process")
}
