package main

import (
	"runtime"
	"syscall"
	"time"
)

// usage is what the process has used so far.
type usage struct {
	at     time.Time
	cpu    time.Duration
	allocs uint64
	bytes  uint64
}

func usageNow() usage {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	var times syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &times) // fails only for a wrong argument
	return usage{
		at:     time.Now(),
		cpu:    time.Duration(times.Utime.Nano() + times.Stime.Nano()),
		allocs: memory.Mallocs,
		bytes:  memory.TotalAlloc,
	}
}

// since returns the cost of n messages between start and u.
func (u usage) since(start usage, n int) sample {
	return sample{
		Messages: n,
		Elapsed:  u.at.Sub(start.at),
		CPU:      u.cpu - start.cpu,
		Allocs:   u.allocs - start.allocs,
		Bytes:    u.bytes - start.bytes,
	}
}

// sample is one side of a row, measured once.
type sample struct {
	Messages int           `json:"messages"`
	Elapsed  time.Duration `json:"elapsed_ns"`
	CPU      time.Duration `json:"cpu_ns"` // of the client process
	Allocs   uint64        `json:"allocs"`
	Bytes    uint64        `json:"bytes"` // allocated

	// Back is how many messages were acked and put back all the same: see maxBack.
	Back int `json:"back"`
}

func (s sample) perSecond() float64     { return float64(s.Messages) / s.Elapsed.Seconds() }
func (s sample) cpuMicros() float64     { return s.each(float64(s.CPU) / float64(time.Microsecond)) }
func (s sample) allocsEach() float64    { return s.each(float64(s.Allocs)) }
func (s sample) bytesEach() float64     { return s.each(float64(s.Bytes)) }
func (s sample) each(f float64) float64 { return f / float64(s.Messages) }
