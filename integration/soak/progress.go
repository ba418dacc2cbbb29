package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// tell prints a line every ten seconds until stop is called.
func (k *soak) tell(began time.Time) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		told := 0
		for {
			select {
			case <-tick.C:
				faults := k.outages.since(told)
				told += len(faults)
				fmt.Fprintln(k.out, k.line(time.Since(began), faults, told))
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// line tells where the run is. Dead letters are read at the end; until then they
// count as unhandled.
func (k *soak) line(elapsed time.Duration, faults []outage, sum int) string {
	counts := k.account.Counts()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	var names []string
	for _, o := range faults {
		names = append(names, o.fault.String())
	}
	return fmt.Sprintf("%5v  published %d  handled %d  in flight %d  unhandled %d  sessions %d  connections %d  goroutines %d  heap %d MB  faults %d: %s",
		elapsed.Round(time.Second), counts.Numbered, counts.Handled, counts.InFlight, counts.Open, k.sessions.sum(), k.proxy.Stats().Conns,
		runtime.NumGoroutine(), memory.HeapAlloc>>20, sum, strings.Join(names, ", "))
}
