package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCommandRunsAgainOnlyIfTheDetectorHasFailed(t *testing.T) {
	const crash = `echo 'ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346'`
	for _, tt := range []struct {
		name, script string
		runs         int
		ok           bool
	}{
		{"tests that pass", "exit 0", 1, true},
		{"a test that fails", "echo --- FAIL: TestA; exit 1", 1, false},
		{"the detector fails once", `test $(wc -l <"$RUNS") -gt 1 || { ` + crash + "; exit 66; }", 2, true},
		{"on the other stream, in parts", `test $(wc -l <"$RUNS") -gt 1 || { printf ThreadSan >&2; printf 'itizer: CHECK failed' >&2; exit 66; }`, 2, true},
		{"the detector fails each time", crash + "; exit 66", tries, false},
		{"the detector has a fault", `test $(wc -l <"$RUNS") -gt 1 || { printf 'SIGSEGV: segmentation violation\nPC=0x437870 m=6 sigcode=1 addr=0x7fe895700000\n'; exit 2; }`, 2, true},
		{"a fault in Go code", `printf 'panic: runtime error\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4d]\n'; exit 2`, 1, false},
		{"the text alone is no failure", crash, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runs := filepath.Join(t.TempDir(), "runs")
			t.Setenv("RUNS", runs)
			var out, errs bytes.Buffer
			err := run(t.Context(), []string{"sh", "-c", `echo run >>"$RUNS"; ` + tt.script}, &out, &errs)
			if (err == nil) != tt.ok {
				t.Errorf("it ends with %v", err)
			}
			text, err := os.ReadFile(runs)
			if err != nil || strings.Count(string(text), "run") != tt.runs {
				t.Errorf("%q (%v), want %d runs", text, err, tt.runs)
			}
			if said := strings.Count(errs.String(), "once more"); said != tt.runs-1 {
				t.Errorf("said %d times that it runs once more: %s", said, &errs)
			}
		})
	}
	if err := run(t.Context(), nil, nil, nil); err == nil {
		t.Error("without a command it has nothing to say")
	}
}
