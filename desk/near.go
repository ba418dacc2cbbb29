package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// noQueueError is the error of a call that names a queue which does not exist. It wraps the
// broker's.
type noQueueError struct {
	err  error
	near []string // queues that may be meant, the likeliest first
}

func (e *noQueueError) Error() string {
	if len(e.near) == 0 {
		return e.err.Error()
	}
	return e.err.Error() + "; " + e.Advice()
}

func (e *noQueueError) Unwrap() error { return e.err }

// Advice asks for the queues that may be meant; empty if there are none.
func (e *noQueueError) Advice() string {
	if len(e.near) == 0 {
		return ""
	}
	quoted := make([]string, len(e.near))
	for i, name := range e.near {
		quoted[i] = strconv.Quote(name)
	}
	return fmt.Sprintf("did you mean %s?", strings.Join(quoted, " or "))
}

// nearLimit bounds the question which queues there are.
const nearLimit = 2 * time.Second

// missing returns err, with the queues that may be meant if err says that there is none of this
// name. The management API lists the queues. Without it the broker is asked for the dead-letter
// queue of a work queue of this name.
func missing(ctx context.Context, conn *connection.Conn, queue string, err error) error {
	var refused *amqp.Error
	if !errors.As(err, &refused) || refused.Code != amqp.NotFound {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nearLimit)
	defer cancel()
	infos, listed := infosOf(ctx, conn)
	if listed == nil {
		return &noQueueError{err, nearTo(queue, fold(infos, conn.Server().Version))}
	}
	letters := queue + deadLetterSuffix
	session, failed := conn.Session(ctx, connection.Consume)
	if failed != nil {
		return err
	}
	defer session.Close()
	if _, failed := depthOf(ctx, session, letters); failed != nil {
		return err
	}
	return &noQueueError{err, []string{letters}}
}

// maxNear bounds the queues that are named.
const maxNear = 3

// nearTo returns the queues whose names are near to a name that no queue has: first the
// dead-letter queues whose names begin with it, then those with a few other letters.
func nearTo(name string, queues []Queue) (near []string) {
	type candidate struct {
		name string
		far  int
	}
	var all []candidate
	lower := strings.ToLower(name)
	for _, q := range queues {
		other := strings.ToLower(q.Name)
		far, most := 0, min(2, len(name)/3)
		switch {
		case other == lower+deadLetterSuffix:
			far = -2
		case q.IsDeadLetters && strings.HasPrefix(other, lower):
			far = -1
		case len(other) > len(lower)+most || len(lower) > len(other)+most:
			continue
		default:
			if far = distance(lower, other); far > most {
				continue
			}
		}
		all = append(all, candidate{q.Name, far})
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return a.far - b.far })
	for _, c := range all[:min(len(all), maxNear)] {
		near = append(near, c.name)
	}
	return near
}

// distance returns how many letters have to be added, left out, changed or swapped with their
// neighbour to make one text of another.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
