package store

import (
	"context"
	"errors"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
)

// publish publishes the messages of letters as they are sent, and returns a
// receipt for each. failed is called with an error that concerns no message.
func (s *Store) publish(ctx context.Context, p Publisher, letters []Letter, failed func(error)) []producer.Receipt {
	messages := make([]producer.Message, len(letters))
	for i, l := range letters {
		messages[i] = l.Message
		messages[i].Replays++
		messages[i].Delay = l.delayLeft(s.now())
	}
	receipts, err := p.PublishAll(ctx, messages)
	if len(receipts) == len(letters) {
		return receipts
	}
	// Nothing was sent: a message is faulty, or the Publisher closed.
	receipts = make([]producer.Receipt, len(letters))
	faulty := 0
	for i, m := range messages {
		receipts[i].Err = err
		if fault := m.Validate(); fault != nil {
			receipts[i].Err = faultyError{fault}
			faulty++
		}
	}
	switch {
	case faulty == 0:
		failed(err)
	case faulty < len(letters):
		var sound []Letter
		var places []int
		for i, r := range receipts {
			if !errors.As(r.Err, new(faultyError)) {
				sound, places = append(sound, letters[i]), append(places, i)
			}
		}
		for i, r := range s.publish(ctx, p, sound, failed) {
			receipts[places[i]] = r
		}
	}
	return receipts
}

// faultyError says that a message will never be sent.
type faultyError struct{ error }

// Class returns connection.Bug.
func (faultyError) Class() connection.Class { return connection.Bug }

// verdict says what becomes of a letter after a try. own is the name of the
// store: a Publisher whose fallback is the letter's own store has moved nothing.
func verdict(l Letter, r producer.Receipt, own string, tries, failures int, now time.Time) ending {
	e := ending{number: l.Number, state: l.State}
	if r.Place == producer.PlaceQueue || r.Place == producer.PlaceFallback && r.Sink != own {
		e.done = true
		return e
	}
	err := r.Err
	if err == nil {
		err = errors.New("the Publisher said nothing of it")
	}
	e.err = letter.Readable(err.Error(), letter.MaxError)
	e.unconfirmed = errors.Is(err, producer.ErrUnconfirmed) || r.MaybeDuplicate
	switch {
	case errors.As(err, new(faultyError)):
		e.tried, e.state = true, Parked
	case errors.Is(err, producer.ErrUnconfirmed):
		// One that ends the connection whenever it is sent does so once a minute.
		e.next = now.Add(pause(max(failures, l.Unconfirmed)+1, 100*time.Millisecond, time.Minute))
	case errors.Is(err, producer.ErrReturned), errors.Is(err, producer.ErrNacked), errors.Is(err, producer.ErrRefused):
		e.tried = true
		e.next = now.Add(pause(l.Tries+1, time.Second, 5*time.Minute))
		if l.Tries+1 >= tries {
			e.state, e.next = Parked, time.Time{}
		}
	default:
		e.next = now.Add(pause(failures+1, 100*time.Millisecond, 5*time.Second))
	}
	return e
}

// pause after so many failures in a row, doubled with each.
func pause(failures int, first, longest time.Duration) time.Duration {
	long := first
	for range failures - 1 {
		if long *= 2; long >= longest {
			return longest
		}
	}
	return min(long, longest)
}

// pace keeps to a number of messages per second.
type pace struct {
	rate int
	next time.Time
}

// maxLag is how far behind its plan a pace may be and catch up.
const maxLag = 250 * time.Millisecond

// wait until n more messages may leave.
func (p *pace) wait(ctx context.Context, n int) {
	if p.rate == 0 {
		return
	}
	now := time.Now()
	switch earliest := now.Add(-maxLag); {
	case p.next.IsZero():
		p.next = now
	case p.next.Before(earliest):
		p.next = earliest
	}
	if p.next.After(now) {
		timer := time.NewTimer(p.next.Sub(now))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
	p.next = p.next.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
}
