package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
)

// bodySize of every message, in bytes. The first eight are its number.
const bodySize = 256

// sendHeader holds the number of the call of Publish, from the second one on.
const sendHeader = "send"

func newMessage(queue string, n int, send uint16) producer.Message {
	m := producer.Message{Key: queue, ID: strconv.Itoa(n), Body: make([]byte, bodySize)}
	binary.BigEndian.PutUint64(m.Body, uint64(n))
	if send > 1 {
		m.Headers = amqp.Table{sendHeader: int64(send)}
	}
	return m
}

// identify returns the number of a message and of the call of Publish that it
// came from.
func identify(id string, body []byte, headers amqp.Table) (n int, send uint16, err error) {
	n, err = strconv.Atoi(id)
	if err != nil || len(body) != bodySize || binary.BigEndian.Uint64(body) != uint64(n) {
		return 0, 0, fmt.Errorf("a message with id %q and %d bytes is none of ours, or was changed", id, len(body))
	}
	if of, ok := headers[sendHeader].(int64); ok {
		return n, uint16(of), nil
	}
	return n, 1, nil
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
