// Package foreign reads why a message is in a queue of dead letters from the headers of
// other frameworks. Everything in it is a pure function.
package foreign

import (
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/header"
)

// Framework is a program that moves messages to a queue of its own when they fail.
type Framework string

// The frameworks.
const (
	SpringAMQP  Framework = "spring-amqp"
	NServiceBus Framework = "nservicebus"
	MassTransit Framework = "masstransit"
)

// Failure is why a message was given up. A field is zero if the headers do not tell it.
type Failure struct {
	Framework Framework
	Queue     string // that failed

	// Exchange and RoutingKey are where the message was published to, if HasOrigin.
	Exchange, RoutingKey string
	HasOrigin            bool

	Cause     rehop.Cause
	Error     string
	ErrorType string
	Stack     string
	Host      string
	Attempts  int
	At        time.Time
}

// Headers of Spring AMQP's RepublishMessageRecoverer.
const (
	springStack      = "x-exception-stacktrace"
	springMessage    = "x-exception-message"
	springExchange   = "x-original-exchange"
	springRoutingKey = "x-original-routingKey"
)

// Headers of NServiceBus' recoverability.
const (
	nsbFailedQ   = "NServiceBus.FailedQ"
	nsbTime      = "NServiceBus.TimeOfFailure"
	nsbInfo      = "NServiceBus.ExceptionInfo."
	nsbType      = nsbInfo + "ExceptionType"
	nsbMessage   = nsbInfo + "Message"
	nsbStack     = nsbInfo + "StackTrace"
	nsbMachine   = "NServiceBus.ProcessingMachine"
	nsbDelayed   = "NServiceBus.Retries"
	nsbDelayedAt = "NServiceBus.Retries.Timestamp"
	nsbRetries   = "NServiceBus.DelayedRetries"
)

// Headers of MassTransit's error and skipped queues.
const (
	mtReason  = "MT-Reason"
	mtFault   = "MT-Fault-"
	mtType    = mtFault + "ExceptionType"
	mtMessage = mtFault + "Message"
	mtStack   = mtFault + "StackTrace"
	mtTime    = mtFault + "Timestamp"
	mtInput   = mtFault + "InputAddress"
	mtRetries = mtFault + "RetryCount"
	mtMachine = "MT-Host-MachineName"
)

// Read returns the failure that headers tell of, and false if none of the frameworks
// has written them.
func Read(headers amqp.Table) (f Failure, ok bool) {
	text := func(name string) string { return Text(headers[name]) }
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return headers[name] != nil })
	}
	// All three move a message to its error queue when their retries are over.
	f.Cause = rehop.CauseExhausted
	switch {
	case has(nsbFailedQ, nsbType, nsbMessage):
		f.Framework = NServiceBus
		f.Queue, _, _ = strings.Cut(text(nsbFailedQ), "@") // queue@machine of other transports
		f.Error, f.ErrorType, f.Stack, f.Host = text(nsbMessage), text(nsbType), text(nsbStack), text(nsbMachine)
		f.At = nsbInstant(text(nsbTime))
	case has(mtReason, mtType, mtMessage):
		f.Framework = MassTransit
		f.Queue = queueOfAddress(text(mtInput))
		f.Error, f.ErrorType, f.Stack, f.Host = text(mtMessage), text(mtType), text(mtStack), text(mtMachine)
		if n, err := strconv.Atoi(text(mtRetries)); err == nil && n >= 0 && n < header.MaxCount {
			f.Attempts = n + 1
		}
		f.At = instant(text(mtTime))
		if text(mtReason) == "dead-letter" && f.Error == "" {
			f.Cause = rehop.CauseUnhandled // no consumer of the endpoint is for its type
		}
	case has(springMessage, springStack):
		f.Framework = SpringAMQP
		f.Error, f.Stack = text(springMessage), text(springStack)
		f.ErrorType = javaType(f.Stack)
		f.HasOrigin = has(springExchange, springRoutingKey)
		f.Exchange, f.RoutingKey = text(springExchange), text(springRoutingKey)
	default:
		return Failure{}, false
	}
	if len(f.Queue) > maxName {
		f.Queue = ""
	}
	if len(f.Exchange) > maxName || len(f.RoutingKey) > maxName {
		f.Exchange, f.RoutingKey, f.HasOrigin = "", "", false
	}
	return f, true
}

// maxName is how long a name is in AMQP, at most. Text that is longer names nothing, and
// no store would take it for a name.
const maxName = 255

func instant(s string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, s)
	return known(at, err)
}

// known is the zero time for one that no header of ours can hold: JSON and the
// databases could not hold it either.
func known(at time.Time, err error) time.Time {
	if err != nil || !header.IsInstant(at) {
		return time.Time{}
	}
	return at.UTC()
}

// Text is the text of a header: frameworks write numbers as texts and as numbers.
func Text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case int32:
		return strconv.FormatInt(int64(v), 10)
	case int64:
		return strconv.FormatInt(v, 10)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	return ""
}

// nsbInstant reads NServiceBus' wire format, such as "2014-11-11 02:26:58:000462 Z".
func nsbInstant(s string) time.Time {
	if i := strings.LastIndexByte(s, ':'); i > 0 {
		s = s[:i] + "." + s[i+1:]
	}
	at, err := time.Parse("2006-01-02 15:04:05.999999 Z", s)
	return known(at, err)
}

// queueOfAddress is the last part of such as rabbitmq://host/vhost/queue?bind=true.
func queueOfAddress(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	if u.Opaque != "" { // queue:orders
		return u.Opaque
	}
	if base := path.Base(u.Path); base != "." && base != "/" {
		return base
	}
	return ""
}

// javaType is the class of the innermost exception of a stack trace.
func javaType(stack string) string {
	found := ""
	for i, line := range strings.Split(stack, "\n") {
		text, caused := strings.CutPrefix(strings.TrimSpace(line), "Caused by: ")
		if i > 0 && !caused {
			continue
		}
		class, _, _ := strings.Cut(text, ":")
		if class != "" && !strings.ContainsAny(class, " \t(") {
			found = class
		}
	}
	return found
}

// Strip returns the headers without those by which a framework says why the
// message failed: a message that is sent back has not failed yet.
func Strip(headers amqp.Table, by Framework) amqp.Table {
	drop := func(name string) bool {
		switch by {
		case SpringAMQP:
			return name == springStack || name == springMessage || name == springExchange || name == springRoutingKey
		case NServiceBus:
			return name == nsbFailedQ || name == nsbTime || strings.HasPrefix(name, nsbInfo) || name == nsbMachine ||
				name == nsbDelayed || name == nsbDelayedAt || name == nsbRetries
		case MassTransit:
			return name == mtReason || strings.HasPrefix(name, mtFault)
		}
		return false
	}
	kept := make(amqp.Table, len(headers))
	for name, v := range headers {
		if !drop(name) {
			kept[name] = v
		}
	}
	return kept
}
