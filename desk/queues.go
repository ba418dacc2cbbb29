package desk

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
)

// Queue is a queue of the broker with what belongs to it.
type Queue struct {
	Name  string `json:"name"`
	Type  string `json:"type,omitzero"` // classic, quorum or stream
	State string `json:"state,omitzero"`

	// Ready and Unacked count messages. Looks and redrives of this process, and those of
	// others that have ended, change none of the three for a queue of dead letters: what
	// they have in hand counts as ready. The looks and redrives of another process
	// count as a consumer while they last.
	Ready     int `json:"ready"`
	Unacked   int `json:"unacked"`
	Consumers int `json:"consumers"`

	// Mixed says that a look or a redrive of this process has letters in hand, or had some
	// up to 10 s ago, that cannot be told from those of other consumers in Unacked, or that
	// QueueByName leaves out of Ready.
	Mixed bool `json:"mixed,omitzero"`

	// Waiting counts the messages in the wait queues of a work queue, which are
	// folded into it. The levels of topology.Delays are folded into their stranded queue.
	Waiting int `json:"waiting"`

	// DeadLetters names the dead-letter queue of a work queue, and Letters counts the
	// messages in it. All shards of topology.Shards name the same queue, and so do the lanes
	// of topology.Lanes with OneDeadLetterQueue: each has the count of the whole queue.
	DeadLetters string `json:"dead_letters,omitzero"`
	Letters     int    `json:"letters"`

	// IsDeadLetters says that the queue is one for dead letters: of rehop, or by its
	// name one of another framework.
	IsDeadLetters bool `json:"is_dead_letters,omitzero"`

	// Oldest is the timestamp of the message at the head of a classic queue. No
	// quorum queue tells.
	Oldest time.Time `json:"oldest,omitzero"`

	PublishRate float64 `json:"publish_rate"` // messages per second
	DeliverRate float64 `json:"deliver_rate"`

	// Refusal says why a live source does not look into the queue; empty if it does.
	Refusal string `json:"refusal,omitzero"`

	// At is when the broker was asked. The numbers of the management API, which are all but
	// those of QueueByName, were up to 10 s old then.
	At time.Time `json:"at,omitzero"`
}

// ErrNoManagement is returned by calls that need connection.Config.ManagementURL:
// AMQP cannot list queues.
var ErrNoManagement = rehop.WithClass(errors.New("desk: the address of the management API is not known, and AMQP lists no queues: set AMQP_MANAGEMENT_URL, or connection.Config.ManagementURL in a program"), rehop.ClassConfiguration)

// Queues returns the queues of the virtual host in the order of their names, with the
// wait queues of a work queue folded into it, and the levels of topology.Delays into their
// stranded queue.
func Queues(ctx context.Context, conn *connection.Conn) ([]Queue, error) {
	at := time.Now().UTC()
	infos, err := infosOf(ctx, conn)
	if err != nil {
		return nil, err
	}
	version := versionOf(ctx, conn)
	mixed := hands.takeOut(ctx, conn, infos)
	queues := fold(infos, version)
	for i := range queues {
		queues[i].At, queues[i].Mixed = at, mixed[queues[i].Name]
	}
	return queues, nil
}

const versionLimit = 2 * time.Second

// versionOf returns the version of the broker, which a Conn knows only once it has been
// used; zero if the broker cannot be reached.
func versionOf(ctx context.Context, conn *connection.Conn) connection.Version {
	if v := conn.Server().Version; v != (connection.Version{}) {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, versionLimit) // a broker that is away has queues to show all the same
	defer cancel()
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return connection.Version{}
	}
	defer session.Close()
	return session.Server().Version
}

// QueueByName returns a queue with the little that AMQP tells without the management
// API: how many messages are ready, and how many consumers it has. An error that wraps
// an amqp.Error with Code NotFound says that there is none.
func QueueByName(ctx context.Context, conn *connection.Conn, name string) (Queue, error) {
	counter, _, err := countOf(ctx, conn, name)
	if err != nil {
		return Queue{}, err
	}
	defer counter.close()
	at := time.Now().UTC()
	q, err := counter.ask(ctx)
	if err != nil {
		return Queue{}, err
	}
	own, _ := hands.of(conn, name)
	return Queue{Name: name, Ready: q.Messages, Consumers: max(q.Consumers-own, 0), Mixed: own > 0, IsDeadLetters: true, At: at}, nil
}

func infosOf(ctx context.Context, conn *connection.Conn) ([]management.Info, error) {
	api := transport.Inside.Conn(conn).Management()
	if api == nil {
		return nil, ErrNoManagement
	}
	return api.Infos(ctx)
}

// waitQueue matches the name of a wait queue: the work queue's, and a number.
var waitQueue = regexp.MustCompile(`^(.+)\.wait\.([1-9][0-9]*)(\.[0-9a-z]+)?$`)

