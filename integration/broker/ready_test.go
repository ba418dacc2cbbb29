package broker_test

import (
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rehop/rehop/integration/broker"
)

// While 200 clients connected, 4.3.6 dropped the record "Server startup complete" from
// its log.
const busyStart = `
  Starting broker...2026-11-23 15:43:11.216432+00:00 [info] <0.223.0> 
2026-11-23 15:43:16.251752+00:00 [info] <0.2900.0> connection 172.17.0.1:39836 -> 172.17.0.2:5672 has a client-provided name: connection.test consume
2026-11-23 15:43:16.602826+00:00 [notice] <unknown pid> Handler rmq_1_stdout switched from sync to drop mode
2026-11-23 15:43:16.654103+00:00 [notice] <unknown pid> Handler rmq_1_stdout switched from drop to sync mode
`

const banner = " completed with 4 plugins.\n"

func TestAStartIsSeenThroughALogThatDropsRecords(t *testing.T) {
	if broker.Started(iotest.OneByteReader(strings.NewReader(busyStart))) {
		t.Error("a server that is not up counts as started")
	}
	if !broker.Started(iotest.OneByteReader(strings.NewReader(busyStart + banner))) {
		t.Error("a server that is up does not count as started")
	}
}
