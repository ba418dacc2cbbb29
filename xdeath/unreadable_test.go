package xdeath

import (
	"testing"

	"github.com/rehop/rehop/internal/transport"
)

func TestHeaderUnreadableIsWhatConnectionWrites(t *testing.T) {
	if HeaderUnreadable != transport.HeaderUnreadable {
		t.Errorf("%q and %q", HeaderUnreadable, transport.HeaderUnreadable)
	}
}
