//go:build rehopsim

package sim

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/rehop/rehop/internal/yield"
)

const yieldsTakeTime = true

// Places that the code marks let others go first, by chance: a goroutine stops there
// for an instant, or for some milliseconds of the bubble.
func init() {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	yield.Set(func() {
		mu.Lock()
		n, d := random.IntN(64), time.Duration(random.IntN(20_000))*time.Microsecond
		mu.Unlock()
		switch {
		case n < 4:
			time.Sleep(d)
		case n < 12:
			runtime.Gosched()
		}
	})
}
