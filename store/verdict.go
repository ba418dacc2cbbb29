package store

import (
	"errors"
	"time"

	"github.com/rehop/rehop/internal/declared"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
)

// verdict decides on an entry after a try. failures is how often in a row
// messages to its address have failed. arrived says that the message is safe somewhere else.
func verdict(l Entry, r producer.Receipt, arrived bool, tries, failures int, now time.Time) result {
	v := result{number: l.Number, state: l.State}
	if arrived {
		v.done = true
		return v
	}
	err := r.Err
	if err == nil {
		err = errors.New("the Publisher said nothing of it")
	}
	v.err = letter.Readable(err.Error(), letter.MaxError)
	v.unconfirmed = errors.Is(err, producer.ErrUnconfirmed) || r.MaybeDuplicate
	v.alone = errors.Is(err, producer.ErrRefused)
	switch {
	case errors.As(err, new(*resend.FaultyError)), errors.Is(err, declared.ErrUndeclared):
		v.tried, v.state = true, Parked
	case errors.Is(err, producer.ErrUnconfirmed):
		// One that ends the connection whenever it is sent does so once a minute.
		v.next = now.Add(pauseAfter(max(failures, l.Unconfirmed)+1, 100*time.Millisecond, time.Minute))
	case errors.Is(err, producer.ErrReturned), errors.Is(err, producer.ErrNacked), errors.Is(err, producer.ErrRefused):
		v.tried = true
		v.next = now.Add(pauseAfter(l.Tries+1, time.Second, 5*time.Minute))
		if l.Tries+1 >= tries {
			v.state, v.next = Parked, time.Time{}
		}
	default:
		v.next = now.Add(pauseAfter(failures+1, 100*time.Millisecond, 5*time.Second))
	}
	return v
}

// pauseAfter is the pause after so many failures in a row, doubled with each.
func pauseAfter(failures int, first, longest time.Duration) time.Duration {
	long := first
	for range failures - 1 {
		if long *= 2; long >= longest {
			return longest
		}
	}
	return min(long, longest)
}
