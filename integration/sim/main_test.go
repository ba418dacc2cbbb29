package sim

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // scenarios leave little alive and much garbage
	goleak.VerifyTestMain(m)
}
