package desk

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// holder is the process that works on a redrive, as it has written itself into the lock. It has the lock
// from before it waits for the broker, and is in the journal after that.
type holder struct {
	Who   string    `json:"who,omitzero"`
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// sign writes this process into a lock that it has.
func sign(name string, by By) error {
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	text, err := json.Marshal(holder{by.Who, os.Getpid(), host, time.Now().UTC()})
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// heldError is the error of somebody who wants to work on a redrive that another process has.
type heldError struct {
	id  string
	err error
	by  holder // zero: it has not said who it is
}

func heldBy(id, name string, err error) error {
	e := &heldError{id: id, err: err}
	if text, unread := os.ReadFile(name); unread == nil && json.Unmarshal(text, &e.by) != nil {
		e.by = holder{}
	}
	return e
}

func (e *heldError) Error() string {
	if e.by.Since.IsZero() {
		return fmt.Sprintf("desk: redrive %s: %v; %s", e.id, e.err, e.Advice())
	}
	return fmt.Sprintf("desk: redrive %s: %v: %s; %s", e.id, e.err, e.Holder(), e.Advice())
}

func (e *heldError) Unwrap() error { return e.err }

// Holder says who works on the redrive, in which process and since when; empty: nobody knows.
func (e *heldError) Holder() string {
	if e.by.Since.IsZero() {
		return ""
	}
	return fmt.Sprintf("%.300s, in process %d on %.300s, since %s UTC", cmp.Or(e.by.Who, "somebody"), e.by.PID, e.by.Host, e.by.Since.UTC().Format(time.DateTime))
}

// Advice says what can be done.
func (e *heldError) Advice() string {
	return "watch it there, or stop it and resume it when it has ended"
}
