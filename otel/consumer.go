package otel

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/errortype"
	"github.com/rehop/rehop/otel/internal/catalog"
	"github.com/rehop/rehop/topology"
)

const process = "process"

// consumers are the metrics of all consumers of a program.
type consumers struct {
	queues     names[*queue]
	errorTypes errorTypes

	duration, attempts, age, lateness distribution

	mu                                                sync.RWMutex // held for reading by who adds to a series that is there
	consumed, settled, inHand, held, copies, prefetch family
}

// queue is known by name. A message that is done in its first run looks nothing else up.
type queue struct {
	spanOf
	consumed, inHand, done *series
	doneTook               labels // of duration
	attempts, age          labels
}

func (c *consumers) init(i *instruments) {
	c.errorTypes.init()
	c.duration.init(i, catalog.ProcessDuration)
	c.attempts.init(i, catalog.Attempts)
	c.age.init(i, catalog.Age)
	c.lateness.init(i, catalog.Lateness)
	c.consumed, c.settled, c.inHand = familyOf(catalog.Consumed), familyOf(catalog.Settled), familyOf(catalog.InHand)
	c.held, c.copies, c.prefetch = familyOf(catalog.Held), familyOf(catalog.CopiesUnconfirmed), familyOf(catalog.Prefetch)
	c.queues.make = func(label string) *queue {
		c.mu.Lock()
		defer c.mu.Unlock()
		return &queue{
			spanOf:   newSpanOf(process, label, trace.SpanKindConsumer, semconv.MessagingOperationTypeProcess),
			consumed: c.consumed.at(process, label), inHand: c.inHand.at(label), done: c.settled.at(label, string(consumer.DispositionDone)),
			doneTook: c.duration.of(process, label, string(consumer.ActionDone)),
			attempts: c.attempts.of(label), age: c.age.of(label),
		}
	}
	i.observe(func(o metric.Observer) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.consumed.read(o)
		c.settled.read(o)
		c.inHand.read(o)
		c.held.read(o)
		c.copies.read(o)
		c.prefetch.read(o)
	}, &c.consumed, &c.settled, &c.inHand, &c.held, &c.copies, &c.prefetch)
}

// Consumer returns the hooks of one consumer, for consumer.Config.Traces.
//
// Each delivery gets a span that ends when the handler has returned, in the trace of
// the message. If the message is not simply done then, a second span lasts until it is
// settled, which is when its copy is confirmed. The handler's ctx carries the first
// one.
//
// A run of a consumer.BatchHandler has a span of its own, which the handler's ctx
// carries. It has a link to the span of each message, and the span of each message has a
// link to it.
func (t *Telemetry) Consumer() consumer.Trace {
	var mu sync.Mutex
	prefetch := map[string]int{}
	return consumer.Trace{
		Fetching: func(f consumer.Fetching) {
			mu.Lock()
			change := f.Prefetch - prefetch[f.Queue]
			prefetch[f.Queue] = f.Prefetch
			mu.Unlock()
			t.consumers.fetching(f.Queue, change)
		},
		Received:     t.received,
		Batched:      t.batched,
		BatchHandled: t.batchHandled,
		Handled:      t.handled,
		Copied:       t.copied,
		Confirmed:    t.confirmed,
		Settled:      t.settled,
		Carried:      t.carried,
	}
}

func (c *consumers) fetching(queue string, change int) {
	label := c.queues.of(queue).label
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prefetch.at(label).n += int64(change)
}

func (t *Telemetry) received(ctx context.Context, d *consumer.Delivery) context.Context {
	c := &t.consumers
	q := c.queues.of(d.Queue)
	c.mu.RLock()
	q.consumed.add(1)
	q.inHand.add(1)
	c.mu.RUnlock()
	if d.Attempt == 1 && !d.Timestamp.IsZero() {
		c.age.histogram.Record(ctx, max(0, time.Since(d.Timestamp).Seconds()), q.age...)
	}
	if due := d.History.Due; !due.IsZero() && d.History.NotBefore.IsZero() {
		c.lateness.record(ctx, max(0, time.Since(due).Seconds()), q.label)
	}

	ctx, span := t.tracer.start(t.extract(ctx, d.Headers), q.span, q.start...)
	if span.IsRecording() {
		span.SetAttributes(append(about{d.Exchange, d.RoutingKey, d.Queue, d.ID, d.CorrelationID, len(d.Body), d.History.Replays}.attributes(),
			attribute.Int("rehop.attempt", d.Attempt),
			attribute.Bool("rehop.attempt.last", d.LastAttempt),
			attribute.Bool("rehop.redelivered", d.Redelivered),
		)...)
	}
	return &kept[attempt]{ctx, t, attempt{queue: q, span: span}}
}

