package rehoptest

import (
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Each row waits for what belongs to the world outside of the bubble, so that the bubble
// goes on in the end.
func TestAFrozenBubbleIsReported(t *testing.T) {
	for _, row := range []struct {
		rule   string
		freeze func() (wait, thaw func())
	}{
		{"a mutex", func() (wait, thaw func()) {
			var mu sync.Mutex
			mu.Lock()
			return func() { waitForTheMutex(&mu) }, mu.Unlock
		}},
		{"a channel, to receive", func() (wait, thaw func()) {
			c := make(chan struct{})
			return func() { waitForTheChannel(c) }, func() { close(c) }
		}},
		{"a channel of capacity 1 as a lock", func() (wait, thaw func()) {
			lock := make(chan struct{}, 1)
			lock <- struct{}{}
			return func() { waitToSend(lock) }, func() { <-lock }
		}},
		{"a select that has such a channel", func() (wait, thaw func()) {
			c := make(chan struct{})
			return func() { waitInSelect(c) }, func() { close(c) }
		}},
		{"a WaitGroup", func() (wait, thaw func()) {
			var wg sync.WaitGroup
			wg.Add(1)
			return func() { waitForTheGroup(&wg) }, wg.Done
		}},
	} {
		t.Run(row.rule, func(t *testing.T) {
			wait, thaw := row.freeze()
			reports := make(chan string, 1)
			w := newWatcher(time.Millisecond, func(string) {}, func(report string) { reports <- report })
			defer w.stop()
			thawed := sync.OnceFunc(thaw)
			var wg sync.WaitGroup
			wg.Go(func() {
				defer thawed()
				synctest.Test(t, func(*testing.T) {
					w.found(bubble())
					var sleeper sync.WaitGroup
					sleeper.Go(func() { time.Sleep(time.Hour) })
					wait()
					sleeper.Wait()
				})
			})
			report := <-reports
			culprit, all, _ := strings.Cut(report, "All goroutines of the bubble:")
			if !strings.Contains(culprit, "rehoptest.wait") || !strings.Contains(all, "time.Sleep") {
				t.Errorf("the goroutine that waits is not named:\n%s", report)
			}
			thawed()
			wg.Wait()
		})
	}
}

func waitForTheMutex(mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
}

func waitForTheChannel(c chan struct{}) { <-c }

func waitToSend(c chan struct{}) { c <- struct{}{} }

func waitInSelect(c chan struct{}) {
	select {
	case <-c:
	case <-time.After(time.Minute):
	}
}

func waitForTheGroup(wg *sync.WaitGroup) { wg.Wait() }

// The goroutine that accepts may be the one that ends the wait, as a server in the
// process may.
func TestAWaitThatSomebodyMayEndIsAWarning(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, warnings := make(chan struct{}), make(chan string, 1)
	ends := func(report string) { t.Errorf("the program would end:\n%s", report) }
	w := newWatcher(time.Millisecond, func(report string) { warnings <- report }, ends)
	defer w.stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(c)
		_, _ = listener.Accept()
	})
	wg.Go(func() {
		<-warnings
		_ = listener.Close()
	})
	synctest.Test(t, func(*testing.T) {
		w.found(bubble())
		waitForTheChannel(c)
	})
	wg.Wait()
}

