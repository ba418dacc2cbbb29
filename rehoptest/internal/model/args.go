package model

import (
	"fmt"
	"math"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Arguments that each queue type knows: others are stored and ignored.
var (
	classicArgs = []string{
		"x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-max-length",
		"x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-mode", "x-queue-version",
		"x-single-active-consumer", "x-queue-type", "x-queue-master-locator",
	}
	classicArgs40 = []string{"x-queue-leader-locator"}
	quorumArgs    = []string{
		"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-expires",
		"x-max-length", "x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-overflow",
		"x-single-active-consumer", "x-queue-type", "x-quorum-initial-group-size", "x-delivery-limit",
		"x-message-ttl", "x-queue-leader-locator",
	}
	quorumArgs43 = []string{
		"x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max", "x-consumer-timeout",
		"x-consumer-disconnected-timeout",
	}
	streamArgs   = []string{"x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size"}
	streamArgs43 = []string{"x-stream-filter-size-bytes"}
)

// leaderLocators are the values of x-queue-leader-locator. Here they all mean the
// one node.
var leaderLocators = []string{"client-local", "balanced", "random", "least-leaders"}

// masterLocators are the values of x-queue-master-locator.
var masterLocators = []string{"min-masters", "client-local", "random"}

// noMasterLocator begins the text of 4.3, which is cut off after these words.
const noMasterLocator = "Feature `queue_master_locator` is deprecated.\n" +
	"By default, this feature is not permitted anymore.\n" +
	"The feature will be removed from a future major RabbitMQ version, regardless of the configuration; actual version to be determined.\n" +
	"To continue using this feature when it is not permitted by default, set a parameter in the configuration"

// maxTTL is ten years.
const maxTTL = 315_360_000_000

// queueArgs is what a queue's arguments mean.
type queueArgs struct {
	quorum             bool
	ttl                time.Duration // -1: none
	expires            time.Duration // 0: never
	dlx, dlk           string
	hasDLX, hasDLK     bool
	atLeastOnce        bool
	maxLength          int64 // -1: none
	maxBytes           int64
	overflow           string
	limit              int64 // of deliveries; -1: none
	maxPriority        int   // 0: none
	singleActive       bool
	timeout            time.Duration // of consumers; -1: the broker's
	retryType          string        // delayed retry
	retryMin, retryMax time.Duration
}

// known are the arguments that a queue type of the version knows.
func (b *Broker) known(quorum bool) []string {
	switch {
	case quorum && b.atLeast(4, 3):
		return slices.Concat(quorumArgs, quorumArgs43)
	case quorum:
		return quorumArgs
	case b.atLeast(4, 0):
		return slices.Concat(classicArgs, classicArgs40)
	}
	return classicArgs
}

// foreign are the arguments that only other queue types know, which are refused.
func (b *Broker) foreign(quorum bool) []string {
	others := slices.Concat(b.known(!quorum), streamArgs, []string{"x-queue-leader-locator"})
	if b.atLeast(4, 3) {
		others = append(others, streamArgs43...)
	}
	known := b.known(quorum)
	return slices.DeleteFunc(others, func(name string) bool { return slices.Contains(known, name) })
}

func (b *Broker) queueArgs(s QueueSpec, title string) (queueArgs, *Error) {
	a := queueArgs{ttl: -1, maxLength: -1, maxBytes: -1, limit: -1, timeout: -1, overflow: "drop-head"}
	refuse := func(name, format string, args ...any) *Error {
		return Fail(PreconditionFailed, "invalid arg '%s' for %s: %s", name, title, fmt.Sprintf(format, args...))
	}
	if v, ok := s.Arguments["x-queue-type"]; ok {
		kind, ok := v.(string)
		switch {
		case !ok:
			return a, refuse("x-queue-type", "{unacceptable_type,%s}", typeName(v))
		case kind == "quorum":
			a.quorum = true
		case kind == "" && b.atLeast(4, 3), kind == "undefined" && b.atLeast(4, 0) && !b.atLeast(4, 3): // the default
		case kind == "stream":
			return a, Fail(NotImplemented, "rehoptest has no streams")
		case kind != "classic":
			return a, refuse("x-queue-type", "\"unsupported queue type '%s'\"", kind)
		}
	}
	known := b.known(a.quorum)
	for _, name := range sortedNames(s.Arguments) {
		if !slices.Contains(known, name) {
			continue
		}
		v := s.Arguments[name]
		n, isInt := integer(v)
		text, isText := v.(string)
		switch name {
		case "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority", "x-max-in-memory-length",
			"x-max-in-memory-bytes", "x-quorum-initial-group-size", "x-consumer-timeout", "x-consumer-disconnected-timeout":
			limited := name == "x-message-ttl" || name == "x-expires"
			switch {
			case !isInt:
				return a, refuse(name, "\"expected integer, got %s\"", typeName(v))
			case n < 0:
				return a, refuse(name, "{value_negative,%d}", n)
			case n == 0 && (name == "x-expires" || name == "x-quorum-initial-group-size"):
				return a, refuse(name, "{value_zero,0}")
			case limited && n > maxTTL:
				return a, refuse(name, "{value_too_large,%d}", n)
			case name == "x-max-priority" && n > 255:
				return a, refuse(name, "{max_value_exceeded,%d}", n)
			}
		case "x-dead-letter-exchange":
			if !isText {
				return a, Fail(PreconditionFailed, "invalid type '%s' for arg '%s' in %s", typeName(v), name, title)
			}
		case "x-dead-letter-routing-key":
			if !isText {
				return a, refuse(name, "{unacceptable_type,%s}", typeName(v))
			}
		case "x-queue-mode":
			switch {
			case b.atLeast(4, 3): // any
			case !isText:
				return a, refuse(name, "{unacceptable_type,%s}", typeName(v))
			case text != "default" && text != "lazy":
				return a, refuse(name, "\"unsupported queue mode '%s'\"", text)
			}
		case "x-queue-leader-locator":
			if !isText {
				return a, refuse(name, "{unacceptable_type,%s}", typeName(v))
			}
			if !slices.Contains(leaderLocators, text) && (text != "min-masters" || !b.atLeast(4, 0)) {
				return a, refuse(name, "invalid_queue_locator_arg")
			}
		case "x-queue-master-locator":
			if !b.atLeast(4, 0) && !slices.Contains(masterLocators, text) {
				return a, Fail(InternalError, "") // it looks for the module of that name
			}
		case "x-single-active-consumer":
			if _, ok := v.(bool); !ok {
				return a, refuse(name, "{unacceptable_type,%s}", typeName(v))
			}
		case "x-overflow":
			if !isText {
				return a, refuse(name, "{unacceptable_type,%s}", typeName(v))
			}
			if !slices.Contains([]string{"drop-head", "reject-publish", "reject-publish-dlx"}, text) {
				return a, refuse(name, "invalid_overflow")
			}
		case "x-dead-letter-strategy":
			if !isText {
				return a, refuse(name, "{unacceptable_type,%s}", typeName(v))
			}
			if text != "at-most-once" && text != "at-least-once" {
				return a, refuse(name, "invalid_dlx_strategy")
			}
		case "x-queue-version":
			switch {
			case !isInt:
				return a, refuse(name, "\"expected integer, got %s\"", typeName(v))
			case n < 0:
				return a, refuse(name, "{value_negative,%d}", n)
			case n != 2 && (n != 1 || b.atLeast(4, 3)):
				return a, refuse(name, "\"unsupported queue version '%d'\"", n)
			}
		}
		a.set(name, n, isInt, text, v)
		if name == "x-max-priority" && n == 0 && b.atLeast(4, 0) {
			a.maxPriority = 1 // measured: 3.10 has a queue without priorities
		}
	}
	foreign := b.foreign(a.quorum)
	for _, name := range slices.Backward(sortedNames(s.Arguments)) {
		if slices.Contains(foreign, name) {
			return a, Fail(PreconditionFailed, "invalid arg '%s' for %s of queue type %s", name, title, a.kind())
		}
	}
	if _, ok := s.Arguments["x-queue-master-locator"]; ok && b.atLeast(4, 3) {
		return a, Fail(InternalError, "%s", noMasterLocator)
	}
	if a.hasDLK && !a.hasDLX {
		return a, Fail(PreconditionFailed, "invalid arg 'x-dead-letter-routing-key' for %s: routing_key_but_no_dlx_defined", title)
	}
	if a.quorum {
		switch {
		case s.AutoDelete:
			return a, Fail(PreconditionFailed, "invalid property 'auto-delete' for %s", title)
		case s.Exclusive:
			return a, Fail(PreconditionFailed, "invalid property 'exclusive-owner' for %s", title)
		case !s.Durable:
			return a, Fail(PreconditionFailed, "invalid property 'non-durable' for %s", title)
		}
		v, ok := s.Arguments["x-delivery-limit"]
		a.limit = b.deliveryLimit(v, ok)
		if a.overflow == "reject-publish-dlx" {
			a.overflow = "drop-head"
		}
		a.atLeastOnce = a.atLeastOnce && a.hasDLX && a.overflow == "reject-publish"
	}
	return a, nil
}

// deliveryLimit is what the value of x-delivery-limit means; -1 is none. No value is
// refused. Those that are no whole numbers count for nothing since 4.3.
func (b *Broker) deliveryLimit(v any, there bool) int64 {
	if t, ok := v.(time.Time); ok {
		v = t.Unix()
	}
	n, ok := integer(v)
	if f, is := real(v); is && !b.atLeast(4, 3) {
		n, ok = int64(math.Floor(f)), true
	}
	switch {
	case ok && n < 0 && !b.atLeast(4, 0):
		return 0
	case ok:
		return max(n, -1)
	case b.atLeast(4, 3), b.atLeast(4, 0) && (!there || v == nil):
		return 20
	case !there || v == nil:
		return -1
	}
	return math.MaxInt64 // which no number of returns is above
}

// kind is what the broker calls the type of a queue.
func (a *queueArgs) kind() string {
	if a.quorum {
		return "rabbit_quorum_queue"
	}
	return "rabbit_classic_queue"
}

func (a *queueArgs) set(name string, n int64, isInt bool, text string, v any) {
	switch name {
	case "x-message-ttl":
		a.ttl = time.Duration(n) * time.Millisecond
	case "x-expires":
		a.expires = time.Duration(n) * time.Millisecond
	case "x-dead-letter-exchange":
		a.dlx, a.hasDLX = text, true
	case "x-dead-letter-routing-key":
		a.dlk, a.hasDLK = text, true
	case "x-dead-letter-strategy":
		a.atLeastOnce = text == "at-least-once"
	case "x-max-length":
		a.maxLength = n
	case "x-max-length-bytes":
		a.maxBytes = n
	case "x-max-priority":
		a.maxPriority = int(n)
	case "x-overflow":
		a.overflow = text
	case "x-single-active-consumer":
		a.singleActive, _ = v.(bool)
	case "x-consumer-timeout":
		if isInt {
			a.timeout = time.Duration(n) * time.Millisecond
		}
	case "x-delayed-retry-type":
		a.retryType = text
	case "x-delayed-retry-min":
		a.retryMin = time.Duration(n) * time.Millisecond
	case "x-delayed-retry-max":
		a.retryMax = time.Duration(n) * time.Millisecond
	}
}

func sortedNames(t amqp.Table) []string {
	names := make([]string, 0, len(t))
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