// level matches the name of the queue of a level: the grain, and a number.
var level = regexp.MustCompile(`^(rehop\.delays\.[0-9a-z]+)\.[0-9]{2}(\.high)?$`)

// deadLetterSuffix ends the name of the dead-letter queue of a work queue, behind the work
// queue's.
const deadLetterSuffix = ".dlq"

// foldedInto returns the name of the queue that a queue is folded into, "" for none.
func foldedInto(name string) string {
	if m := waitQueue.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	if m := level.FindStringSubmatch(name); m != nil {
		return m[1] + ".stranded"
	}
	return ""
}

// otherDeadLetters matches names that other frameworks and people give to queues of
// dead letters.
var otherDeadLetters = regexp.MustCompile(`(?i)([._-](dlq|dead|dead[._-]?letters?|error|errors|skipped|failed|poison|parked)|^(error|errors|dlq|dead[._-]?letters?))$`)

// fold folds wait queues and levels into the queues that they belong to.
func fold(infos []management.Info, v connection.Version) []Queue {
	byName := map[string]management.Info{}
	for _, i := range infos {
		byName[i.Name] = i
	}
	waitingIn := map[string]int{}
	var queues []Queue
	for _, i := range infos {
		if into, found := byName[foldedInto(i.Name)]; found {
			waitingIn[into.Name] += i.Ready + i.Unacked
			continue
		}
		q := Queue{
			Name: i.Name, Type: i.Type, State: i.State, Ready: i.Ready, Unacked: i.Unacked, Consumers: i.Consumers,
			PublishRate: i.PublishRate, DeliverRate: i.DeliverRate, Oldest: i.Oldest,
		}
		base, isDLQ := strings.CutSuffix(i.Name, deadLetterSuffix)
		_, hasWork := byName[base]
		q.IsDeadLetters = isDLQ && hasWork || otherDeadLetters.MatchString(i.Name)
		if dlq, found := byName[deadLettersOf(i, byName)]; found {
			q.DeadLetters, q.Letters = dlq.Name, dlq.Ready+dlq.Unacked
		}
		if err := factsFrom(i, v).refusal(); err != nil && v != (connection.Version{}) { // the rules depend on it
			q.Refusal = err.Error()
			var refused *RefusedError
			if errors.As(err, &refused) {
				q.Refusal = refused.Reason
			}
		}
		queues = append(queues, q)
	}
	for i := range queues {
		queues[i].Waiting = waitingIn[queues[i].Name]
	}
	slices.SortFunc(queues, func(a, b Queue) int { return cmp.Compare(a.Name, b.Name) })
	return queues
}

// deadLettersOf returns the name of the dead-letter queue of a work queue. A work queue
// of package topology without one of its own is a lane: its dead letters are in the queue
// of all lanes, which has a name before that of the lane.
func deadLettersOf(i management.Info, byName map[string]management.Info) string {
	own := i.Name + deadLetterSuffix
	if _, found := byName[own]; found || i.Arguments["x-dead-letter-exchange"] != i.Name+".rehop.dlx" {
		return own
	}
	for lanes := i.Name; ; { // both names may have dots in them
		dot := strings.LastIndexByte(lanes, '.')
		if dot < 0 {
			return own
		}
		lanes = lanes[:dot]
		if _, found := byName[lanes+deadLetterSuffix]; found {
			return lanes + deadLetterSuffix
		}
	}
}

// waitsOf returns the sum of the waits of a work queue, as its wait queues on the broker
// have them; 0 if it has none. Of two queues for one number, the shorter counts.
func waitsOf(queue string, infos []management.Info) (sum time.Duration) {
	byNumber := map[string]int64{} // milliseconds
	for _, i := range infos {
		m := waitQueue.FindStringSubmatch(i.Name)
		if m == nil || m[1] != queue {
			continue
		}
		wait, timed := integer(i.Arguments["x-message-ttl"])
		if length, carried := integer(i.Arguments["x-max-length"]); carried && !timed {
			wait = length - route.CarriedLength
		}
		if before, found := byNumber[m[2]]; !found || wait < before {
			byNumber[m[2]] = max(wait, 0)
		}
	}
	for _, wait := range byNumber {
		sum += time.Duration(wait) * time.Millisecond
	}
	return sum
}

// factsFrom are the facts of a queue as the management API tells them.
func factsFrom(i management.Info, v connection.Version) queueFacts {
	f := queueFacts{
		name: i.Name, version: v, queueType: i.Type, arguments: i.Arguments, policy: i.Definition, transient: i.AutoDelete || i.Exclusive,
	}
	if f.policy == nil {
		f.policy = map[string]any{}
	}
	if i.Ready > 0 {
		f.size = int(i.Bytes / int64(i.Ready))
	}
	return f
}