func (t *Telemetry) batched(ctx context.Context, b consumer.Batched) context.Context {
	known := t.consumers.queues.of(b.Deliveries[0].Queue)
	spans := make([]trace.Span, len(b.Contexts))
	links := make([]trace.Link, len(b.Contexts))
	for i, ctx := range b.Contexts {
		spans[i] = trace.SpanFromContext(ctx)
		if a := keptIn[attempt](ctx, t); a != nil {
			spans[i] = a.span
		}
		links[i] = trace.Link{SpanContext: spans[i].SpanContext()}
	}
	options := append(slices.Clone(known.start), trace.WithLinks(links...), trace.WithAttributes(semconv.MessagingBatchMessageCount(len(b.Deliveries))))
	ctx, span := t.tracer.start(ctx, known.span, options...)
	for _, of := range spans {
		of.AddLink(trace.Link{SpanContext: span.SpanContext()})
	}
	return context.WithValue(ctx, batchOf{t}, span)
}

type batchOf struct{ *Telemetry }

func (t *Telemetry) batchHandled(ctx context.Context, b consumer.BatchHandled) {
	span, ok := ctx.Value(batchOf{t}).(trace.Span)
	if !ok {
		return // a later hook has lost it
	}
	if err := failureOf(b); err != nil && span.IsRecording() {
		span.SetAttributes(semconv.ErrorTypeKey.String(t.consumers.errorTypes.bounded(errortype.Of(err))))
		recordError(span, err)
		span.SetStatus(codes.Error, text(err))
	}
	span.End()
}

