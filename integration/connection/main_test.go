// Package connection_test tries package connection on brokers of its own, which
// it kills, pauses and restarts.
package connection_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Unsetenv("AMQP_URL") // a broker that is killed must be ours
	goleak.VerifyTestMain(m)
}
