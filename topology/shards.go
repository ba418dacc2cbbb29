package topology

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/internal/route"
)

// Shards is a work queue that is spread over several queues, its shards, by the OrderKey
// of the messages: all messages of a key are in one shard. Each shard is a [WorkQueue]
// with a leader and waits of its own, and all shards have one dead-letter queue. One
// consumer reads all shards, without any priority between them. Shards is a [Spec] to declare
// and a [Source] to consume.
//
//	orders := topology.Shards{Name: "orders", Count: 8, Waits: delay.Default()}
//	m := producer.Message{RoutingKey: orders.Queue(customer), OrderKey: customer, Body: body}
//
// The publisher chooses the shard, by [Shards.Queue], and publishes to its queue. Shards
// have no exchange, no bindings and no lanes. A message that failed waits in, and comes back to, the
// shard that it was published to.
//
// While a shard handles messages of which consumers may have died, the consumer begins with none of its other
// shards, see consumer.Config.KeyLimit.
//
// Count may grow at any time, because Declare adds the new shards. The handlers have to
// read them before a publisher knows of them. A growth from n to n+1 moves one key in n+1, and
// all of them to the new shard. It moves no message: what is in a shard, or in its waits, is
// handled there. So a message of a moved key may be handled beside, or before, an
// earlier one of its key, until the earlier ones are done. To keep the order of these keys,
// stop the publishers until all shards and their waits are empty.
//
// Publishers that know different Counts send one key to different shards. Declare logs a
// warning if shards beyond Count have consumers, because another process then knows a larger
// Count. It fails if such a shard, or a wait of it, has messages and the shard has no
// consumer, because nobody would handle them. It sees only the shards that follow Count without
// a gap, and only the waits that are named after the Waits. By its exchange, such as orders.09.rehop.dlx, it tells a
// shard from a queue of others: a shard whose exchange somebody has deleted is not seen.
type Shards struct {
	// Name of the whole; 1 to 227 bytes, and not "amq". The queues of the shards are named
	// Name + ".00", Name + ".01" and so on, and the dead-letter queue Name + ".dlq".
	Name string

	// Count is the number of shards. 1 to 100.
	Count int

	// Type, Waits, Engine, SingleActiveConsumer and ConsumerTimeout of the work queue of
	// every shard, see [WorkQueue]. With SingleActiveConsumer each shard has an active
	// consumer of its own, and the processes that consume the Shards share them: each handles as many
	// shards as any other, or one more. To each shard a second process is attached, to which the
	// broker turns at once when it misses the first. Each process looks every 10 s how many there
	// are. One that comes takes over its share after some looks, and no other shard moves.
	// Processes beyond Count stand by.
	//
	// The processes do so by queues that their consumers declare, and nothing is published to: the
	// quorum queue Name + ".members." + Count, which has a consumer for each process and goes 10
	// minutes after the last one, and the exclusive queues Name + ".seat." + Count + ".0" and so
	// on. A process that may not use them consumes all shards, and logs a warning: the work may be spread
	// unevenly, and each shard is still handled by one process at a time.
	Type                 QueueType
	Waits                delay.Schedule
	Engine               Engine
	SingleActiveConsumer bool
	ConsumerTimeout      time.Duration
}

// maxShards keeps the names of all shards at two digits.
const maxShards = 100

// Queue returns the name of the queue for messages with this OrderKey, or "" if key is
// empty or Count is not 1 to 100. A message without an OrderKey may go to any shard: its ID
// as the key spreads such messages.
//
// The function never changes, so publishers in other languages can copy it. All numbers are
// unsigned and have 64 bits, unless a line says otherwise:
//
//	h = 14695981039346656037                     FNV-1a, of the bytes of key
//	for each byte b of key: h = (h xor b) * 1099511628211
//	h = (h xor (h >> 33)) * 0xff51afd7ed558ccd   the finalizer of MurmurHash3
//	h = (h xor (h >> 33)) * 0xc4ceb9fe1a85ec53
//	h = h xor (h >> 33)
//	b = -1, j = 0, signed                        jump consistent hash (Lamping and Veach)
//	while j < Count:
//	    b = j
//	    h = h * 2862933555777941757 + 1
//	    j = (b + 1) * (2147483648.0 / ((h >> 33) + 1)), in IEEE doubles, rounded down
//	queue = Name + "." + b as two digits
//
// The shards of some keys, in UTF-8:
//
//	key            Count 2    4    8   16  100
//	"a"                  1    3    5    5   99
//	"customer-17"        1    1    7   13   23
//	"customer-18"        1    3    7   14   87
//	"order 4711"         0    2    4   14   56
//	"Zoë"                0    0    0   11   92
//	"客户"               1    3    7    7    7
func (s Shards) Queue(key string) string {
	if key == "" || s.Count < 1 || s.Count > maxShards {
		return ""
	}
	return s.queue(shardOf(key, s.Count))
}

