package model

import (
	"fmt"
	"unicode/utf8"
)

// Codes of replies.
const (
	NoRoute            = 312
	AccessRefused      = 403
	NotFound           = 404
	ResourceLocked     = 405
	PreconditionFailed = 406
	FrameError         = 501
	SyntaxError        = 502
	CommandInvalid     = 503
	ChannelError       = 504
	UnexpectedFrame    = 505
	NotAllowed         = 530
	NotImplemented     = 540
	InternalError      = 541
	ConnectionForced   = 320
)

var codeNames = map[uint16]string{
	NoRoute:            "NO_ROUTE",
	ConnectionForced:   "CONNECTION_FORCED",
	AccessRefused:      "ACCESS_REFUSED",
	NotFound:           "NOT_FOUND",
	ResourceLocked:     "RESOURCE_LOCKED",
	PreconditionFailed: "PRECONDITION_FAILED",
	FrameError:         "FRAME_ERROR",
	SyntaxError:        "SYNTAX_ERROR",
	CommandInvalid:     "COMMAND_INVALID",
	ChannelError:       "CHANNEL_ERROR",
	UnexpectedFrame:    "UNEXPECTED_FRAME",
	NotAllowed:         "NOT_ALLOWED",
	NotImplemented:     "NOT_IMPLEMENTED",
	InternalError:      "INTERNAL_ERROR",
}

// Error is an exception of the protocol: it closes the channel, or the
// connection.
type Error struct {
	Code uint16
	Text string
}

// Fail returns an exception.
func Fail(code uint16, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Reply()) }

// Reply is the text as a broker sends it.
func (e *Error) Reply() string {
	if e.Text == "" {
		return codeNames[e.Code]
	}
	return codeNames[e.Code] + " - " + e.Text
}

// latin1 reads bytes that are no UTF-8, as brokers since 4.0 show them.
func (b *Broker) latin1(s string) string {
	if utf8.ValidString(s) || !b.atLeast(4, 0) {
		return s
	}
	var runes []rune
	for _, c := range []byte(s) {
		runes = append(runes, rune(c))
	}
	return string(runes)
}

// Connection tells whether the exception closes the connection.
func (e *Error) Connection() bool {
	switch e.Code {
	case NoRoute, AccessRefused, NotFound, ResourceLocked, PreconditionFailed:
		return false
	}
	return true
}
