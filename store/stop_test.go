package store

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// A stop waits for the answers to what was published, and for nothing else.
func TestAStopDoesNotWaitForABrokerThatIsAway(t *testing.T) {
	for rule, tt := range map[string]struct {
		begin func(*rehoptest.Broker)
		took  time.Duration
		want  result
	}{
		"nothing is written":      {(*rehoptest.Broker).Stop, 0, result{state: Ready}},
		"written, answered later": {(*rehoptest.Broker).Stall, 3 * time.Second, result{done: true}},
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := rehoptest.NewBroker(rehoptest.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker/"}, Dial: b.Dial})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				p, err := producer.New(conn, producer.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				if _, err := p.PublishAll(t.Context(), []producer.Message{{Exchange: "amq.fanout", RoutingKey: "k"}}); err == nil {
					t.Fatal("amq.fanout has a queue")
				}
				tt.begin(b)
				synctest.Wait()
				s := &Store{cfg: Config{Logger: slog.New(slog.DiscardHandler)}, now: time.Now}
				f := &forwarder{health: &forwardHealth{failing: map[topology.Address]failing{}}, store: s, publisher: p, cfg: ForwardConfig{}.withDefaults(), again: repeats.New(slog.New(slog.DiscardHandler)), results: make(chan []result, 1), addresses: map[group]*addressState{}}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					letter := Entry{Number: 1, State: Ready, Message: producer.Message{Exchange: "amq.fanout", RoutingKey: "k", ID: "1"}}
					one := &sending{forwarder: f, work: confirm.StopSending(context.WithoutCancel(ctx), ctx), lease: leased{token: "t", until: time.Now().Add(time.Minute)}, leave: func() {}}
					one.address(letter.group(), []Entry{letter})
				}()
				time.Sleep(5 * time.Second)
				stop()
				began := time.Now()
				time.AfterFunc(3*time.Second, b.Resume)
				<-done
				if took := time.Since(began); took != tt.took {
					t.Errorf("the stop took %v, want %v", took, tt.took)
				}
				if e := (<-f.results)[0]; tt.took == 0 && (e.done || e.state != tt.want.state || e.unconfirmed != tt.want.unconfirmed) {
					t.Errorf("ends as %+v", e)
				}
			})
		})
	}
}