// queue returns the name of the queue of a shard.
func (s Shards) queue(shard int) string {
	digits := strconv.Itoa(shard)
	if shard < 10 {
		digits = "0" + digits
	}
	return s.Name + "." + digits
}

// hasName reports whether a work queue has the name of a shard, of whichever Count.
func (s Shards) hasName(queue string) bool {
	digits, ok := strings.CutPrefix(queue, s.Name+".")
	isDigit := func(b byte) bool { return b >= '0' && b <= '9' }
	return ok && len(digits) == 2 && isDigit(digits[0]) && isDigit(digits[1])
}

// shardOf returns the shard of a key, of so many shards. It is documented at [Shards.Queue].
func shardOf(key string, count int) int {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	shard, next := -1, 0
	for next < count {
		shard = next
		h = h*2862933555777941757 + 1
		next = int(float64(shard+1) * (float64(1<<31) / float64(h>>33+1)))
	}
	return shard
}

// WorkQueues returns the work queue of each shard. Use one to consume one shard alone.
// Declare the Shards and not their work queues.
func (s Shards) WorkQueues() []WorkQueue {
	list := make([]WorkQueue, max(0, s.Count))
	for i := range list {
		list[i] = WorkQueue{
			Name: s.queue(i), Type: s.Type, Waits: s.Waits, Engine: s.Engine,
			SingleActiveConsumer: s.SingleActiveConsumer, ConsumerTimeout: s.ConsumerTimeout,
			letters: s.Name + ".dlq", shards: s.Name,
		}
	}
	return list
}

func (s Shards) workQueues() []WorkQueue { return s.WorkQueues() }

func (s Shards) whole() Spec { return s }

func (s Shards) validate() error {
	owner := fmt.Sprintf("Shards %q: ", shorten(s.Name))
	longest := longestSuffix + ".00"
	errs := []error{validateName("Shards.Name", s.Name, maxName-len(longest), fmt.Sprintf(" (%d less %q, the longest name derived from it)", maxName, longest))}
	if s.Name == "amq" {
		errs = append(errs, errors.New(`topology: Shards.Name is "amq", want another one: its shards would have queues whose names begin with "amq.", and those belong to the broker`))
	}
	if s.Count < 1 || s.Count > maxShards {
		errs = append(errs, fmt.Errorf("topology: %sCount is %d, want 1 to %d", owner, s.Count, maxShards))
	}
	errs = append(errs, s.Type.validate(owner+"Type"))
	if err := s.Waits.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("topology: %sWaits: %w", owner, err))
	}
	errs = append(errs, s.Engine.validate(owner))
	return errors.Join(append(errs, validateConsumerTimeout(owner, s.ConsumerTimeout))...)
}

func (s Shards) addTo(b *builder) {
	for _, w := range s.WorkQueues() {
		w.addTo(b)
	}
	b.plan.shards = append(b.plan.shards, s)
	b.note(s.Name, fmt.Sprintf("%d shards, %s to %s: publish to the queue that Shards.Queue returns", s.Count, s.queue(0), s.queue(s.Count-1)))
}

func (s Shards) source() route.Source {
	found := route.Source{Shards: s.Name}
	for _, w := range s.WorkQueues() {
		r := w.source().Routes[0]
		r.Share = 1
		found.Routes = append(found.Routes, r)
	}
	return found
}

// beyond is a shard that exists although Count is too small for it.
type beyond struct {
	queue     string
	consumers int    // -1: the broker does not say
	messages  int    // in the fullest of its queue and its waits
	in        string // that queue
	unknown   bool   // the broker does not say it of one of them
}

