package errortype_test

import (
	"errors"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/errortype"
)

type typedNil struct{}

func (*typedNil) Error() string   { return "" }
func (*typedNil) Unwrap() []error { return nil }

type typed string

func (typed) Error() string       { return "out of paper" }
func (t typed) ErrorType() string { return string(t) }

type broken struct{ name *string }

func (broken) Error() string       { return "out of paper" }
func (b broken) ErrorType() string { return *b.name }

func TestTheTypeIsWhatTheErrorSaysOrTheInnermost(t *testing.T) {
	inner := &amqp.Error{}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{inner, "*amqp091.Error"},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", inner)), "*amqp091.Error"},
		{consumer.DeadLetter(inner), "*amqp091.Error"},
		{consumer.Hold(nil), "*errors.errorString"},
		{errors.Join(nil, inner, errors.New("")), "*amqp091.Error"},
		{&typedNil{}, "*errortype_test.typedNil"},
		{consumer.DeadLetter(fmt.Errorf("printing: %w", typed("paper"))), "paper"},
		{fmt.Errorf("printing: %w", typed("")), "errortype_test.typed"},
		{broken{}, "errortype_test.broken"},
	} {
		if got := errortype.Of(tt.err); got != tt.want {
			t.Errorf("Of(%#v) is %q, want %q", tt.err, got, tt.want)
		}
	}
}

type unwrapPanics struct{}

func (unwrapPanics) Error() string { return "x" }
func (unwrapPanics) Unwrap() error { panic("no") }

// The walk down the chain is the user's code, too.
func TestAnErrorWhoseUnwrapPanicsHasItsType(t *testing.T) {
	if got := errortype.Of(fmt.Errorf("w: %w", unwrapPanics{})); got != "errortype_test.unwrapPanics" {
		t.Errorf("%q, want its type", got)
	}
}
