// Try runs the shop and the office of the example, and is unkind to them: the office is
// killed, the gateway is busy now and then and away for a while, and the broker is killed by
// withbroker.
//
//	go run ./integration/withbroker -kill 25s,3s -- bin/service/try -for 50s bin/service
//
// It ends with an account, and with an error if an order is lost, billed twice, or billed
// before an earlier one of its customer.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rehop/rehop/examples/service/order"
	"github.com/rehop/rehop/store/sqlite"
)

const (
	customers = 20
	every     = 100 * time.Millisecond // each of them
	patience  = 2 * time.Minute
	busyEvery = 200 // calls of the gateway: about one in a second
)

func main() {
	length := flag.Duration("for", 50*time.Second, "how long orders are taken")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), *length); err != nil {
		log.Fatal("try: ", err)
	}
}

func run(ctx context.Context, programs string, length time.Duration) error {
	dir, err := os.MkdirTemp("", "service-")
	if err != nil {
		return err
	}
	gateway := &gateway{}
	paying := httptest.NewServer(gateway)
	defer paying.Close()
	shopDB, officeDB, shopAddr := filepath.Join(dir, "shop.db"), filepath.Join(dir, "office.db"), freeAddress()
	shop := program(filepath.Join(programs, "shop"), filepath.Join(dir, "shop.log"), "SHOP_DB="+shopDB, "SHOP_ADDR="+shopAddr)
	office := program(filepath.Join(programs, "office"), filepath.Join(dir, "office.log"), "OFFICE_DB="+officeDB, "OFFICE_ADDR="+freeAddress(), "GATEWAY_URL="+paying.URL)
	stopShop, err := shop()
	if err != nil {
		return err
	}
	defer func() { _ = stopShop(os.Kill) }() // if it still runs
	stopOffice, err := office()
	if err != nil {
		return err
	}
	defer func() { _ = stopOffice(os.Kill) }()

	taking, end := context.WithTimeout(ctx, length)
	defer end()
	var accepted atomic.Int64
	var all sync.WaitGroup
	for c := range customers {
		all.Go(func() { placeOrders(ctx, taking, fmt.Sprint("customer-", c), "http://"+shopAddr+"/orders", &accepted) })
	}
	sleep(taking, length/4)
	fmt.Println("the office is killed")
	_ = stopOffice(os.Kill) // it says that it was killed
	if stopOffice, err = office(); err != nil {
		return err
	}
	sleep(taking, length*2/5)
	fmt.Println("the gateway is away")
	gateway.away.Store(true)
	sleep(taking, length/5)
	fmt.Println("the gateway is back")
	gateway.away.Store(false)
	all.Wait()

	db, err := sqlite.Open(officeDB)
	if err != nil {
		return err
	}
	defer db.Close()
	waited := time.Now()
	for {
		a, err := readAccount(ctx, db, int(accepted.Load()))
		if err != nil {
			return err
		}
		if a.archived >= a.accepted || time.Since(waited) > patience || ctx.Err() != nil {
			break
		}
		sleep(ctx, 200*time.Millisecond)
	}
	if err := errors.Join(stopShop(syscall.SIGTERM), stopOffice(syscall.SIGTERM)); err != nil {
		return err
	}
	a, err := readAccount(ctx, db, int(accepted.Load()))
	if err != nil {
		return err
	}
	a.charged = gateway.charged()
	fmt.Print(a)
	if err := a.fault(); err != nil {
		return fmt.Errorf("%w: see %s", err, dir)
	}
	return os.RemoveAll(dir)
}

// program returns a function that starts a program, and returns one that ends it. The
// program logs to a file.
func program(path, log string, env ...string) func() (stop func(os.Signal) error, err error) {
	return func() (func(os.Signal) error, error) {
		to, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer to.Close() // the program has its own
		p := exec.Command(path)
		p.Env, p.Stderr = append(os.Environ(), env...), to
		if err := p.Start(); err != nil {
			return nil, err
		}
		return func(s os.Signal) error {
			if err := p.Process.Signal(s); err != nil {
				return nil // it has ended, and somebody has waited for it
			}
			return p.Wait()
		}, nil
	}
}

// placeOrders places one order after the other, each until the shop has accepted it.
func placeOrders(ctx, taking context.Context, customer, url string, accepted *atomic.Int64) {
	client := &http.Client{Timeout: 5 * time.Second}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; taking.Err() == nil; n++ {
		body, err := json.Marshal(order.Order{ID: fmt.Sprintf("%s-%d", customer, n), Customer: customer, Number: n, VIP: customer == "customer-0"})
		if err != nil {
			panic(err) // of plain fields
		}
		for ctx.Err() == nil {
			answer, err := client.Post(url, "application/json", bytes.NewReader(body))
			if err == nil {
				_ = answer.Body.Close()
				if answer.StatusCode == http.StatusAccepted {
					accepted.Add(1)
					break
				}
			}
			sleep(ctx, every)
		}
		<-tick.C
	}
}

// gateway is the service that takes the money.
type gateway struct {
	away  atomic.Bool
	calls atomic.Int64
	keys  sync.Map
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.away.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if g.calls.Add(1)%busyEvery == 0 {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	g.keys.Store(r.Header.Get("Idempotency-Key"), true)
}

func (g *gateway) charged() (n int) {
	g.keys.Range(func(any, any) bool { n++; return true })
	return n
}

// account is what became of the orders.
type account struct{ accepted, charged, billed, archived, lost, doubled, outOfOrder int }

func readAccount(ctx context.Context, db *sql.DB, accepted int) (account, error) {
	a := account{accepted: accepted}
	var twice int
	err := db.QueryRowContext(ctx, `SELECT
		(SELECT count(DISTINCT id) FROM bills), (SELECT count(DISTINCT id) FROM archive),
		(SELECT count(*) - count(DISTINCT id) FROM bills), (SELECT count(*) - count(DISTINCT id) FROM archive),
		(SELECT count(*) FROM (SELECT of_customer, max(of_customer) OVER (PARTITION BY customer ORDER BY number) AS latest FROM bills) WHERE of_customer < latest)`).
		Scan(&a.billed, &a.archived, &a.doubled, &twice, &a.outOfOrder)
	a.doubled += twice
	a.lost = a.accepted - min(a.billed, a.archived)
	return a, err
}

func (a account) String() string {
	return fmt.Sprintf("orders accepted %6d\ncharged         %6d\nhandled once    %6d\narchived        %6d\nlost            %6d\ndoubled         %6d\nout of order    %6d\n",
		a.accepted, a.charged, a.billed, a.archived, a.lost, a.doubled, a.outOfOrder)
}

// fault returns what is wrong.
func (a account) fault() error {
	if a.accepted == 0 || a.lost != 0 || a.doubled != 0 || a.outOfOrder != 0 || a.charged != a.accepted {
		return errors.New("the account is not in order")
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// freeAddress returns an address that nobody listens on.
func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal("try: ", err)
	}
	defer l.Close()
	return l.Addr().String()
}
