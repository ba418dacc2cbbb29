package examples

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/desk/web"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// die makes dead letters of orders.
func (s *shop) die(n int) {
	s.Helper()
	s.declare(orders)
	for i := range n {
		s.publish(producer.Message{ID: fmt.Sprint("order-", i), Body: []byte("one artikel")})
	}
	worker, err := consumer.New(s.conn, orders, func(context.Context, *consumer.Delivery) error { return consumer.DeadLetter(errPaper) }, consumer.Config{})
	check(err)
	stop := s.run(worker)
	after(time.Minute)
	stop()
	s.ready("orders.dlq", n)
}

func TestLetters(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.die(1)
		archived := ""
		archive := func(_ context.Context, d *consumer.Delivery) error { archived = d.ID; return nil }
		// begin consume
		worker, err := consumer.New(conn, orders.DeadLetterQueue(), func(ctx context.Context, d *consumer.Delivery) error {
			why := d.History.Failure // Cause, Error, ErrorType, At, Host
			slog.Error("dead letter", "id", d.ID, "cause", why.Cause, "error", why.Error, "attempts", d.History.FinalAttempts)
			return archive(ctx, d) // nil removes the letter; an error holds it
		}, consumer.Config{Concurrency: 10})
		// end consume
		check(err)
		s.run(worker)
		after(time.Minute)
		if archived != "order-0" {
			s.Error(archived)
		}
	})
}

func TestCollect(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn, publisher := s.ctx, s.conn, s.producer()
		s.die(3)
		letters := openStore(ctx, s.database())
		// begin collect
		worker, err := consumer.New(conn, orders.DeadLetterQueue(), letters.Collect, consumer.Config{Concurrency: 50})
		// end collect
		check(err)
		s.run(worker)
		after(time.Minute)
		// begin groups
		groups, _, err := letters.Groups(ctx, store.Query{Queue: "orders"}) // the most frequent fault first
		check(err)
		for _, g := range groups {
			fmt.Println(g.Fingerprint, g.Count, g.Example.Cause, g.Example.Error)
		}

		// One message is put right.
		check(letters.Edit(ctx, groups[0].Example.Number, func(m *producer.Message) error {
			m.Body = bytes.ReplaceAll(m.Body, []byte("artikel"), []byte("article"))
			return nil
		}))

		// After the bug is fixed: one letter first, and the rest if it does not come back.
		query := store.Query{Fingerprint: groups[0].Fingerprint}
		report, err := letters.Replay(ctx, publisher, query, store.ReplayOptions{Canary: time.Hour, Rate: 100})
		// end groups
		check(err)
		s.ready("orders", 3)
		if len(groups) != 1 || groups[0].Count != 3 || report.Sent != 3 {
			s.Errorf("%+v, %+v", groups, report)
		}
	})
}

func TestSendAgain(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn, publisher := s.conn, s.producer()
		s.die(1)
		// begin again
		worker, err := consumer.New(conn, orders.DeadLetterQueue(), func(ctx context.Context, d *consumer.Delivery) error {
			_, err := publisher.Publish(ctx, producer.FromDelivery(d.AMQP())) // the same id, properties and headers; attempt 1
			return err
		}, consumer.Config{})
		// end again
		check(err)
		s.run(worker)
		after(time.Minute)
		s.ready("orders", 1)
	})
}

func TestDesk(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn, dir := s.ctx, s.conn, s.TempDir()
		s.die(2)
		// begin desk
		journal, err := desk.OpenJournal(filepath.Join(dir, "desk"))
		check(err)
		live, err := desk.NewLive(conn, "orders.dlq", desk.LiveConfig{Journal: journal})
		check(err)
		groups, err := live.Groups(ctx, desk.Filter{})
		check(err)
		progress, err := live.Execute(ctx, desk.Redrive{
			Action: desk.Send,
			Filter: desk.Filter{Fingerprint: groups.Groups[0].Fingerprint},
			Rate:   100,
			By:     desk.By{Who: "deploy 4711", Why: "stock service is mended"},
		}, nil)
		// end desk
		check(err)
		s.ready("orders", 2)
		if progress.Done != 2 {
			s.Errorf("%+v", progress)
		}
	})
}

func TestPage(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn, mux := s.ctx, s.conn, http.NewServeMux()
		journal, err := desk.OpenJournal(s.TempDir())
		check(err)
		userOf := func(*http.Request) string { return os.Getenv("USER") }
		// begin page
		page, err := web.New(web.Config{Conn: conn, Journal: journal, Who: func(r *http.Request) string { return userOf(r) }})
		check(err)
		go page.Run(ctx) // depths and redrives; ends with ctx
		mux.Handle("/desk/", http.StripPrefix("/desk", page))
		// end page
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/desk/", nil))
		if answer.Code != 200 {
			s.Error(answer.Code)
		}
	})
}

func TestChanges(t *testing.T) {
	inShop(t, "4.3", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		orders := orders
		s.declare(orders)
		// begin deletewaits
		former := orders // its Waits are 1m, 5m, 10m, 20m
		orders.Waits = delay.Schedule{time.Minute, 3 * time.Minute, 10 * time.Minute, 20 * time.Minute}
		check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders)) // at the start of the new program
		// end deletewaits
		before := s.broker.Queues()
		// begin deletewaits

		// Later: no process has the former Waits any more, and 20 minutes have passed since.
		check(topology.DeleteWaits(ctx, conn, former, orders)) // the queues that only former uses
		// ... every consumer has been started again
		check(topology.DeleteWaits(ctx, conn, orders, orders)) // the replacement queues, such as orders.wait.2.3m
		// end deletewaits
		if now := s.broker.Queues(); len(now) >= len(before) {
			s.Errorf("queues %q, and before %q", now, before)
		}
		// begin plan
		plan, err := topology.NewPlan(conn.Server().Version, orders)
		check(err)
		fmt.Print(plan) // every queue, exchange, argument and binding; nothing is declared
		// end plan
		// begin delete
		check(topology.Delete(ctx, conn, orders)) // all its parts, unless a queue holds a message or has a consumer
		// end delete
		s.publishTo("legacy")
		// begin existing
		legacy := topology.WorkQueue{Name: "legacy", Existing: true, Waits: orders.Waits}
		check(topology.Declare(ctx, conn, legacy)) // waits, dead-letter queue, and the binding by which they lead back
		// end existing
		s.ready("legacy", 1)
	})
}

// publishTo declares a queue as others do, and puts a message into it.
func (s *shop) publishTo(queue string) {
	s.Helper()
	session, err := s.conn.Session(s.ctx, connection.Consume)
	check(err)
	defer session.Close()
	_, err = session.Channel().QueueDeclare(queue, true, false, false, false, nil)
	check(err)
	s.publish(producer.Message{RoutingKey: queue})
}
