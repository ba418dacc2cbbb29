package main

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "3"); err != nil { // the versions, which wait most of their time
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// A small part of the proof, so that the whole can be relied on to run.
func TestASmallProof(t *testing.T) {
	if nodes.Given() {
		t.Log("NOT RUN: AMQP_URL is set: that broker is not ours to break")
		return
	}
	here, err := broker.Available(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range here {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := settings{
				versions: []string{version}, types: []topology.QueueType{topology.Classic, topology.Quorum},
				faults: []string{stop}, due: []int{50, 100}, runs: 1, messages: 200, wait: 16 * time.Second,
			}
			if err := prove(t.Context(), s, t.Output()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFaultyFlagsAreRefusedWithAllTheirFaults(t *testing.T) {
	_, err := parseFlags([]string{"-versions", "2.8", "-types", "stream", "-faults", "flood", "-due", "101", "-runs", "0", "-messages", "0", "-wait", "1ms", "x"})
	if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 8 {
		t.Errorf("parseFlags = %v, want eight faults", err)
	}
	if s, err := parseFlags(nil); err != nil || len(s.versions) != 3 || len(s.due) != 4 || s.runs != 5 || s.messages != 5000 {
		t.Errorf("the defaults are %+v, %v", s, err)
	}
}
