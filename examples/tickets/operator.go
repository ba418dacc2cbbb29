package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"time"
)

// operator stands for a mobile network that sends SMS: slow, often out of
// order, sometimes for good. A real one would not know the attempt; this one
// derives its answers from it and from the order, so that every run ends alike.
type operator struct {
	minute time.Duration // how long a minute takes in this run
}

// errBadNumber is the answer for a number that no attempt can reach.
var errBadNumber = errors.New("not a phone number")

var errNoNetwork = errors.New("no network at the receiver")

// busyError asks to leave the operator alone for a while.
type busyError struct{ comeBackIn time.Duration }

func (e *busyError) Error() string { return fmt.Sprintf("busy, come back in %v", e.comeBackIn) }

// send sends a text to the passenger of an order, or says why it could not.
func (o operator) send(ctx context.Context, order Order, _ string, attempt int) error {
	select {
	case <-time.After(slowness(order.ID)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return o.answer(order, attempt)
}

// mood is how the operator treats an order.
type mood struct {
	failures int  // how many attempts fail before one succeeds
	busy     bool // the first attempt is asked to come back later
}

const forEver = 1000

// moods and how many of a hundred orders meet each.
var moods = []struct {
	percent int
	mood    mood
}{
	{64, mood{}},
	{12, mood{failures: 1}},
	{8, mood{failures: 2}},
	{5, mood{failures: 3}},
	{4, mood{failures: 4}},
	{3, mood{failures: forEver}},
	{4, mood{failures: 1, busy: true}},
}

func moodFor(id string) mood {
	n := int(hash(id) % 100)
	for _, m := range moods {
		if n < m.percent {
			return m.mood
		}
		n -= m.percent
	}
	return mood{}
}

var phoneNumber = regexp.MustCompile(`^\+[1-9]( ?[0-9]){9,14}$`)

// answer returns the operator's answer to an attempt; nil: the SMS was sent.
func (o operator) answer(order Order, attempt int) error {
	if !phoneNumber.MatchString(order.Phone) {
		return fmt.Errorf("%q: %w", order.Phone, errBadNumber)
	}
	m := moodFor(order.ID)
	switch {
	case m.busy && attempt == 1:
		return &busyError{comeBackIn: 3 * o.minute}
	case attempt <= m.failures:
		return errNoNetwork
	}
	return nil
}

// slowness is 10 to 40 ms.
func slowness(id string) time.Duration {
	return time.Duration(10+hash(id)%31) * time.Millisecond
}

func hash(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // documented never to fail
	return h.Sum32()
}
