package rehoptest

import (
	"errors"

	"github.com/rehop/rehop/rehoptest/internal/model"
	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// unreadable is the fault of a method that could not be decoded.
func unreadable(err error, method wire.ID) error {
	if errors.Is(err, wire.ErrText) {
		return failed(model.Fail(model.FrameError, "%v", err), wire.ID{})
	}
	return failed(model.Fail(model.SyntaxError, "%v", err), method)
}
