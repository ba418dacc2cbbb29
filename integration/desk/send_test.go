package desk_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// The management API goes on for up to 10 s to count what a redrive had in hand.
func TestARedriveIsNoCollector(t *testing.T) {
	onEach(t, func(r *room) {
		r.fill(r.queue, 49)
		live := r.live()
		numbers := func() desk.Queue {
			queues, err := desk.Queues(r.Context(), r.conn)
			must(r.T, err)
			for _, q := range queues {
				if q.Name == r.queue {
					return q
				}
			}
			return desk.Queue{}
		}
		told := make(chan struct{}, 100)
		ended := make(chan error, 1)
		go func() {
			_, err := live.Execute(r.Context(), desk.Redrive{Action: desk.Send, Filter: desk.Filter{Error: "no stock"}, Rate: 2}, func(desk.Progress) {
				select {
				case told <- struct{}{}:
				default:
				}
			})
			ended <- err
		}()
		<-told
		for running := true; running; {
			if q := numbers(); q.Unacked+q.Consumers > 0 || q.Mixed {
				r.Errorf("during the redrive: %+v", q)
			}
			select {
			case err := <-ended:
				must(r.T, err)
				running = false
			case <-told:
			}
		}
		if q := numbers(); q.Ready != 24 || q.Unacked+q.Consumers > 0 || q.Mixed {
			r.Errorf("after the redrive: %+v, want 24 ready", q)
		}
	})
}

func TestAFilterThatMatchesHalfLeavesTheOtherHalfAsItWas(t *testing.T) {
	onEach(t, func(r *room) {
		const n = 1000
		r.fill(r.queue, n)
		p, err := r.live().Execute(r.Context(), desk.Redrive{Action: desk.Send, Filter: desk.Filter{Error: "no stock"}}, nil)
		if err != nil || p.Done != n/2 || p.MaybeDuplicate+p.Failed+p.Skipped != 0 {
			r.Errorf("%v: %+v", err, p)
		}
		r.has(r.queue, n/2)
		r.has(r.work, n/2)
		for i, d := range r.drain(r.work) {
			h := d.Headers
			if d.MessageId != id(2*i) || h["x-rehop-exchange"] != "shop" || h["x-rehop-routing-key"] != "order.paid" || h["x-rehop-redrives"] != int64(1) ||
				h["x-rehop-redrive-id"] != p.Redrive.ID || h["x-rehop-queue"] != nil || h["x-rehop-error"] != nil || h["x-rehop-final-attempts"] != nil {
				r.Fatalf("sent %d: %s %v", i, d.MessageId, h)
			}
		}
		r.inOrder(r.queue, n, func(i int) bool { return i%2 == 1 })
	})
}

func TestTenThousandLettersKeepToTheirRate(t *testing.T) {
	onNewestAlone(t, func(r *room) {
		const n, rate = 10_000, 500
		r.fill(r.queue, n)
		began := time.Now()
		p, err := r.live().Execute(r.Context(), desk.Redrive{Action: desk.Send, All: true, Rate: rate}, nil)
		took := time.Since(began)
		if err != nil || p.Done != n {
			r.Errorf("%v: %+v", err, p)
		}
		r.Logf("%d letters in %v: %.1f per second", n, took.Round(10*time.Millisecond), n/took.Seconds())
		// A rate bounds: a busy machine may send less.
		if got := n / took.Seconds(); got > rate*1.05 || got < rate/3 {
			r.Errorf("%.1f per second, want %d", got, rate)
		}
		r.has(r.work, n)
		r.has(r.queue, 0)
	})
}

