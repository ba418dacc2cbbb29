package producer

import (
	"fmt"
	"sync"
)

// untold are the messages of PublishAsync without a function that are not known to be safe:
// Flush and Shutdown tell of them.
type untold struct {
	mu    sync.Mutex
	n     int
	first error
}

func (u *untold) note(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n++; u.n == 1 {
		u.first = err
	}
}

// tell returns an error about the messages since the last call, nil if there are none.
func (u *untold) tell() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, first := u.n, u.first
	u.n, u.first = 0, nil
	switch n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("producer: a message of PublishAsync is not known to be safe: %w", first)
	}
	return fmt.Errorf("producer: %d messages of PublishAsync are not known to be safe, the first one: %w", n, first)
}
