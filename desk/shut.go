package desk

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/topology"
)

// shut are queues that take no letters. The letters of one dead-letter queue may have failed in several queues, as those
// of shards and lanes do. If one of these queues is missing or full, the letters of the others are sent all the same.
type shut struct {
	queues map[string]error // why each takes none

	row   map[string]error // the queues that have refused the letters that failed last, one after the other
	other bool             // some of these letters failed for another reason
}

// failed notes a letter that was to go to a target and has failed.
func (s *shut) failed(to topology.Address, err error) {
	if to.Exchange != "" || !errors.Is(err, confirm.ErrReturned) && !errors.Is(err, confirm.ErrNacked) {
		s.other = true
		return
	}
	if s.row == nil {
		s.row = map[string]error{}
	}
	s.row[to.RoutingKey] = err
}

// served notes that a letter has not failed.
func (s *shut) served() { s.row, s.other = nil, false }

// shuts has no other letter sent to the queues that have refused so many letters, one after the other. It reports
// whether they are why these letters failed.
func (s *shut) shuts(failures int) bool {
	if s.other || len(s.row) == 0 {
		return false
	}
	if s.queues == nil {
		s.queues = map[string]error{}
	}
	for queue, err := range s.row {
		s.queues[queue] = fmt.Errorf("%w: queue %q, one of those that refused %s in a row: %w", ErrTarget, queue, count(failures, "letter"), err)
	}
	s.served()
	return true
}

// leaves reports whether a letter is not tried, because its target takes none.
func (s *shut) leaves(to topology.Address) bool {
	return to.Exchange == "" && s.queues[to.RoutingKey] != nil
}

// err returns why so many letters were not tried, nil if there is no such queue.
func (s *shut) err(untried int) error {
	var errs []error
	for _, queue := range slices.Sorted(maps.Keys(s.queues)) {
		errs = append(errs, s.queues[queue])
	}
	if untried > 0 {
		errs = append(errs, fmt.Errorf("desk: %s to such queues were not tried", count(untried, "letter")))
	}
	return errors.Join(errs...)
}
