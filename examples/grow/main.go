// Grow bills 200 customers while it grows from one shard and one process to eight shards and four
// processes. At each stage it kills a process with SIGKILL. One bill in a hundred fails once. The bills of each
// customer stay in order.
//
//	go run ./integration/withbroker -version 4.3 -- go run ./examples/grow
//
// A stage is a deployment. New processes declare and consume the new shards, and the old processes stop. Then
// the publishers learn the new number of shards. Half of the customers move to another shard, where a bill
// could overtake an earlier one in the old shard. So the publishers stop until no bill is left, which takes
// about as long as a failed bill waits. A service whose bills may overtake once leaves the settle in grow out.
//
// The program knows from its books when no bill is left. A service without such books asks the broker with
// rabbitmqctl list_queues name messages. All shards and waits must have 0 messages for ten seconds,
// because the broker counts those of a quorum queue every five.
//
// It ends with a table and an account, and with an error if a bill is lost, handled twice without a kill, or
// handled before an earlier one of its customer. The table has a row for each stage: the customers that moved to
// another shard at its beginning, for how long the publishers stopped, and the bills that the killed process had
// in hand, which other processes began again. A stage ends when its shards are even again, and the last column
// has how many shards each process has then. No process is at its limit: the rate is that of the publishers.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

const (
	customers = 200
	handling  = 20 * time.Millisecond // of a bill
	patience  = time.Minute           // until all bills are handled
)

// A stage is a number of shards and of processes that handle them.
type stage struct {
	shards, processes int
	rate              int           // bills in a second
	least             time.Duration // after the publishers know the shards; longer if the shards are not even
}

var plan = []stage{
	{1, 1, 150, 8 * time.Second},
	{2, 2, 300, 14 * time.Second},
	{4, 2, 300, 14 * time.Second},
	{8, 4, 600, 14 * time.Second},
}

// A process is killed killAfter into each stage, and started again after restart. The shards are even again some
// looks of the processes later, and each looks every 10 s.
const (
	killAfter = 3 * time.Second
	restart   = time.Second
	most      = 50 * time.Second // of a stage
)

func shardsOf(count int) topology.Shards {
	return topology.Shards{Name: "grow.bills", Count: count, Waits: delay.Fixed(time.Second, 3), SingleActiveConsumer: true}
}