// A letter of the redrive that came back before it went on is none that others have taken,
// whether or not the queue's type counts the desk's own consumers twice.
func TestARedriveWhoseCanaryCameBackGoesOn(t *testing.T) {
	for name, managed := range map[string]bool{"with the management API": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(r *room) {
				const n = 10
				r.fill(r.queue, n)
				conn := r.conn
				if !managed {
					var err error
					conn, err = connection.Open(r.Context(), connection.Config{URLs: []string{r.broker.AMQPURL()}})
					must(r.T, err)
					defer conn.Close()
				}
				ch := r.channel()
				work, err := ch.Consume(r.work, "", true, false, false, false, nil)
				must(r.T, err)
				ended := make(chan error, 1)
				live := live(r.T, conn, r.queue, r.journal)
				go func() {
					_, err := live.Execute(r.Context(), desk.Redrive{ID: "canary-" + r.work, Action: desk.Send, All: true, Canary: time.Minute}, nil)
					ended <- err
				}()
				d := <-work // it fails again
				must(r.T, ch.Publish("", r.queue, false, false, amqp.Publishing{MessageId: d.MessageId, Headers: d.Headers, Body: d.Body, DeliveryMode: amqp.Persistent}))
				if err := <-ended; !errors.Is(err, store.ErrCanary) {
					r.Errorf("%v, want that the canary came back", err)
				}
				r.has(r.queue, n)
				p, err := live.Resume(r.Context(), "canary-"+r.work, desk.By{Who: "ada"}, nil)
				if err != nil || p.Done != n || p.Note != "" {
					r.Errorf("%v: %+v; want %d sent, and no word of other consumers", err, p, n)
				}
				r.has(r.queue, 1)
			})
		})
	}
}

func TestATargetThatTakesNothingLeavesTheLetters(t *testing.T) {
	onEach(t, func(r *room) {
		const n = 1000 // a quorum queue takes some more than its limit
		r.fill(r.queue, n)
		ch := r.channel()
		_, err := ch.QueueDelete(r.work, false, false, false)
		must(r.T, err)
		live := r.live()
		p, err := live.Execute(r.Context(), desk.Redrive{Action: desk.Send, All: true}, nil)
		if !errors.Is(err, desk.ErrTarget) || p.Done != 0 {
			r.Errorf("missing: %v: %+v", err, p)
		}
		r.has(r.queue, n)
		r.declare(r.work, amqp.Table{"x-queue-type": string(r.kind), "x-max-length": int32(50), "x-overflow": "reject-publish"})
		p, err = live.Resume(r.Context(), p.Redrive.ID, desk.By{}, nil)
		if !errors.Is(err, desk.ErrTarget) || p.Done < 50 || p.Done == n {
			r.Errorf("full: %v: %+v", err, p)
		}
		got := map[string]int{}
		for _, d := range r.drain(r.work) {
			got[d.MessageId]++
		}
		_, err = ch.QueueDelete(r.work, false, false, false)
		must(r.T, err)
		r.declare(r.work, amqp.Table{"x-queue-type": string(r.kind)})
		p, err = live.Resume(r.Context(), p.Redrive.ID, desk.By{}, nil)
		if err != nil || p.Done != n {
			r.Errorf("resumed: %v: %+v", err, p)
		}
		r.has(r.queue, 0)
		for _, d := range r.drain(r.work) {
			got[d.MessageId]++
		}
		r.eachOnce(got, n, 0)
	})
}

// eachOnce checks that each letter arrived, and that at most so many arrived twice.
func (r *room) eachOnce(got map[string]int, n, doubled int) {
	r.Helper()
	twice := 0
	for i := range n {
		switch got[id(i)] {
		case 0:
			r.Errorf("%s is lost", id(i))
		case 1:
		default:
			twice++
		}
	}
	if twice > doubled {
		r.Errorf("%d letters arrived twice, at most %d may", twice, doubled)
	}
	if twice > 0 {
		r.Logf("%d letters arrived twice", twice)
	}
}

