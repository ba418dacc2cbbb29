// Package resend is what all stores of letters have in common when they publish letters
// once more: where the message goes, what becomes of it, the pace, and the course of a
// replay.
package resend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// Publisher is what is needed of a [producer.Producer].
type Publisher interface {
	PublishAll(ctx context.Context, messages []producer.Message) ([]producer.Receipt, error)
}

type ofService struct{}

// OfService marks a ctx as that of a service, which publishes the messages of others. A
// span in it is not what led to a message.
func OfService(ctx context.Context) context.Context {
	return context.WithValue(ctx, ofService{}, true)
}

// IsOfService reports whether OfService has marked ctx.
func IsOfService(ctx context.Context) bool { return ctx.Value(ofService{}) != nil }

// Address is where a letter goes: that of a dead letter to the work queue that gave it
// up, by its name and no exchange, so that no other queue gets it again.
func Address(m producer.Message, queue string) topology.Address {
	if queue != "" {
		return topology.Address{RoutingKey: queue}
	}
	return topology.Address{Exchange: m.Exchange, RoutingKey: m.RoutingKey}
}

// Message is the message of a letter as it is published once more. A dead letter keeps
// the address that it was first published to as its Origin, for its handler to see.
func Message(m producer.Message, queue string) producer.Message {
	to, from := Address(m, queue), topology.Address{Exchange: m.Exchange, RoutingKey: m.RoutingKey}
	if queue != "" && m.Origin == (topology.Address{}) && from != to {
		m.Origin = from
	}
	m.Exchange, m.RoutingKey = to.Exchange, to.RoutingKey
	return m
}

// Doubted is the error of a letter that is not sent to where its headers say that it came
// from: see letter.Doubt. queue is the work queue that gave it up, "" for none.
func Doubted(m producer.Message, queue string) error {
	if doubt := letter.Doubt(m.Headers, queue); doubt != "" {
		return &DoubtError{doubt}
	}
	return nil
}

// DoubtError is a letter.Doubt as an error.
type DoubtError struct{ Doubt string }

func (e *DoubtError) Error() string { return e.Doubt + ": name a target" }

// Edited is the message of a letter as a person has changed it, or what is wrong with it then.
// to, if set, is where it goes instead; it is then first published there. A letter in doubt
// needs to, or another address by edit.
func Edited(m producer.Message, queue string, to *topology.Address, edit func(*producer.Message) error) (producer.Message, error) {
	doubt := Doubted(m, queue)
	if to != nil {
		doubt = nil
		m.Exchange, m.RoutingKey, m.Origin = to.Exchange, to.RoutingKey, topology.Address{}
	}
	before := topology.Address{Exchange: m.Exchange, RoutingKey: m.RoutingKey}
	if edit != nil {
		if err := edit(&m); err != nil {
			return m, err
		}
	}
	if doubt != nil && before == (topology.Address{Exchange: m.Exchange, RoutingKey: m.RoutingKey}) {
		return m, doubt
	}
	return m, m.Validate()
}

// IsRate reports whether r can be a number of messages per second; 0 stands for no bound.
// The least is a message in ten seconds: the entry whose turn it is waits in a lease.
func IsRate(r float64) bool { return r == 0 || r >= 0.001 && !math.IsInf(r, 1) }

// Validate returns all faults of the store.ReplayOptions of a replay.
func Validate(rate float64, limit int, canary time.Duration) error {
	var errs []error
	if !IsRate(rate) {
		errs = append(errs, fmt.Errorf("store: ReplayOptions.Rate is %v, want 0 for no bound, or at least 0.001", rate))
	}
	if limit < 0 {
		errs = append(errs, fmt.Errorf("store: ReplayOptions.Limit is %d, want 0 or more", limit))
	}
	if canary < 0 {
		errs = append(errs, fmt.Errorf("store: ReplayOptions.Canary is %v, want 0 or more", canary))
	}
	return errors.Join(errs...)
}

type numbersKey struct{}

// Numbered returns a ctx that tells a Publisher the numbers in their store of the letters
// whose messages it gets.
func Numbered(ctx context.Context, numbers []int64) context.Context {
	return context.WithValue(ctx, numbersKey{}, numbers)
}

// Numbers returns what Numbered was given; nil if nothing.
func Numbers(ctx context.Context) []int64 {
	numbers, _ := ctx.Value(numbersKey{}).([]int64)
	return numbers
}

// at returns a ctx for the messages at these places.
func at(ctx context.Context, places []int) context.Context {
	all := Numbers(ctx)
	if all == nil {
		return ctx
	}
	numbers := make([]int64, len(places))
	for i, place := range places {
		numbers[i] = all[place]
	}
	return Numbered(ctx, numbers)
}

