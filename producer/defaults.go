package producer

import (
	"errors"
	"strings"
	"time"
)

// Defaults are the properties of messages that have none of their own.
type Defaults struct {
	ContentType string
	AppID       string

	// Expiration of messages without a Delay, see Message.Expiration. Zero: never.
	Expiration time.Duration
}

// complete sets the properties that the message does not have.
func (d Defaults) complete(m *Message) {
	if m.ContentType == "" {
		m.ContentType = d.ContentType
	}
	if m.AppID == "" {
		m.AppID = d.AppID
	}
	if m.Expiration == 0 && m.Delay == 0 {
		m.Expiration = d.Expiration
	}
}

// validate returns the faults that a message with these defaults would have.
func (d Defaults) validate() error {
	m := Message{RoutingKey: "any"}
	d.complete(&m)
	if err := m.Validate(); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "producer: Message.", "producer: Config.Defaults."))
	}
	return nil
}
