package otel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rehop/rehop/consumer"
)

// A run of a handler of batches has a span with links to those of its messages, and they
// have one to it. Each message stays in its own trace.
func TestARunWithABatchIsLinkedToItsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		var inHandler []trace.SpanContext
		worker, err := consumer.NewBatch(s.conn, orders, func(ctx context.Context, batch []*consumer.Delivery) error {
			inHandler = append(inHandler, trace.SpanContextFromContext(ctx))
			if len(inHandler) == 1 {
				return errPaper // the run with all of them
			}
			return nil
		}, consumer.Batch{Size: 2, Linger: time.Second}, consumer.Config{Traces: []consumer.Trace{s.telemetry.Consumer()}})
		check(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(ctx) }()
		time.Sleep(time.Second)
		traces := []string{s.publish(order()), s.publish(order())}
		time.Sleep(time.Minute)
		cancel()
		check(t, <-ended)

		spans := map[trace.SpanID]sdktrace.ReadOnlySpan{}
		for _, span := range s.spans.Ended() {
			spans[span.SpanContext().SpanID()] = span
		}
		if len(inHandler) != 3 {
			t.Fatalf("%d runs of the handler, want 3: with both messages, and with each", len(inHandler))
		}
		for i, run := range inHandler {
			span := spans[run.SpanID()]
			if span == nil {
				t.Fatalf("the span of run %d has not ended", i)
			}
			messages := 2
			if i > 0 {
				messages = 1
			}
			if links := span.Links(); len(links) != messages || value(span, "messaging.batch.message_count") != string(rune('0'+messages)) {
				t.Errorf("run %d: %d links, %s messages, want %d", i, len(links), value(span, "messaging.batch.message_count"), messages)
			}
			for _, link := range span.Links() {
				message := spans[link.SpanContext.SpanID()]
				if message == nil || !linkedTo(message, run) || message.SpanContext().TraceID() == run.TraceID() {
					t.Errorf("run %d: the span of a message is not linked to it, or not in a trace of its own", i)
				}
			}
			if failed := span.Status().Description == errPaper.Error(); failed != (i == 0) {
				t.Errorf("run %d: status %+v", i, span.Status())
			}
		}
		for _, trace := range traces {
			if got := namesOf(s.story(trace)); len(got) != 3 || got[2] != "process orders" {
				t.Errorf("the trace of a message is %q, want its request, its publish and one process", got)
			}
		}
		if got := s.collect().sum("rehop.consumer.settled"); got != 2 {
			t.Errorf("%v messages are counted as settled, want 2", got)
		}
	})
}

func linkedTo(span sdktrace.ReadOnlySpan, to trace.SpanContext) bool {
	for _, link := range span.Links() {
		if link.SpanContext.SpanID() == to.SpanID() {
			return true
		}
	}
	return false
}