func (b beyond) unread() bool { return b.messages > 0 && b.consumers == 0 }

// shardsBeyond returns the shards that a larger Count has left, as far as names and wiring tell and
// the user may look.
func (s Shards) shardsBeyond(c *caller) (list []beyond, err error) {
	for i := s.Count; i < maxShards; i++ {
		name := s.queue(i)
		q, exists, err := c.passive(name)
		if err != nil || !exists {
			return list, lookable(err)
		}
		dlx := WorkQueue{Name: name}.dlxExchange()
		refused, err := c.do(func(ch *amqp.Channel) error { return lookForExchange(dlx, "").call(ch, false) })
		if err != nil {
			return nil, fmt.Errorf("topology: look at exchange %q: %w", dlx, err)
		}
		if refused != nil && ask.IsGone(refused) {
			continue // a queue of others: each shard has its wiring
		}
		found := beyond{queue: name, consumers: q.Consumers, messages: q.Ready, in: name, unknown: q.Unknown}
		if q.Unknown {
			found.consumers = -1
		}
		for k := range s.Waits {
			wait, exists, err := c.passive(route.WaitQueue(name, k+1))
			if err != nil {
				if err = lookable(err); err != nil {
					return nil, err
				}
				break
			}
			found.unknown = found.unknown || wait.Unknown
			if exists && wait.Ready > found.messages {
				found.messages, found.in = wait.Ready, wait.queue
			}
		}
		list = append(list, found)
	}
	return list, nil
}

// lookable returns nil for an error that says that a queue cannot be looked at now.
func lookable(err error) error {
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Server && refused.Recover {
		return nil
	}
	return err
}

// unreadAdvice has two remedies: AMQP does not tell a shard from a work queue of its own.
const unreadAdvice = "declare and consume the larger Count until they are done, and then the smaller one; or, if it is a work queue of its own, give it or the Shards another name"

// unread returns an error if nobody would handle the messages of shards beyond Count.
func (s Shards) unread(list []beyond) error {
	var errs []error
	for _, b := range list {
		if b.unread() {
			errs = append(errs, rehop.WithClass(fmt.Errorf("topology: Shards %q: Count is %d, and queue %q of a larger Count has messages (%d in %q) and no consumer: nobody would handle them; %s",
				shorten(s.Name), s.Count, b.queue, b.messages, b.in, unreadAdvice), rehop.ClassConfiguration))
		}
	}
	return errors.Join(errs...)
}

// unread returns the differences for which a declaration of a smaller Count is refused.
func (c *caller) unread(all []Shards) (list []Difference, err error) {
	for _, s := range all {
		left, err := s.shardsBeyond(c)
		if err != nil {
			return nil, err
		}
		for _, b := range left {
			if b.unread() {
				list = append(list, Difference{Code: "shard-unread", Class: DriftDiffers, Kind: "queue", Name: b.queue, Expected: "no messages, or a consumer",
					Found: fmt.Sprintf("%d messages in %q, and no consumer", b.messages, b.in), Effect: "nobody handles these messages, and topology.Declare returns an error",
					Remedy: unreadAdvice})
			}
		}
	}
	return list, nil
}

// warnOfBeyond says which shards beyond Count exist.
func (p *Plan) warnOfBeyond(vhost string, s Shards, list []beyond) {
	for _, b := range list {
		switch {
		case b.unknown:
			p.warn(s.Name, fmt.Sprintf("Count is %d, and %q of a larger Count is left; the leader of it or of one of its waits does not answer, so nobody knows whether it holds messages", s.Count, b.queue))
		case b.consumers > 0:
			p.warn(s.Name, fmt.Sprintf("Count is %d, and another process consumes %q: it knows a larger Count, and sends keys to other shards than this process does until both know one Count", s.Count, b.queue))
		default:
			p.Notes = append(p.Notes, fmt.Sprintf("%s: Count is %d, and %q of a larger Count is left, empty and without a consumer as it seems: "+
				"delete it and its waits when there are no messages in them (%s)", s.Name, s.Count, b.queue, ctl.Command("rabbitmqctl list_queues", vhost, "name", "messages")))
		}
	}
}
