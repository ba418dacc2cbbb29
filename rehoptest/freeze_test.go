package rehoptest

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The owner of the mutex is outside of the bubble, so that the bubble goes on in the end.
func TestAFrozenBubbleIsReported(t *testing.T) {
	var mu sync.Mutex
	mu.Lock()
	var once sync.Once
	defer once.Do(mu.Unlock)
	name := make(chan string, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		synctest.Test(t, func(*testing.T) {
			name <- bubble()
			var sleeper sync.WaitGroup
			sleeper.Go(func() { time.Sleep(time.Hour) })
			waitForTheMutex(&mu)
			sleeper.Wait()
		})
	})
	in := <-name
	var culprit, all string
	for culprit == "" {
		culprit, all = frozen(goroutines(), in)
	}
	if !strings.Contains(culprit, "waitForTheMutex") || !strings.Contains(all, "time.Sleep") {
		t.Errorf("the goroutine that waits is not named:\n%s\n\nof:\n%s\n\nin %q", culprit, goroutines(), in)
	}
	once.Do(mu.Unlock)
	wg.Wait()
}

func waitForTheMutex(mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
}

func TestWhichBubblesAreFrozen(t *testing.T) {
	const (
		root   = "goroutine 7 [synctest.Run (durable), synctest bubble 3]:\nmain()"
		sleeps = "goroutine 8 [sleep (durable), synctest bubble 3]:\nsleeper()"
		locks  = "goroutine 9 [sync.Mutex.Lock, synctest bubble 3]:\nlocker()"
		long   = "goroutine 9 [sync.RWMutex.RLock, 2 minutes, synctest bubble 3]:\nlocker()"
		runs   = "goroutine 10 [running, synctest bubble 3]:\nworker()"
		reads  = "goroutine 11 [IO wait, synctest bubble 3]:\nreader()"
		others = "goroutine 12 [runnable]:\nother()"
		apart  = "goroutine 13 [runnable, synctest bubble 31]:\nother()"
	)
	for _, tt := range []struct {
		rule   string
		stacks []string
		want   string
	}{
		{"all wait for time", []string{root, sleeps}, ""},
		{"one waits for a mutex, the others for time", []string{root, sleeps, locks, others, apart}, locks},
		{"for a while", []string{root, long}, long},
		{"one works meanwhile", []string{root, locks, runs}, ""},
		{"one waits for the world", []string{root, locks, reads}, ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			culprit, all := frozen(strings.Join(tt.stacks, "\n\n"), "synctest bubble 3")
			if culprit != tt.want {
				t.Errorf("%q, want %q", culprit, tt.want)
			}
			if strings.Contains(all, "other()") {
				t.Errorf("goroutines of others: %s", all)
			}
		})
	}
}