// fails reports whether the first attempt with a bill fails, as it does with one in a hundred.
func (b bill) fails() bool {
	h := fnv.New32a()
	fmt.Fprint(h, b)
	return h.Sum32()%100 == 0
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("grow: ")
	count := flag.Int("work", 0, "be a process that handles the bills of so many shards")
	flag.Parse()
	if *count > 0 {
		if err := work(shardsOf(*count)); err != nil {
			log.Fatal(err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	publishing, endPublishing := context.WithCancel(ctx)
	defer endPublishing()
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{os.Getenv("AMQP_URL")}})
	if err != nil {
		return err
	}
	defer conn.Close()
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	defer publisher.Close()
	s := &service{began: time.Now(), books: newBooks(), publisher: publisher, fail: fail}
	defer s.stop()
	var publishers sync.WaitGroup
	defer publishers.Wait()
	defer endPublishing()

	s.say("%d customers get bills in order, while the service grows and processes are killed: about a minute and a half", customers)
	var table strings.Builder
	fmt.Fprintln(&table, "shards  processes  customers moved  publishers stopped  length  bills/s  in hand at the kill  shards of each process")
	for i, to := range plan {
		moved, paused, err := s.grow(ctx, to)
		if err != nil {
			return err
		}
		began := time.Now()
		if i == 0 {
			for c := range customers {
				publishers.Go(func() { s.publish(publishing, c) })
			}
		}
		sleep(ctx, killAfter)
		inHand, err := s.killOne(ctx)
		if err != nil {
			return err
		}
		bills, shards := s.watch(ctx, began, to)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.say("%d bills were handled in this stage, and the processes have %v shards", bills, shards)
		fmt.Fprintf(&table, "%6d  %9d  %15d  %18v  %6.0fs  %7.0f  %19d  %v\n", to.shards, to.processes, moved, paused.Round(time.Millisecond), time.Since(began).Seconds(), float64(bills)/time.Since(began).Seconds(), inHand, shards)
	}
	endPublishing()
	publishers.Wait()
	err = s.settle(ctx)
	s.stop()
	a := s.books.account()
	fmt.Printf("\n%s%s", &table, a)
	if err = errors.Join(err, a.fault()); err == nil {
		fmt.Println("\nNo bill was lost or overtook an earlier one of its customer. The comment at the top of examples/grow/main.go explains the columns.")
	}
	return err
}

// say prints what happens, with the time since the start.
func (s *service) say(format string, args ...any) {
	fmt.Printf("%5.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// service is the publishers and the processes.
type service struct {
	began     time.Time
	books     *books
	publisher *producer.Producer
	fail      context.CancelCauseFunc
	started   int // processes, so far
	processes []*process

	knows  sync.RWMutex // held by publishers while they publish
	shards topology.Shards
	every  atomic.Int64 // time.Duration between two bills of a customer
}

// grow brings the service to a stage. It returns how many customers have moved to another shard, and for how long
// the publishers stopped.
func (s *service) grow(ctx context.Context, to stage) (moved int, paused time.Duration, err error) {
	old := s.processes
	s.processes = nil
	s.say("%[2]d processes start that know %[1]d shards; %[3]d stop", to.shards, to.processes, len(old))
	for range to.processes {
		if err = s.start(to.shards); err != nil {
			s.processes = append(s.processes, old...) // to be stopped
			return 0, 0, err
		}
	}
	for _, p := range old {
		p.end(syscall.SIGTERM)
	}
	began := time.Now()
	s.knows.Lock()
	defer s.knows.Unlock()
	if err := s.settle(ctx); err != nil {
		return 0, 0, err
	}
	before := s.shards
	s.shards = shardsOf(to.shards)
	if before.Count > 0 {
		s.say("the publishers stopped until no bill was left, and know %d shards now", to.shards)
	}
	s.every.Store(int64(time.Second * customers / time.Duration(to.rate)))
	for c := range customers {
		if name := customer(c); before.Count > 0 && before.Queue(name) != s.shards.Queue(name) {
			moved++
		}
	}
	return moved, time.Since(began), nil
}

// settle waits until each published bill is handled.
func (s *service) settle(ctx context.Context) error {
	for began := time.Now(); s.books.open() > 0; sleep(ctx, 10*time.Millisecond) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Since(began) > patience {
			return errors.New("bills were not handled in a minute")
		}
	}
	return nil
}

// start starts one more process.
func (s *service) start(shards int) error {
	s.started++
	p, err := start(s.started, shards, s.books.note, s.fail)
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return err
}

// killOne kills the process with the most bills in hand, and starts another one for it. It returns how many these were.
func (s *service) killOne(ctx context.Context) (inHand int, err error) {
	_, hands, _ := s.books.look(time.Now())
	p := slices.MaxFunc(s.processes, func(a, b *process) int { return cmp.Compare(hands[a.number], hands[b.number]) })
	s.processes = slices.DeleteFunc(s.processes, func(other *process) bool { return other == p })
	s.books.kill(p.number)
	p.end(syscall.SIGKILL)
	_, hands, _ = s.books.look(time.Now())
	inHand = hands[p.number]
	s.say("process %d is killed with %d bills in hand; another one starts in %v", p.number, inHand, restart)
	sleep(ctx, restart)
	return inHand, s.start(s.shards.Count)
}

// watch waits for the end of a stage. It returns how many bills were handled in it, and the shards of each process.
func (s *service) watch(ctx context.Context, began time.Time, of stage) (bills int, shards []int) {
	for ; ctx.Err() == nil; sleep(ctx, 200*time.Millisecond) {
		var by map[int]int
		bills, _, by = s.books.look(began)
		shards = nil
		for _, p := range s.processes {
			shards = append(shards, by[p.number])
		}
		length, even := time.Since(began), slices.Max(shards)-slices.Min(shards) <= 1
		if length > of.least && even || length > most {
			break
		}
	}
	return bills, shards
}

// stop stops all processes.
func (s *service) stop() {
	for _, p := range s.processes {
		p.end(syscall.SIGTERM)
	}
	s.processes = nil
}

func customer(c int) string { return fmt.Sprint("customer-", c) }

// publish publishes the bills of a customer, one after the other, until ctx ends.
func (s *service) publish(ctx context.Context, c int) {
	sleep(ctx, time.Duration(s.every.Load())*time.Duration(c)/customers)
	for n := 1; ctx.Err() == nil; n++ {
		began := time.Now()
		if err := s.publishOne(ctx, bill{customer(c), n}); err != nil {
			s.fail(err)
		}
		sleep(ctx, time.Duration(s.every.Load())-time.Since(began))
	}
}

func (s *service) publishOne(ctx context.Context, b bill) error {
	s.knows.RLock()
	defer s.knows.RUnlock()
	if ctx.Err() != nil {
		return nil
	}
	body, err := json.Marshal(b)
	if err != nil {
		return err
	}
	at := time.Now()
	receipt, err := s.publisher.Publish(context.WithoutCancel(ctx), producer.Message{
		RoutingKey: s.shards.Queue(b.Customer), OrderKey: b.Customer, ID: fmt.Sprintf("%s/%d", b.Customer, b.Number), Body: body,
	})
	if err == nil {
		s.books.publish(b, at, receipt.MaybeDuplicate)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