func TestTwoDesksAtOnceSendNothingTwice(t *testing.T) {
	onEach(t, func(r *room) {
		const n = 2000
		r.fill(r.queue, n)
		var done [2]desk.Progress
		var both sync.WaitGroup
		for i := range done {
			conn := connect(r.T, r.broker)
			journal, err := desk.OpenJournal(r.TempDir())
			must(r.T, err)
			both.Go(func() {
				// A small window, so that each has some.
				l, err := desk.NewLive(conn, r.queue, desk.LiveConfig{Journal: journal, Window: 100})
				if err == nil {
					done[i], err = l.Execute(r.Context(), desk.Redrive{Action: desk.Send, All: true}, nil)
				}
				if err != nil {
					r.Error(err)
				}
			})
		}
		both.Wait()
		if done[0].Done+done[1].Done != n {
			r.Errorf("%d and %d sent, want %d", done[0].Done, done[1].Done, n)
		}
		r.Logf("one sent %d, the other %d", done[0].Done, done[1].Done)
		r.has(r.queue, 0)
		got := map[string]int{}
		for _, d := range r.drain(r.work) {
			got[d.MessageId]++
		}
		r.eachOnce(got, n, 0)
	})
}

// task is what a child does: carry out a redrive, or go on with it.
type task struct {
	URL, Management, Queue, Journal, Redrive string
	Store                                    string // a file of collected letters, in place of Queue
	Do                                       string // with them, in place of a redrive
	Resume                                   bool
	Rate                                     float64
	Limit                                    int
}

// event is what a child tells.
type event struct {
	Done  int
	Ended bool
	Error string
}

func work(t task) error {
	ctx := context.Background()
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{t.URL}, ManagementURL: t.Management})
	if err != nil {
		return err
	}
	journal, err := desk.OpenJournal(t.Journal)
	if err != nil {
		return err
	}
	var l desk.Source
	if t.Store != "" {
		l, err = collectedWork(ctx, conn, journal, t)
	} else {
		l, err = desk.NewLive(conn, t.Queue, desk.LiveConfig{Journal: journal})
	}
	if err != nil {
		return err
	}
	child.Say(event{})
	if t.Do != "" {
		return keepWaiting(ctx, l.(desk.Keeper), t)
	}
	tell := func(p desk.Progress) { child.Say(event{Done: p.Done}) }
	var p desk.Progress
	if t.Resume {
		p, err = l.Resume(ctx, t.Redrive, desk.By{}, tell)
	} else {
		p, err = l.Execute(ctx, desk.Redrive{ID: t.Redrive, Action: desk.Send, All: true, Rate: t.Rate, Limit: t.Limit}, tell)
	}
	e := event{Done: p.Done, Ended: true}
	if err != nil {
		e.Error = err.Error()
	}
	child.Say(e)
	select {} // until it is killed
}

// TestADeskThatIsKilledLosesNothing kills the process of a redrive again and again,
// each time at another moment, and goes on with the redrive in another process.
func TestADeskThatIsKilledLosesNothing(t *testing.T) {
	onEach(t, func(r *room) {
		const n, rate = 6000, 3000
		limit := 0
		if r.kind == topology.Quorum {
			limit = n - 500 // and the other letters stay, once
		}
		r.fill(r.queue, n)
		kills, reached := 0, 0
		for begun, over := false, false; !over; {
			if kills > 100 {
				r.Fatalf("the redrive does not end: %d of %d after %d kills", reached, n, kills)
			}
			// Every other process is killed soon after its start, wherever it is then, and
			// the others after they have sent a part: however slow the machine is, the
			// redrive ends within the kills that are allowed.
			goal := 0
			if kills%2 == 1 {
				goal = min(reached+n/30, cmp.Or(limit, n))
			}
			running, ended := make(chan int, 1), make(chan event, 1)
			p := child.Start(r.T, task{URL: r.broker.AMQPURL(), Management: r.broker.ManagementURL(), Queue: r.queue, Journal: r.folder, Redrive: "killed", Resume: begun, Rate: rate, Limit: limit}, func(_ *child.Process, e event) {
				if e.Ended {
					ended <- e
					return
				}
				if e.Done >= goal {
					select {
					case running <- e.Done:
					default:
					}
				}
			})
			select {
			case done := <-running:
				reached = max(reached, done)
			case e := <-ended:
				ended <- e
			case <-time.After(3 * time.Minute):
				r.Fatal("the child does not begin, or sends nothing")
			}
			select {
			case e := <-ended:
				if e.Error != "" {
					r.Fatal(e.Error)
				}
				over = true
			case <-time.After(time.Duration(50+rand.IntN(250)) * time.Millisecond):
				kills++
			}
			p.Kill()
			must(r.T, p.Wait())
			progress, err := r.journal.Redrive("killed")
			begun = begun || err == nil
			over = over || err == nil && progress.State == desk.Done // it may have ended just before it was killed
		}
		p, err := r.journal.Redrive("killed")
		must(r.T, err)
		r.Logf("%d kills; %s", kills, p)
		p = r.decide(p)
		want := cmp.Or(limit, n)
		if p.State != desk.Done || kills == 0 || p.Done != want {
			r.Errorf("after %d kills: %+v, want %d done", kills, p, want)
		}
		r.has(r.queue, n-want)
		got := map[string]int{}
		for _, d := range r.drain(r.queue) {
			got[d.MessageId]++
		}
		for _, d := range r.drain(r.work) {
			got[d.MessageId]++
		}
		r.eachOnce(got, n, min(p.MaybeDuplicate, kills*128))
	})
}

