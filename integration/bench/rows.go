package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// row is one kind of work that both sides do.
type row struct {
	name       string
	queue      topology.QueueType
	engine     topology.Engine
	loaded     bool // the messages are in the queue before the start
	keys       int  // that they have, in turns; 0: none
	shards     int  // that the work queue is spread over; 0: it is one queue
	end        end
	rehop, raw side
	peers      []peer
}

// side does the work of a row once.
type side func(ctx context.Context, t *trial) error

// end says where the messages of a row are when it is over.
type end uint8

const (
	inWorkQueue end = iota + 1 // published
	consumed                   // acked: in no queue
	inFirstWait                // failed once
)

// callers is how many goroutines publish at a time, and failing how many
// messages a failing consumer has in hand, where the name of a row does not say.
const (
	callers = 64
	failing = 64
)

// allRows returns every comparison, in the order of the table.
func allRows() []row {
	var rows []row
	both := func(r row) {
		for _, q := range []topology.QueueType{topology.Quorum, topology.Classic} {
			typed := r
			typed.queue = q
			typed.name = string(q) + ": " + r.name
			rows = append(rows, typed)
		}
	}
	both(row{name: "publish, 1 goroutine", end: inWorkQueue,
		rehop: rehopPublish(1), raw: rawPublish(1), peers: publishPeers(1)})
	both(row{name: fmt.Sprintf("publish, %d goroutines", callers), end: inWorkQueue,
		rehop: rehopPublish(callers), raw: rawPublish(callers), peers: publishPeers(callers)})
	both(row{name: fmt.Sprintf("publish, %d goroutines (raw: 1 that pipelines)", callers), end: inWorkQueue,
		rehop: rehopPublish(callers), raw: rawPipeline(callers)})
	both(row{name: "publish, batches of 100", end: inWorkQueue,
		rehop: rehopBatches(100), raw: rawBatches(100)})
	for _, n := range []int{1, 16, 256} {
		both(row{name: fmt.Sprintf("consume, concurrency %d", n), loaded: true, end: consumed,
			rehop: rehopConsume(n, 0), raw: rawPool(n, n), peers: consumePeers(n, n)})
	}
	for _, n := range []struct{ concurrency, prefetch int }{{1, 100}, {16, 2000}, {1, noPrefetch}, {16, noPrefetch}} {
		both(row{name: fmt.Sprintf("consume, concurrency %d, prefetch %d", n.concurrency, n.prefetch), loaded: true, end: consumed,
			rehop: rehopConsume(n.concurrency, n.prefetch), raw: rawPool(n.concurrency, n.prefetch), peers: consumePeers(n.concurrency, n.prefetch)})
	}
	both(row{name: "consume, concurrency 256 (raw: 1 goroutine, bulk acks)", loaded: true, end: consumed,
		rehop: rehopConsume(256, 0), raw: rawBulk(256)})
	// With the prefetch that a consumer has by default if there are keys.
	both(row{name: "consume, concurrency 16, 1000 keys (raw: rehop without KeyLimit)", loaded: true, keys: 1000, end: consumed,
		rehop: rehopConsumeWith(consumer.Config{Concurrency: 16, KeyLimit: 1}), raw: rehopConsume(16, 66)})
	rows = append(rows,
		row{name: "quorum: fail, nack", queue: topology.Quorum, engine: topology.EngineNack, loaded: true, end: inFirstWait,
			rehop: rehopFail(failing), raw: rawNack(failing)})
	republish := func(r row) {
		r.engine, r.loaded, r.end, r.rehop = topology.EngineRepublish, true, inFirstWait, rehopFail(failing)
		both(r)
	}
	republish(row{name: "fail, republish", raw: rawRepublish(failing)})
	republish(row{name: fmt.Sprintf("fail, republish (raw: %d workers)", failing), raw: rawRepublishPool(failing)})
	both(row{name: fmt.Sprintf("publish and consume, %d of each", callers), end: consumed,
		rehop: rehopEndToEnd(callers), raw: rawEndToEnd(callers)})
	return append(rows, shardRows()...)
}

func matching(rows []row, filter *regexp.Regexp) []row {
	var kept []row
	for _, r := range rows {
		if filter.MatchString(r.name) {
			kept = append(kept, r)
		}
	}
	return kept
}

// file returns the name of a row as part of a file's name.
func (r row) file() string {
	words := strings.FieldsFunc(r.name, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789", c)
	})
	return strings.Join(words, "-")
}
