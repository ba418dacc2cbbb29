package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A log line must not hang on the line of the progress.
func TestLogLinesBeginAtTheFirstColumn(t *testing.T) {
	var screen strings.Builder
	fmt.Fprint(&screen, "\r  1s  published 200\x1b[K")
	slog.New(slog.NewTextHandler(clearing{&screen}, nil)).Info("connected")
	if _, line, _ := strings.Cut(screen.String(), "published 200\x1b[K"); !strings.HasPrefix(line, "\r\x1b[Ktime=") {
		t.Errorf("after the progress comes %q, want a cleared line and then the log's", line)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if besideProgress(file) != file {
		t.Error("escapes of a terminal are written to a file")
	}
}