// decide deletes the letters that may have been sent: each has a message id of its own, so they are
// those that were sent.
func (r *room) decide(p desk.Progress) desk.Progress {
	r.Helper()
	if p.MaybeSent == 0 {
		return p
	}
	after, err := r.live().Resume(r.Context(), p.Redrive.ID, desk.By{MaybeSent: desk.Delete}, nil)
	if err != nil || after.MaybeSent != 0 || after.Done != p.Done {
		r.Errorf("%d may have been sent: %v: %+v", p.MaybeSent, err, after)
	}
	return after
}

// TestABrokerThatIsKilledLosesNothing kills the broker in the middle of a redrive.
func TestABrokerThatIsKilledLosesNothing(t *testing.T) {
	t.Parallel()
	for _, version := range available(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b, err := start(version)
			must(t, err)
			defer func() { must(t, b.Close(context.Background())) }()
			for _, kind := range []topology.QueueType{topology.Quorum, topology.Classic} {
				t.Run(fmt.Sprint(kind), func(t *testing.T) { killBroker(enter(t, b, version, kind)) })
			}
		})
	}
}

func killBroker(r *room) {
	const n = 3000
	r.fill(r.queue, n)
	time.Sleep(15 * time.Second) //nolint:forbidigo // a broker that is killed wipes a younger quorum queue, and was seen to lose a classic one
	live := r.live()
	killed := make(chan struct{})
	once := sync.OnceFunc(func() { close(killed) })
	type end struct {
		p   desk.Progress
		err error
	}
	ended := make(chan end, 1)
	go func() {
		p, err := live.Execute(r.Context(), desk.Redrive{ID: "broker", Action: desk.Send, All: true, Rate: 1000}, func(p desk.Progress) {
			if p.Done > 500 {
				once()
			}
		})
		ended <- end{p, err}
	}()
	<-killed
	must(r.T, r.broker.Kill(r.Context()))
	must(r.T, r.broker.Start(r.Context()))
	e := <-ended
	for e.err != nil && r.Context().Err() == nil {
		r.Logf("cut off: %v", e.err)
		e.p, e.err = live.Resume(r.Context(), "broker", desk.By{}, nil)
	}
	r.Logf("%s", e.p)
	e.p = r.decide(e.p)
	got := map[string]int{}
	for _, d := range r.drain(r.work) {
		got[d.MessageId]++
	}
	if left := r.drain(r.queue); len(left) > 0 {
		r.Errorf("%d letters are left", len(left))
	}
	r.eachOnce(got, n, e.p.MaybeDuplicate)
}
