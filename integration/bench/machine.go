package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/rehop/rehop/connection"
)

// machine is what the numbers were measured on. The broker may be elsewhere.
type machine struct {
	Cores       int    `json:"cores"` // that Go uses
	CPU         string `json:"cpu"`
	MemoryBytes uint64 `json:"memory_bytes"`
	Load        string `json:"load"` // of 1, 5 and 15 minutes before the start
	OS          string `json:"os"`
}

// thisMachine reads /proc; what is not there stays unknown.
func thisMachine() machine {
	return machine{
		Cores:       runtime.GOMAXPROCS(0),
		CPU:         field(read("/proc/cpuinfo"), "model name"),
		MemoryBytes: kilobytes(field(read("/proc/meminfo"), "MemTotal")),
		Load:        firstWords(read("/proc/loadavg"), 3),
		OS:          runtime.GOOS + "/" + runtime.GOARCH,
	}
}

func read(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

// field returns the value in the first line "name : value".
func field(text, name string) string {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// kilobytes reads "16384 kB".
func kilobytes(s string) uint64 {
	n, _ := strconv.ParseUint(firstWords(s, 1), 10, 64)
	return n << 10
}

func firstWords(s string, n int) string {
	words := strings.Fields(s)
	if len(words) < n {
		return "unknown"
	}
	return strings.Join(words[:n], " ")
}

func versions(s connection.Server) map[string]string {
	v := map[string]string{"go": runtime.Version(), "broker": s.Product + " " + s.Version.String()}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			v[module.Path] = module.Version
		}
	}
	return v
}