func TestWhichBubblesAreFrozen(t *testing.T) {
	const (
		root    = "goroutine 7 [synctest.Run (durable), synctest bubble 3]:\nmain()"
		sleeps  = "goroutine 8 [sleep (durable), synctest bubble 3]:\nsleeper()"
		never   = "goroutine 8 [chan receive (nil chan) (durable), synctest bubble 3]:\nnever()"
		locks   = "goroutine 9 [sync.Mutex.Lock, synctest bubble 3]:\nlocker()"
		long    = "goroutine 9 gp=0x1 m=nil [sync.RWMutex.RLock, 2 minutes, synctest bubble 3]:\nlocker()"
		gets    = "goroutine 9 [chan receive, synctest bubble 3]:\nreceiver()"
		selects = "goroutine 9 [select, 1 minutes, locked to thread, synctest bubble 3]:\nselector()"
		group   = "goroutine 9 [sync.WaitGroup.Wait, synctest bubble 3]:\nwaiter()"
		runs    = "goroutine 10 [running, synctest bubble 3]:\nworker()"
		onCore  = "goroutine 10 gp=0x1 m=3 mp=0x2 [running, synctest bubble 3]:\nworker()"
		soon    = "goroutine 10 [runnable, synctest bubble 3]:\nworker()"
		calls   = "goroutine 10 [syscall, synctest bubble 3]:\nworker()"
		collect = "goroutine 10 [GC assist wait, synctest bubble 3]:\nworker()"
		reads   = "goroutine 11 [IO wait, synctest bubble 3]:\nreader()"

		watches = "goroutine 5 [running]:\ngithub.com/rehop/rehop/rehoptest.(*watcher).run()"
		tests   = "goroutine 1 [chan receive, 3 minutes]:\ntesting.(*T).Run()"
		idle    = "goroutine 13 [select (durable), synctest bubble 31]:\nother()"
		signals = "goroutine 14 [syscall]:\nos/signal.signal_recv()"
		sweeps  = "goroutine 15 [GC sweep wait]:\nruntime.bgsweep()\ncreated by runtime.gcenable in goroutine 1"
		other   = "goroutine 12 [runnable]:\nother()"
		apart   = "goroutine 13 [running, synctest bubble 31]:\nother()"
		serves  = "goroutine 16 [IO wait]:\nother()"
		naps    = "goroutine 17 [sleep]:\nother()"
	)
	for _, row := range []struct {
		rule            string
		stacks          []string
		culprit, helper string
	}{
		{"all wait for time", []string{root, sleeps, never}, "", ""},
		{"one waits for a mutex, the others for time", []string{root, sleeps, locks}, locks, ""},
		{"for a while", []string{root, long}, long, ""},
		{"for a channel that was made outside", []string{root, sleeps, gets}, gets, ""},
		{"in a select", []string{selects, root}, selects, ""},
		{"for a WaitGroup that was used outside", []string{root, group}, group, ""},
		{"one runs meanwhile", []string{root, locks, runs}, "", ""},
		{"with GOTRACEBACK=system", []string{root, locks, onCore}, "", ""},
		{"one is about to", []string{root, soon, gets}, "", ""},
		{"one is in the kernel", []string{root, gets, calls}, "", ""},
		{"one helps the garbage collector", []string{root, gets, collect}, "", ""},
		{"one waits for the world, and nobody for a lock", []string{root, sleeps, reads}, "", ""},
		{"one waits for the world, and one for a lock", []string{root, locks, reads}, locks, reads},
		{"the world outside waits too", []string{watches, tests, root, gets, idle, signals, sweeps}, gets, ""},
		{"one outside runs", []string{root, gets, other}, gets, other},
		{"one of another bubble runs", []string{root, gets, apart}, gets, apart},
		{"one outside waits for the world", []string{serves, root, gets}, gets, serves},
		{"one outside sleeps", []string{root, gets, naps}, gets, naps},
	} {
		t.Run(row.rule, func(t *testing.T) {
			s := frozen(strings.Join(row.stacks, "\n\n"), "synctest bubble 3")
			if s.culprit != row.culprit || s.helper != row.helper {
				t.Errorf("culprit %q and helper %q, want %q and %q", s.culprit, s.helper, row.culprit, row.helper)
			}
			if strings.Contains(s.all, "other()") {
				t.Errorf("goroutines of others: %s", s.all)
			}
		})
	}
}

func TestWhenPatienceEnds(t *testing.T) {
	goes, alone, helped := still{}, still{culprit: "a"}, still{culprit: "a", helper: "h"}
	times := func(n int, s still) (list []still) {
		for range n {
			list = append(list, s)
		}
		return list
	}
	for _, row := range []struct {
		rule        string
		looks       [][]still
		warns, ends int // the look that does, counted from 1; 0: none
	}{
		{"it goes on", [][]still{times(100, goes)}, 0, 0},
		{"nobody can end the wait", [][]still{times(100, alone)}, 0, looks + 1},
		{"somebody may end it", [][]still{times(100, helped)}, looks + 1, 0},
		{"nobody can any more", [][]still{times(50, helped), times(50, alone)}, looks + 1, 50 + looks},
		{"it moves now and then", [][]still{times(looks, alone), times(1, goes), times(looks, alone)}, 0, 0},
		{"others wait", [][]still{times(looks, alone), times(looks, still{culprit: "b"})}, 0, 0},
		{"somebody works now and then", [][]still{times(looks, alone), times(1, helped), times(looks-1, alone)}, looks + 1, 0},
	} {
		t.Run(row.rule, func(t *testing.T) {
			var p patience
			warns, ends, n := 0, 0, 0
			for _, list := range row.looks {
				for _, s := range list {
					n++
					switch v := p.after(s); {
					case v == warn && warns > 0:
						t.Errorf("look %d warns again", n)
					case v == warn:
						warns = n
					case v == giveUp && ends == 0:
						ends = n
					}
				}
			}
			if warns != row.warns || ends != row.ends {
				t.Errorf("look %d warns and look %d ends, want %d and %d", warns, ends, row.warns, row.ends)
			}
		})
	}
}
