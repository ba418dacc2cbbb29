// Package roundtrips counts the round trips to the broker that stand between a
// caller and what he has asked for: they decide how long a start takes where the
// broker is far away, and do not depend on the machine.
//
//	go test ./integration/roundtrips -run TestRoundTrips -v
//
// prints the table. What goes out at the same time counts once. So the count is
// not one of frames: it is the time that a call takes longer for each
// millisecond that the broker is farther away.
package roundtrips
