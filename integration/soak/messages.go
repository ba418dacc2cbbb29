package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
)

// bodySize of every message, in bytes. The first eight are its number.
const bodySize = 256

func newMessage(queue, id string, n int) producer.Message {
	m := producer.Message{RoutingKey: queue, ID: id, Body: make([]byte, bodySize)}
	binary.BigEndian.PutUint64(m.Body, uint64(n))
	return m
}

// unchanged returns an error unless a message is one that was published, with
// the body it had.
func unchanged(id string, n int, body []byte) error {
	if n == 0 || len(body) != bodySize || binary.BigEndian.Uint64(body) != uint64(n) {
		return fmt.Errorf("a message with id %q and %d bytes is none of ours, or was changed", id, len(body))
	}
	return nil
}

var (
	errOnce  = errors.New("fails once, on purpose")
	errEver  = errors.New("fails for ever, on purpose")
	errNever = errors.New("will never work, on purpose")
)

// outcome is what the handler returns for an attempt at a message: of each
// thousand ten fail once, one fails until no attempt is left, and two are
// dead-lettered at once.
func outcome(n, attempt int) error {
	switch n %= 1000; {
	case n == 999:
		return errEver
	case n == 333 || n == 666:
		return consumer.DeadLetter(errNever)
	case n%100 == 50 && attempt == 1:
		return errOnce
	}
	return nil
}
