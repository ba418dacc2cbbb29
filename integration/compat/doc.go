// Package compat keeps the wire format of each release as files, and proves that this
// version works beside programs of that release during a roll-out, in both directions.
//
//	testdata/v0/topology   exchanges, queues, arguments and bindings of each wiring and broker version
//	testdata/v0/messages   messages as that release has left them in queues, with all headers
//
// The tests compare the newest of these folders with today's SDK. They also declare the
// topology of every folder before and after today's, and let today's consumers handle the
// messages of every folder. The schema of package store is in store/testdata, and tested in
// integration/store.
//
// A difference is written with -update:
//
//	go test ./integration/compat -update
//
// That is allowed until the folder's first release. After it the folder does not change any
// more: make a folder for the next release, name it in [Current], and run -update.
package compat

// Current is the folder that this version writes.
const Current = "v0"
