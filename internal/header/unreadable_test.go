package header

import (
	"testing"

	"github.com/rehop/rehop/internal/transport"
)

func TestHeaderUnreadableIsWhatConnectionWrites(t *testing.T) {
	if Unreadable != transport.HeaderUnreadable {
		t.Errorf("%q and %q", Unreadable, transport.HeaderUnreadable)
	}
}
