package main

import (
	"log/slog"
	"os"
)

// openLog returns a logger to a file, a silent one without a path. The file is
// closed by the end of the process.
func openLog(path string) (*slog.Logger, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug})), nil
}
