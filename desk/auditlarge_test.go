package desk

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The latest records of an audit cost the same however long it is.
func TestALongAuditIsReadFromItsEnd(t *testing.T) {
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	costs := map[int]float64{}
	for _, n := range []int{1_000, 100_000} {
		var text bytes.Buffer
		for i := range n {
			fmt.Fprintf(&text, `{"at":"2026-11-29T08:00:00Z","by":{"who":"ada"},"action":"look","source":"queue orders.dlq","count":%d,"result":"done"}`+"\n", i)
		}
		must(t, os.WriteFile(filepath.Join(j.dir, "audit.jsonl"), text.Bytes(), 0o600))
		costs[n] = testing.AllocsPerRun(2, func() {
			if records, err := j.Audit(10); err != nil || len(records) != 10 || records[0].Count != n-1 || records[9].Count != n-10 {
				t.Errorf("%d records: %v: %+v", n, err, records)
			}
		})
	}
	if costs[100_000] > 2*costs[1_000] {
		t.Errorf("10 records of 1,000 take %v allocations, and of 100,000 %v", costs[1_000], costs[100_000])
	}
}

// A line that no desk has written is no record, though it is JSON.
func TestALineWithoutAResultIsNoRecord(t *testing.T) {
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	const text = "{}\nnull\n" + `{"at":"2026-11-29T08:00:00Z","by":{"who":"ada"},"action":"look","source":"queue q","count":1,"result":"done"}` + "\n" + `{"action":"look"}` + "\n"
	must(t, os.WriteFile(filepath.Join(j.dir, "audit.jsonl"), []byte(text), 0o600))
	if records, err := j.Audit(10); err != nil || len(records) != 1 || records[0].By.Who != "ada" {
		t.Errorf("%v: %+v, want the look of ada alone", err, records)
	}
}

func TestLinesBackwards(t *testing.T) {
	j, err := OpenJournal(t.TempDir())
	must(t, err)
	long := strings.Repeat("x", 200<<10)
	for _, tt := range []struct{ rule, text string }{
		{"an empty file", ""},
		{"one line", "a\n"},
		{"several", "a\nb\nc\n"},
		{"an empty line", "a\n\nc\n"},
		{"a line that was cut off", "a\nb\nhal"},
		{"nothing but a line that was cut off", "hal"},
		{"a line longer than a part", "a\n" + long + "\nc\n"},
		{"a long line that was cut off", "a\n" + long},
		{"lines over many parts", strings.Repeat("line\n", 100_000)},
		{"a part that begins with the end of a line", strings.Repeat("y", 1<<16-1) + "\n" + strings.Repeat("z", 1<<16-1) + "\n"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			must(t, os.WriteFile(filepath.Join(j.dir, "file"), []byte(tt.text), 0o600))
			var want, got []string
			must(t, j.lines("file", func(line []byte) { want = append(want, string(line)) }))
			slices.Reverse(want)
			must(t, j.backwards("file", func(line []byte) bool { got = append(got, string(line)); return true }))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%d lines, want %d", len(got), len(want))
			}
		})
	}
}
