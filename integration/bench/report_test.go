package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func exampleReport() report {
	fast := sample{Messages: 1000, Elapsed: time.Second, CPU: 20 * time.Millisecond, Allocs: 40_500, Bytes: 1_500_000}
	slow := fast
	slow.Elapsed = 2 * time.Second
	return report{
		Took:     90 * time.Second,
		Settings: settings{Rounds: 1, Duration: time.Second, Filter: regexp.MustCompile("")},
		Machine:  machine{Cores: 2, CPU: "a processor", MemoryBytes: 8 << 30, Load: "0.10 0.20 0.30"},
		Versions: map[string]string{"go": "go1.26.8", "broker": "RabbitMQ 4.3.6", "github.com/rabbitmq/amqp091-go": "v1.16.0"},
		Rows: []result{{
			Name: "quorum: publish", Messages: 1000,
			Ratio: ratioOf([]sample{slow}, []sample{fast}), Rehop: []sample{slow}, Raw: []sample{fast},
		}},
	}
}

func TestTableHasTheMachineAndEveryRow(t *testing.T) {
	var w strings.Builder
	exampleReport().print(&w)
	// Columns are aligned; only what they hold matters here.
	got := regexp.MustCompile(` +`).ReplaceAllString(w.String(), " ")
	for _, want := range []string{
		"a processor, 2 cores, 8 GiB; load 0.10 0.20 0.30 at the start; go1.26.8; broker RabbitMQ 4.3.6; amqp091-go v1.16.0\n",
		"1 rounds of about 1s a side, body 256 B; every message accounted for; in 1m30s\n",
		" 0.50 0.50..0.50 500 1000 20.0 20.0 40.5 40.5 1500 1500 quorum: publish\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
}

func TestPeersHaveATable(t *testing.T) {
	r := exampleReport()
	var w strings.Builder
	if r.printPeers(&w); w.Len() > 0 {
		t.Errorf("a table of no row: %s", w.String())
	}
	r.Rows[0].Peers = map[string][]sample{"amqpx": r.Rows[0].Raw}
	r.Rows[0].fail("go-rabbitmq", errors.New("stood still"))
	r.printPeers(&w)
	if got := regexp.MustCompile(` +`).ReplaceAllString(w.String(), " "); !strings.Contains(got, " 500 1000 - failed 1000 quorum: publish\n") {
		t.Errorf("the table is %s", got)
	}
}

func TestJSONHoldsEverySample(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.json")
	if err := exampleReport().write(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 1 || got.Rows[0].Raw[0].Elapsed != time.Second || got.Rows[0].Ratio.Median != 0.5 ||
		got.Machine.Cores != 2 || got.Versions["broker"] != "RabbitMQ 4.3.6" {
		t.Errorf("read back %+v from\n%s", got, text)
	}
}
