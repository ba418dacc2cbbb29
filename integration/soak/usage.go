package main

import (
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

// usage is what the process has in use.
type usage struct {
	goroutines int
	heap       uint64 // bytes
}

// usageNow does not count what is garbage.
func usageNow() usage {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return usage{goroutines: runtime.NumGoroutine(), heap: memory.HeapAlloc}
}

// usageAfter returns what is in use once the goroutines that were started since
// have ended, or after five seconds. Then it prints those that are there.
func usageAfter(start usage) usage {
	for range 50 {
		if runtime.NumGoroutine() <= start.goroutines {
			return usageNow()
		}
		<-time.After(100 * time.Millisecond)
	}
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1) // to the terminal: there is nobody to tell
	return usageNow()
}
