package faults

import (
	"testing"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

// killedQueues are those that exist on a broker when it is killed.
func killedQueues(string) []topology.Spec {
	all := []topology.Spec{requestsQueue}
	for _, queueType := range queueTypes {
		all = append(all, burstQueue(queueType), publishQueue(queueType), endingQueue(queueType))
	}
	return all
}

var queueTypes = []topology.QueueType{topology.Classic, topology.Quorum}

// open connects to a node for the length of the test.
func open(t *testing.T, n *nodes.Node, cfg connection.Config) *connection.Conn {
	t.Helper()
	cfg.URLs = []string{n.AMQPURL()}
	conn, err := connection.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
