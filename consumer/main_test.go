package consumer

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // bubbles leave little alive and much garbage: a sixth of the time
	goleak.VerifyTestMain(m)
}