// Sender publishes letters for a person. The broker closes the channel of a message that
// it refuses, with all others in flight on it: so a letter that it has refused before, and
// the first with each user id, go on channels of their own.
type Sender struct {
	Publisher Publisher
	trusted   map[string]bool // user ids that the broker has taken
}

// Drain is how long a Sender awaits answers after its ctx has ended.
const Drain = 10 * time.Second

// Publish returns a receipt for each message, as Publish does. refused reports whether
// the broker has refused a message before. If ctx ends, Publish begins to send nothing
// more, and awaits the answers to the messages on their way for up to Drain: their letters
// would be published twice by whoever goes on.
func (s *Sender) Publish(ctx context.Context, messages []producer.Message, refused func(i int) bool, failed func(error)) []producer.Receipt {
	receipts := make([]producer.Receipt, len(messages))
	draining, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(Drain, cancel) })()
	send := func(own func(context.Context) context.Context, places []int) {
		if len(places) == 0 {
			return
		}
		with := draining
		if ctx.Err() != nil {
			with = ctx
		}
		some := make([]producer.Message, len(places))
		for i, place := range places {
			some[i] = messages[place]
		}
		for i, receipt := range Publish(own(at(with, places)), s.Publisher, some, failed) {
			if receipts[places[i]] = receipt; receipt.Place == producer.PlaceQueue && some[i].UserID != "" {
				if s.trusted == nil {
					s.trusted = map[string]bool{}
				}
				s.trusted[some[i].UserID] = true
			}
		}
	}
	var alone, together []int
	for i, m := range messages {
		if refused(i) || m.UserID != "" && !s.trusted[m.UserID] {
			alone = append(alone, i)
		} else {
			together = append(together, i)
		}
	}
	send(confirm.Alone, alone)
	send(func(ctx context.Context) context.Context { return ctx }, together)
	return receipts
}

// ErrUntried is the Err of a receipt by which a Publisher leaves a letter as it is: it was not sent,
// and is not one that failed.
var ErrUntried = errors.New("the letter was not tried")

// FaultyError says that a message will never be sent as it is.
type FaultyError struct{ Err error }

func (e *FaultyError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *FaultyError) Unwrap() error { return e.Err }

// Publish returns a receipt for each message, also where some are faulty. failed is
// called with an error that concerns no message: the Publisher is closed.
func Publish(ctx context.Context, p Publisher, messages []producer.Message, failed func(error)) []producer.Receipt {
	receipts, err := p.PublishAll(ctx, messages)
	if len(receipts) == len(messages) {
		return receipts
	}
	receipts = make([]producer.Receipt, len(messages))
	var sound []producer.Message
	var places []int
	for i, m := range messages {
		receipts[i] = producer.Receipt{ID: m.ID, Err: err}
		if fault := m.Validate(); fault != nil {
			receipts[i].Err = &FaultyError{fault}
			continue
		}
		sound, places = append(sound, m), append(places, i)
	}
	switch {
	case len(sound) == len(messages):
		if err == nil {
			err = errors.New("the Publisher returned neither an error nor a receipt for each message")
		}
		failed(err)
	case len(sound) > 0:
		for i, r := range Publish(at(ctx, places), p, sound, failed) {
			receipts[places[i]] = r
		}
	}
	return receipts
}

// ErrOwn is for a Publisher that wants to store a letter where it comes from.
var ErrOwn = rehop.WithClass(errors.New("the Publisher of the Forwarder or Replay has the Store itself in its Fallback: give it a Producer without one; a letter that cannot be published stays where it is"), rehop.ClassBug)

type originKey struct{}

// origin is the store that letters come from, and those of them that another store has
// taken.
type origin struct {
	store any
	mu    sync.Mutex
	taken map[string]bool // by message id
}

func originOf(ctx context.Context) *origin {
	o, _ := ctx.Value(originKey{}).(*origin)
	return o
}

// From marks a ctx as that of letters of a store, which is any comparable value.
func From(ctx context.Context, store any) context.Context {
	return context.WithValue(ctx, originKey{}, &origin{store: store, taken: map[string]bool{}})
}

// IsFrom reports whether From has marked ctx with this store.
func IsFrom(ctx context.Context, store any) bool {
	o := originOf(ctx)
	return o != nil && o.store == store
}

// Took notes that a store has taken a message that may come from another one.
func Took(ctx context.Context, store any, id string) {
	if o := originOf(ctx); o != nil && o.store != store {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.taken[id] = true
	}
}

// Arrived reports whether a message is safe somewhere else than in the store of this name,
// which it comes from. Another store may have the name too; it tells by Took. A store that
// has its own message again, by a sink that passes on no ctx, is no other place.
func Arrived(ctx context.Context, r producer.Receipt, own string) bool {
	if r.Place != producer.PlaceFallback || r.Sink != own {
		return r.Place != ""
	}
	o := originOf(ctx)
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken[r.ID]
}
