package examples

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/service"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// The whole service runs outside of a bubble, with a socket and a signal of its own.
func TestService(t *testing.T) {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	check(err)
	defer broker.Close()
	address, err := broker.Listen()
	check(err)
	t.Setenv("AMQP_URL", "amqp://guest:guest@"+address)
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "shop.db"))
	check(err)
	defer db.Close()
	web := &http.Server{Addr: "127.0.0.1:0"}
	handled := 0
	handle := func(context.Context, *consumer.Delivery) error {
		handled++
		return syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
	}
	forward := func(ctx context.Context, conn *connection.Conn) (*store.Forwarder, *producer.Producer, error) {
		outbox, err := store.Open(ctx, db, store.SQLite, store.Config{Conn: conn})
		if err != nil {
			return nil, nil, err
		}
		plain, err := producer.New(conn, producer.Config{})
		if err != nil {
			return nil, nil, err
		}
		forwarder, err := outbox.NewForwarder(plain, store.ForwardConfig{})
		return forwarder, plain, err
	}
	// begin service
	run := func(ctx context.Context) error {
		cfg, err := connection.FromEnv("AMQP") // AMQP_URL, AMQP_PASSWORD_FILE, AMQP_CA_FILE and so on
		if err != nil {
			return err
		}
		cfg.Logger = slog.Default()                                              // for the consumer, the producer and the store too
		cfg.OnConnect = func(ctx context.Context, conn *connection.Conn) error { // after each connect and reconnect
			return topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders)
		}
		conn, err := connection.Open(ctx, cfg)
		if errors.Is(err, context.Canceled) {
			return nil // SIGTERM while it waits for the broker is a clean end
		}
		if err != nil {
			return err
		}
		defer conn.Close()
		worker, err1 := consumer.New(conn, orders, handle, consumer.Config{Concurrency: 16})
		forwarder, plain, err2 := forward(ctx, conn) // of an outbox
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		defer plain.Close()
		shop := service.Service{Stages: [][]service.Part{
			{service.Server(web.ListenAndServe, web.Shutdown)}, // stops first: no new orders
			{worker},    // then the consumers, side by side
			{forwarder}, // last, so that handlers can still publish
		}}
		return shop.Run(ctx)
	}
	// end service
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{os.Getenv("AMQP_URL")}})
	check(err)
	defer conn.Close()
	check(topology.Declare(t.Context(), conn, topology.Exchange{Name: "shop"}, orders))
	if n, err := broker.Publish(rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid"}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	// begin main
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("shop", "error", err)
		os.Exit(1)
	}
	// end main
	if handled != 1 {
		t.Errorf("%d messages were handled, want 1", handled)
	}
	broker.Kill()
	if err := run(ctx); err != nil { // its ctx has ended
		t.Errorf("a stop while the broker is awaited: %v", err)
	}
}

func TestProbe(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.declare(orders)
		worker, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		check(err)
		outbox := openStore(s.ctx, s.database())
		forwarder, err := outbox.NewForwarder(s.producer(), store.ForwardConfig{})
		check(err)
		mux := http.NewServeMux()
		// begin probe
		office := service.Service{Stages: [][]service.Part{{worker}, {forwarder}}}
		mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
			if !rehop.Ready(conn.Health(), office.Health()) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		mux.HandleFunc("/livez", func(http.ResponseWriter, *http.Request) {}) // a restart brings no broker back
		// end probe
		rehoptest.Run(s.T, office.Run)
		// begin operator
		ops, err := consumer.Operator(worker)
		check(err)
		mux.Handle("/ops/", http.StripPrefix("/ops", ops))
		// end operator
		mux.Handle("orders.internal/ops/", http.StripPrefix("/ops", ops))
		get := func(address string) int {
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://"+address, nil))
			return answer.Code
		}
		after(time.Second)
		if get("localhost:8080/readyz") != 200 || get("localhost:8080/ops/") != 200 || get("orders.internal/ops/") != 200 {
			s.Error("the service is not ready")
		}
		s.broker.Kill()
		after(time.Minute)
		if get("localhost:8080/readyz") != 503 || get("localhost:8080/livez") != 200 {
			s.Error("without a broker the service is ready, or is restarted")
		}
	})
}

func TestTypes(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn, publisher := s.ctx, s.conn, s.producer()
		s.declare(orders)
		handled := ""
		paid := func(_ context.Context, _ *consumer.Delivery, o Order) error { handled = o.ID; return nil }
		refunded := paid
		order := Order{ID: "7"}
		// begin types
		handler := consumer.Mux{ // by the message's type
			"order.paid":     consumer.JSON(paid), // func(ctx context.Context, d *consumer.Delivery, o Order) error
			"order.refunded": consumer.JSON(refunded),
		}.Handle
		worker, err := consumer.New(conn, orders, handler, consumer.Config{Concurrency: 16})
		check(err)

		m, err := producer.Message{Exchange: "shop", RoutingKey: "order.paid", Type: "order.paid"}.JSON(order) // on the other side
		check(err)
		receipt, err := publisher.Publish(ctx, m)
		// end types
		check(err)
		s.publish(producer.Message{Type: "order.lost"})
		s.run(worker)
		after(time.Minute)
		s.ready("orders.dlq", 1)
		if handled != "7" || receipt.Place != producer.PlaceQueue {
			s.Error(handled)
		}
	})
}

func TestPublishMany(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, publisher := s.ctx, s.producer()
		s.declare(orders)
		m := producer.Message{Exchange: "shop", RoutingKey: "order.paid"}
		messages := []producer.Message{m, m}
		// begin many
		receipts, err := publisher.PublishAll(ctx, messages) // a receipt for each message

		publisher.PublishAsync(ctx, m, nil)          // without a goroutine for each; a function in place of nil gets the receipt
		err = errors.Join(err, publisher.Flush(ctx)) // waits for the receipts of all of them
		// end many
		check(err)
		s.ready("orders", 3)
		if len(receipts) != 2 {
			s.Error(receipts)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.declare(orders)
		n := 0
		worker, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error { n++; return nil }, consumer.Config{})
		check(err)
		rehoptest.Run(s.T, worker.Run)
		after(time.Second)
		// begin pause
		worker.Pause()
		// ... the database is moved
		// end pause
		s.publish(message("order-7"))
		after(time.Minute)
		s.ready("orders", 1)
		// begin pause
		worker.Resume()
		// end pause
		after(time.Minute)
		if n != 1 {
			s.Errorf("%d were handled, want 1", n)
		}
	})
}
