// Package connection_test tries package connection on brokers of its own, which
// it kills, pauses and restarts.
package connection_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