// failureOf returns the error of a run with a batch: the one that the handler returned, or
// else one that says how many messages have an error of their own, and wraps the first.
func failureOf(b consumer.BatchHandled) error {
	if b.Err != nil {
		return b.Err
	}
	var first error
	failed := 0
	for _, d := range b.Deliveries {
		if err := d.Err(); err != nil {
			if failed++; failed == 1 {
				first = err
			}
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("%d in a batch of %d: %w", failed, len(b.Deliveries), first)
}

func (t *Telemetry) handled(ctx context.Context, h consumer.Handled) {
	c, d, err, took := &t.consumers, h.Delivery, h.Err, h.Took
	a := keptIn[attempt](ctx, t)
	if err == nil && a != nil && !a.held {
		c.duration.histogram.Record(ctx, took.Seconds(), a.queue.doneTook...)
		a.returned(nil, "")
		return
	}
	action := consumer.OutcomeOf(err).Action
	failed := c.errorTypes.bounded(errortype.Of(err))
	queue := c.queues.of(d.Queue).label
	c.duration.record(ctx, took.Seconds(), process, queue, string(action), failed)
	if a == nil {
		return
	}
	c.mu.Lock()
	a.letGo(c)
	a.returned(err, failed)
	held := action == consumer.ActionHold || action == consumer.ActionHoldFor
	if held {
		a.held = true
		c.held.at(queue, failed).n++
	}
	c.mu.Unlock()
	if held && a.span.IsRecording() {
		a.span.AddEvent("held", trace.WithAttributes(semconv.ErrorTypeKey.String(failed), attribute.String("rehop.error", text(err))))
	}
}

func (t *Telemetry) copied(ctx context.Context, c consumer.Copied) {
	if a := keptIn[attempt](ctx, t); a != nil {
		t.consumers.mu.Lock()
		defer t.consumers.mu.Unlock()
		a.to = c.To
		if !a.copying {
			a.copying = true
			t.consumers.copies.at(a.queue.label).n++
		}
	}
}

func (t *Telemetry) confirmed(ctx context.Context, _ consumer.Copied) {
	if a := keptIn[attempt](ctx, t); a != nil {
		t.consumers.mu.Lock()
		defer t.consumers.mu.Unlock()
		a.arrived(&t.consumers)
	}
}

func (t *Telemetry) settled(ctx context.Context, s consumer.Settled) {
	c, d := &t.consumers, s.Delivery
	q := c.queues.of(d.Queue)
	a := keptIn[attempt](ctx, t)
	failed := ""
	if a != nil && s.Disposition == consumer.DispositionDeadLetter {
		failed = a.errorType
	}
	done := s.Disposition == consumer.DispositionDone
	if done && (a == nil || !a.held && !a.copying) {
		c.mu.RLock()
		q.inHand.add(-1)
		q.done.add(1)
		c.mu.RUnlock()
	} else {
		c.mu.Lock()
		q.inHand.n--
		c.settled.at(q.label, string(s.Disposition), string(s.Cause), failed).n++
		if a != nil {
			a.letGo(c)
			a.arrived(c)
		}
		c.mu.Unlock()
	}
	if a == nil {
		return
	}
	if done && a.err == nil {
		c.attempts.histogram.Record(ctx, float64(d.Attempt), q.attempts...)
	}
	if a.span.IsRecording() {
		a.end(ctx, t, s.Settlement)
	}
}

func (t *Telemetry) carried(m consumer.Carried) {
	t.consumers.lateness.record(context.Background(), max(0, m.Late.Seconds()), t.consumers.queues.of(m.Queue).label)
}

// attempt is one delivery. Its hooks run one after the other, and the consumers' lock
// guards what is counted.
type attempt struct {
	queue *queue
	span  trace.Span

	ended     time.Time // the handler, last; of a span that is recorded
	err       error
	errorType string
	held      bool
	copying   bool
	to        topology.Address
}

// returned notes what the handler has returned.
func (a *attempt) returned(err error, errorType string) {
	a.err, a.errorType = err, errorType
	if a.span.IsRecording() {
		a.ended = time.Now()
	}
}

// letGo ends a hold.
func (a *attempt) letGo(c *consumers) {
	if a.held {
		a.held = false
		c.held.at(a.queue.label, a.errorType).n--
	}
}

// arrived ends the wait for a confirm.
func (a *attempt) arrived(c *consumers) {
	if a.copying {
		a.copying = false
		c.copies.at(a.queue.label).n--
	}
}

// end ends the span of the attempt at the time when the handler returned, and makes
// the one of the settlement.
func (a *attempt) end(ctx context.Context, t *Telemetry, s consumer.Settlement) {
	disposition := string(s.Disposition)
	attributes := append(make([]attribute.KeyValue, 0, 10), attribute.String(catalog.Disposition, disposition))
	if s.Cause != "" {
		attributes = append(attributes, attribute.String(catalog.Cause, string(s.Cause)))
	}
	if s.WaitNumber > 0 {
		attributes = append(attributes, attribute.Int("rehop.wait.number", s.WaitNumber))
	}
	if s.Wait > 0 {
		attributes = append(attributes, attribute.Float64("rehop.wait", s.Wait.Seconds()))
	}
	a.span.SetAttributes(attributes...)
	if a.err != nil {
		a.span.SetAttributes(semconv.ErrorTypeKey.String(a.errorType))
		recordError(a.span, a.err)
		if consumer.OutcomeOf(a.err).Action != consumer.ActionDiscard {
			a.span.SetStatus(codes.Error, text(a.err))
		}
	}
	if a.ended.IsZero() { // the handler was not called
		a.ended = time.Now()
	}
	a.span.End(trace.WithTimestamp(a.ended))
	if s.Disposition == consumer.DispositionDone {
		return
	}
	attributes = append(attributes, system,
		semconv.MessagingOperationName(disposition), semconv.MessagingOperationTypeSettle, semconv.MessagingDestinationTemplate(a.queue.label))
	if a.to != (topology.Address{}) {
		attributes = append(attributes, semconv.MessagingDestinationName(destination(a.to.Exchange, a.to.RoutingKey, "")))
	}
	_, span := t.tracer.start(trace.ContextWithSpan(ctx, a.span), disposition+" "+a.queue.label, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(a.ended), trace.WithAttributes(attributes...))
	span.End()
}
