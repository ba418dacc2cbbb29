package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/topology"
)

// RefusedError says why a queue cannot be looked into without a letter being at risk.
type RefusedError struct {
	Queue  string
	Reason string
	Advice string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("desk: queue %q is not looked into: %s; %s", e.Queue, e.Reason, e.Advice)
}

// Class returns rehop.ClassConfiguration.
func (e *RefusedError) Class() rehop.Class { return rehop.ClassConfiguration }

// unlimited is the delivery limit of a queue that has none.
const unlimited = -1

// queueFacts is what has to be known of a queue before messages are taken that are to
// be handed back.
type queueFacts struct {
	name      string
	version   connection.Version
	queueType string
	arguments map[string]any
	policy    map[string]any // those of all policies that apply; nil: nobody could be asked
	transient bool           // exclusive, or deleted with its last consumer
	owner     owner          // of its letters
	size      int            // mean size of a message in bytes; 0: unknown
}

// limit returns how often a message may come back before the broker takes it away,
// which it does at the return after that; or unlimited. It returns false where that
// is not known.
func (f queueFacts) limit() (n int, known bool) {
	if f.queueType == string(topology.Classic) {
		return unlimited, true
	}
	own, hasOwn := f.arguments["x-delivery-limit"]
	ruled, hasRuled := f.policy["delivery-limit"]
	limit := unlimited
	if !hasOwn && !hasRuled && f.version.AtLeast(4, 0) {
		limit = route.DeliveryLimit
	}
	for _, v := range []struct {
		value any
		set   bool
	}{{own, hasOwn}, {ruled, hasRuled}} {
		n, isNumber := integer(v.value)
		switch {
		case !v.set:
		case !isNumber:
			return 0, false // a broker reads any other value in its own way
		case n < 0 && !f.version.AtLeast(4, 0):
			return 0, true // the first return is one too many
		case n < 0:
		case limit < 0:
			limit = int(n)
		default:
			limit = min(limit, int(n))
		}
	}
	return limit, true
}

// text returns what applies of an argument and a policy that are texts.
func (f queueFacts) text(key string) string {
	argument, _ := f.arguments["x-"+key].(string)
	policy, _ := f.policy[key].(string)
	if policy == "" || f.queueType == string(topology.Classic) && argument != "" {
		return argument
	}
	return policy
}

func (f queueFacts) has(key string) bool {
	_, argument := f.arguments["x-"+key]
	_, policy := f.policy[key]
	return argument || policy
}

// dropsHead reports whether the queue deletes its oldest message for a new one if it is full.
func (f queueFacts) dropsHead() bool {
	overflow := f.text("overflow")
	return (f.has("max-length") || f.has("max-length-bytes")) && overflow != "reject-publish" && (overflow != "reject-publish-dlx" || f.queueType == string(topology.Quorum))
}

// refusal says why a look could cost a letter; nil if it cannot. It is the one rule
// for looks, redrives and exports of a live source.
func (f queueFacts) refusal() error {
	refuse := func(reason, advice string) error {
		return &RefusedError{Queue: f.name, Reason: reason, Advice: advice}
	}
	limit, known := f.limit()
	switch {
	case f.queueType == "stream":
		return refuse("it is a stream, which has no dead letters to take", "read it with a consumer that keeps its offset")
	case f.queueType != string(topology.Classic) && f.queueType != string(topology.Quorum):
		return refuse(fmt.Sprintf("its type %q is not known", f.queueType), "collect its letters with a consumer")
	case f.transient:
		return refuse("the broker deletes it with its connection or its last consumer", "collect its letters with a consumer")
	case f.arguments["x-single-active-consumer"] == true:
		return refuse("it has a single active consumer: a look would wait behind it, or take its place", "stop its consumer, if it has one, and collect the letters, or look at where they end")
	case f.dropsHead():
		return refuse("it has a length limit that drops the oldest letters: what a look hands back may be too much",
			"collect its letters with a consumer, or set overflow to reject-publish")
	case f.text("delayed-retry-type") != "" && f.text("delayed-retry-type") != "disabled":
		return refuse("it delays what is handed back", "collect its letters with a consumer")
	case !known:
		return refuse("its delivery limit is not a number", "collect its letters with a consumer")
	case f.policy == nil && !f.isPlain():
		return refuse("how often a message may come back cannot be known without its policies",
			"give the address of the management API, or collect the letters with a consumer")
	case limit != unlimited && limit < 4:
		return refuse(fmt.Sprintf("the broker takes a message away that came back %d times", limit+1), "collect its letters with a consumer, or raise the delivery limit")
	}
	return nil
}

