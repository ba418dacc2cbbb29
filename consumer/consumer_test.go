package consumer

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/topology"
)

func TestNewNamesEveryFault(t *testing.T) {
	_, err := New(nil, nil, nil, Config{Concurrency: 10_001, Prefetch: -1, Priority: -1000, HandlerTimeout: -1, DrainTimeout: -1, CopyTimeout: -1})
	for _, want := range []string{"conn is nil", "handler is nil", "source is nil", "Config.Concurrency is 10001, want 1 to 10000",
		"Config.Prefetch is -1", "Config.Priority is -1000, want -999 to 999", "HandlerTimeout", "DrainTimeout", "CopyTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want also %q", err, want)
		}
	}
	if _, err := New(nil, topology.Route{}, nil, Config{}); err == nil || !strings.Contains(err.Error(), "Route.Queue is empty") {
		t.Errorf("New with an empty Route: %v", err)
	}
	if rehop.ClassOf(err) != rehop.ClassBug {
		t.Errorf("it is %v, want a bug", rehop.ClassOf(err))
	}
}

func TestClassOfErrors(t *testing.T) {
	refused := func(code int) error { return &amqp.Error{Code: code, Server: true, Recover: true} }
	for _, tt := range []struct {
		err  error
		want rehop.Class
	}{
		{ask.Refused("orders", refused(amqp.NotFound)), rehop.ClassConfiguration},
		{ask.Refused("orders", refused(amqp.AccessRefused)), rehop.ClassConfiguration},
		{ask.Refused("orders", connection.ErrSessionLost), rehop.ClassTransient},
		{intake.ErrUnanswered, rehop.ClassTransient},
		{ErrStopped, rehop.ClassTransient},
		{ErrHandlerTimeout, rehop.ClassTransient},
		{ErrConsumerTimeout, rehop.ClassTransient},
		{work.ErrSessionOver, rehop.ClassTransient},
		{&PanicError{}, rehop.ClassBug},
		{errGoexit, rehop.ClassBug},
		{&unreadableError{}, rehop.ClassBug},
		{nil, rehop.ClassUnknown},
	} {
		if got := rehop.ClassOf(tt.err); got != tt.want {
			t.Errorf("ClassOf(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
	if ask.Refused("orders", nil) != nil {
		t.Error("no error becomes one")
	}
}

func TestWhereThePrefetchFollowsTheHandlers(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		cfg    Config
		source topology.Source
		want   intake.Prefetch
	}{
		{"a work queue", Config{Concurrency: 4}, topology.WorkQueue{Name: "q"}, intake.Prefetch{Base: 4}},
		{"a dead-letter queue", Config{Concurrency: 4}, topology.DeadLetterQueue{Name: "q"}, intake.Prefetch{Base: 4}},
		{"a work queue with priorities", Config{Concurrency: 4}, topology.WorkQueue{Name: "q", NativePriority: true}, intake.Prefetch{Base: 4, Fixed: true}},
		{"a work queue that others declared", Config{Concurrency: 4}, topology.WorkQueue{Name: "q", Existing: true}, intake.Prefetch{Base: 4, Fixed: true}},
		{"a queue that others declared", Config{Concurrency: 4}, topology.Route{Queue: "q"}, intake.Prefetch{Base: 4, Fixed: true}},
		{"keys in order", Config{Concurrency: 4, KeyLimit: 1}, topology.WorkQueue{Name: "q"}, intake.Prefetch{Base: 54, Fixed: true}},
		{"shares of keys", Config{Concurrency: 4, KeyLimit: 2}, topology.WorkQueue{Name: "q"}, intake.Prefetch{Base: 54}},
		{"shares of keys, with priorities", Config{Concurrency: 4, KeyLimit: 2}, topology.WorkQueue{Name: "q", NativePriority: true}, intake.Prefetch{Base: 54, Fixed: true}},
		{"as the user says", Config{Concurrency: 4, Prefetch: 7}, topology.WorkQueue{Name: "q"}, intake.Prefetch{Base: 7, Fixed: true}},
	} {
		if got := prefetchOf(settings{Config: tt.cfg}, routeOf(tt.source), false); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.rule, got, tt.want)
		}
	}
}
