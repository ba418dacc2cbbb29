package producer

import "github.com/rehop/rehop"

// Place is where a message is.
type Place string

// The places. The zero value says that no place is known.
//
// For a message with a Delay, PlaceQueue says that the queues of topology.Delays
// have it. It does not say that a queue takes it when it is due, see Message.Delay.
const (
	PlaceQueue    Place = "queue"    // in every queue that its exchange and key lead to
	PlaceFallback Place = "fallback" // in the sink that Receipt.Sink names
)

// Receipt says where a message is.
type Receipt struct {
	ID    string // of the message
	Place Place
	Sink  string      // for PlaceFallback: its name
	Cause rehop.Cause // why the message is not in its queue; empty with PlaceQueue
	Err   error       // the error that Cause stands for; nil with PlaceQueue

	// MaybeDuplicate reports that the message may be in a second place, which is its
	// queue or a sink of the Fallback, or in one place twice: a try was written, or
	// given to a sink, and its answer did not come.
	MaybeDuplicate bool
}

// unsafe is the error that Publish returns with a receipt.
func unsafe(r Receipt) error {
	if r.Place == "" {
		return r.Err
	}
	return nil
}