// isPlain reports whether the queue is as rehop declares dead-letter queues: without
// any limit but for the age of letters. It is looked into without a word about
// policies too.
func (f queueFacts) isPlain() bool {
	for name := range f.arguments {
		if name != "x-queue-type" && name != "x-delivery-limit" && name != "x-message-ttl" {
			return false
		}
	}
	limit, known := f.limit()
	return known && limit == unlimited
}

func integer(v any) (int64, bool) {
	if number, is := v.(json.Number); is {
		n, err := number.Int64()
		return n, err == nil
	}
	return header.Integer(v)
}

// factsOf asks for the facts of a queue: the management API, if the Conn has its
// address, else the broker, which shows arguments by refusing others.
func factsOf(ctx context.Context, conn *connection.Conn, queue string) (queueFacts, error) {
	f := queueFacts{name: queue, version: conn.Server().Version}
	if api := transport.Inside.Conn(conn).Management(); api != nil {
		i, err := api.Info(ctx, queue)
		if err == nil {
			return factsFrom(i, f.version), nil
		}
		if errors.Is(err, management.ErrNoQueue) {
			return f, rehop.WithClass(fmt.Errorf("desk: %w", err), rehop.ClassConfiguration)
		}
		// Without the API the rule for queues without it holds.
	}
	args, transient, err := argumentsOf(ctx, conn, queue, f.version)
	if err != nil {
		return f, err
	}
	f.arguments, f.transient = args, transient
	f.queueType, _ = args["x-queue-type"].(string)
	if f.queueType == "" {
		f.queueType = string(topology.Classic)
	}
	return f, nil
}

// inequivalent matches the broker's refusal to declare a queue once more: the
// argument, and the value that it exists with.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']*)' .*but current is (?:the value )?(none|'([^']*)'(?: of type '([^']*)')?)`)

// maxArguments bounds how many arguments are asked for.
const maxArguments = 24

// argumentsOf returns the arguments that a queue exists with. The broker names one
// that differs at a time. It makes no queue.
func argumentsOf(ctx context.Context, conn *connection.Conn, queue string, v connection.Version) (args map[string]any, transient bool, err error) {
	table := amqp.Table{"x-queue-type": string(topology.Quorum)}
	if v.AtLeast(4, 0) {
		table["x-delivery-limit"] = int64(unlimited)
	}
	for range maxArguments {
		refused, err := declareAgain(ctx, conn, queue, table)
		if err != nil {
			return nil, false, err
		}
		if refused == nil {
			return maps.Clone(map[string]any(table)), false, nil
		}
		m := inequivalent.FindStringSubmatch(refused.Reason)
		switch {
		case refused.Code == amqp.NotFound:
			return nil, false, rehop.WithClass(fmt.Errorf("desk: there is no queue %q: %w", queue, refused), rehop.ClassConfiguration)
		case refused.Code == amqp.ResourceLocked, m != nil && !strings.HasPrefix(m[1], "x-"):
			return nil, true, nil // exclusive, not durable or deleted with its last consumer
		case m == nil:
			return nil, false, fmt.Errorf("desk: queue %q: %w", queue, refused)
		case m[2] == "none":
			delete(table, m[1])
		default:
			table[m[1]] = argumentValue(m[1], m[3], m[4])
		}
		if table["x-queue-type"] == string(topology.Classic) {
			delete(table, "x-delivery-limit") // such a queue cannot have it, and the broker does not compare it
		}
	}
	return nil, false, fmt.Errorf("desk: queue %q: the broker has named %d arguments that differ, and has not come to an end", queue, maxArguments)
}

func argumentValue(name, value, valueType string) any {
	if valueType == "longstr" || strings.HasPrefix(name, "x-dead-letter-") {
		return value
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return n
	}
	if b, err := strconv.ParseBool(value); err == nil {
		return b
	}
	return value
}

// declareAgain declares a queue that exists. The broker refuses it if the arguments
// differ.
func declareAgain(ctx context.Context, conn *connection.Conn, queue string, args amqp.Table) (refused *amqp.Error, err error) {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return nil, fmt.Errorf("desk: %w", err)
	}
	defer session.Close()
	err = session.Do(ctx, func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
			return err // or it would be made
		}
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		return err
	})
	if errors.As(err, &refused) && (refused.Code == amqp.PreconditionFailed || refused.Code == amqp.NotFound || refused.Code == amqp.ResourceLocked) {
		return refused, nil
	}
	if err != nil {
		return nil, fmt.Errorf("desk: queue %q: %w", queue, err)
	}
	return nil, nil
}
