package examples

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

func TestFallback(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		s.declare(orders)
		outbox := openStore(ctx, s.database())
		// begin fallback
		publisher, err := producer.New(conn, producer.Config{
			Fallback:      []producer.Sink{outbox}, // takes what the broker does not, after FallbackAfter
			FallbackAfter: 100 * time.Millisecond,
		})
		check(err)
		plain, err := producer.New(conn, producer.Config{}) // without a Fallback
		check(err)
		forwarder, err := outbox.NewForwarder(plain, store.ForwardConfig{})
		check(err)
		go forwarder.Run(ctx) // publishes it when the broker is back
		// end fallback
		defer publisher.Close()
		defer plain.Close()
		s.broker.Kill()
		receipt, err := publisher.Publish(ctx, producer.Message{Exchange: "shop", RoutingKey: "order.paid"})
		check(err)
		if receipt.Place != producer.PlaceFallback {
			s.Error(receipt.Place)
		}
		s.broker.Start()
		after(time.Minute)
		s.ready("orders", 1)
	})
}

func TestOrdersOverHTTP(t *testing.T) {
	inShop(t, "", func(s *shop) {
		s.declare(orders)
		db := s.database()
		outbox := openStore(s.ctx, db)
		publisher, err := producer.New(s.conn, producer.Config{Fallback: []producer.Sink{outbox}, FallbackAfter: 100 * time.Millisecond})
		check(err)
		defer publisher.Close()
		mux := http.NewServeMux()
		// begin http
		mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
			var o Order
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.ID == "" {
				http.Error(w, "want an order with an id", http.StatusBadRequest)
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
			defer cancel()
			m, err := producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: "order-" + o.ID}.JSON(o) // the same id at each try
			if err == nil {
				_, err = publisher.Publish(ctx, m)
			}
			if err != nil {
				http.Error(w, "try again", http.StatusServiceUnavailable) // the message may have been sent
				return
			}
			w.WriteHeader(http.StatusAccepted) // confirmed, or in the store
		})
		// end http
		post := func(body string, want int) {
			s.Helper()
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body)))
			if answer.Code != want {
				s.Errorf("%s: %d, want %d", body, answer.Code, want)
			}
		}
		post(`{}`, 400)
		post(`{"id":"7"}`, 202)
		s.broker.Kill()
		post(`{"id":"8"}`, 202)
		s.broker.Start()
		stop := rehoptest.Run(s.T, func(ctx context.Context) error {
			forwarder, err := outbox.NewForwarder(s.producer(), store.ForwardConfig{})
			if err != nil {
				return err
			}
			return forwarder.Run(ctx)
		})
		after(time.Minute)
		stop()
		s.ready("orders", 2)
		if q, _ := s.broker.Queue("orders"); q.Ready[0].MessageId != "order-7" || q.Ready[1].MessageId != "order-8" {
			s.Errorf("the messages are %v, want order-7 and order-8", q.Ready)
		}
		s.broker.Kill()
		db.Close()
		post(`{"id":"9"}`, 503)
	})
}

func TestExchangeSink(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		// begin lost
		// A place for messages that the exchange cannot route or its queues refuse.
		lost := topology.DeadLetterQueue{Name: "shop.lost", Exchange: "shop.lost"}
		check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders, lost))
		sink, err := producer.NewExchangeSink(conn, "shop.lost")
		check(err)
		publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{sink}})
		check(err)
		defer publisher.Close() // closes the sink too

		receipt, err := publisher.Publish(ctx, producer.Message{Exchange: "shop", RoutingKey: "refund.paid"})
		if err == nil && receipt.Place == producer.PlaceFallback {
			slog.Warn("safe, but not routed", "id", receipt.ID, "cause", receipt.Cause, "error", receipt.Err)
		}
		// end lost
		check(err)
		s.ready("shop.lost", 1)
	})
}

func TestUnavailable(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.declare(orders)
		var away atomic.Bool
		var runs atomic.Int32
		away.Store(true)
		errGateway := errors.New("connection refused")
		charge := func(context.Context, *consumer.Delivery) error {
			runs.Add(1)
			if away.Load() {
				return errGateway
			}
			return nil
		}
		isAway := func(err error) bool { return errors.Is(err, errGateway) }
		// begin unavailable
		rule := consumer.Rule{Match: isAway, Name: "gateway away", Then: consumer.Outcome{Action: consumer.ActionHold}} // as consumer.Hold(err)
		classify, err := consumer.Classify(rule)
		check(err)
		handler := consumer.Wrap(charge, classify)
		// end unavailable
		worker, err := consumer.New(conn, orders, handler, consumer.Config{Concurrency: 16})
		check(err)
		for range 20 {
			s.publish(producer.Message{})
		}
		s.run(worker)
		after(10 * time.Minute)
		if worker.Health() == nil || runs.Load() > 200 {
			s.Errorf("an outage: %v after %d runs", worker.Health(), runs.Load())
		}
		away.Store(false)
		after(time.Minute)
		s.ready("orders", 0)
		s.ready("orders.dlq", 0)
		if worker.Health() != nil {
			s.Error(worker.Health())
		}
	})
}
