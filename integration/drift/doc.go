// Package drift damages every part of every wiring in every way that it knows, one at a
// time, on every version of the broker, and asks topology.Verify. Each damage is named with
// its code, what is whole is clean, and Verify agrees with Declare: it finds a difference
// that cannot change where Declare refuses, a missing part where Declare adds one, and
// neither where Declare changes nothing.
//
// VerifyDefinitions finds the same in the files that the broker exports: of all virtual hosts, and of
// one.
//
// A plan that is imported as a file of definitions is as planned, and Declare changes nothing on it.
//
// Each wiring has a virtual host of its own. The parts to damage are those that the
// broker's definitions list, and the definitions show that Verify changes nothing.
package drift
