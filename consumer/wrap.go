package consumer

import "slices"

// Wrap returns handler with wrappers around it. The first wrapper is the outermost: it
// is called first, and sees the error last.
//
// A wrapper decides what happens around one run of a handler. It knows the message and
// the error, and neither the queue nor other messages. Wrappers belong in this order,
// from the outside in:
//   - wrappers of your own that measure or log, so that they see the final error, which is
//     [Delivery.Err], or the returned one if that is nil;
//   - [Classify], so that it sees the errors of all wrappers inside it;
//   - a wrapper of your own that opens what the handler needs, such as a transaction;
//   - [Mux] and [JSON], which are handlers themselves.
func Wrap(handler Handler, wrappers ...func(Handler) Handler) Handler {
	for _, wrap := range slices.Backward(wrappers) {
		handler = wrap(handler)
	}
	return handler
}
